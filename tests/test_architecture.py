"""The layout is the architecture: a folder imports only from folders nearer the core; the public names are few."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import bibs

PACKAGE = Path(bibs.__file__).parent
ANYTHING = {"search", "models", "text", "vision", "data", "infiller", "training", "evaluation"}
ALLOWED = {
    "search": set(),
    "text": set(),
    "models": {"search"},
    "vision": {"text"},
    "data": {"text"},
    "infiller": {"search", "models", "text", "vision"},
    "training": {"search", "models", "text", "vision", "data", "infiller"},
    "evaluation": {"search", "models", "text", "vision", "data", "infiller", "training"},
    "serving": ANYTHING,
    "scale": ANYTHING,
    "cli": ANYTHING | {"serving", "scale"},
}


def folder_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_folders(path: Path) -> set[str]:
    """The folders of ours that a file imports from, in whatever way it is written."""
    package = ["bibs", *path.relative_to(PACKAGE).parts[:-1]]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("bibs.")}
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_folder_imports_only_from_folders_nearer_the_core(path):
    folder = folder_of(path)
    if folder == "__init__":
        return
    assert folder in ALLOWED, f"{folder} has no place in the architecture yet"
    assert imported_folders(path) - {folder} <= ALLOWED[folder]


def test_search_imports_torch_and_the_standard_library_alone():
    import sys

    for path in (PACKAGE / "search").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                roots = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                roots = {(node.module or "").split(".")[0]}
            else:
                continue
            assert roots <= {"torch", *sys.stdlib_module_names}, path.name


@pytest.mark.parametrize("name", ["bibs", "bibs.search", "bibs.text"])
def test_every_public_name_exists_and_the_list_is_sorted_and_short(name):
    module = importlib.import_module(name)
    assert all(hasattr(module, public) for public in module.__all__)
    assert len(module.__all__) <= 12
    assert len(set(module.__all__)) == len(module.__all__)


def test_the_command_line_helps_without_loading_torch() -> None:
    code = "import sys, bibs, bibs.cli; sys.exit('torch' in sys.modules or not set(bibs.__all__) <= set(dir(bibs)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
