"""The layout is the architecture: a folder imports only from folders nearer the core; the public names are few."""

from __future__ import annotations

import ast
import functools
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import bibs

PACKAGE = Path(bibs.__file__).parent
CORE = {"search", "constraints", "lengths", "baselines"}
ANYTHING = CORE | {
    "checks",
    "methods",
    "models",
    "text",
    "words",
    "vision",
    "data",
    "dna",
    "infiller",
    "training",
    "evaluation",
}
ALLOWED = {
    "search": set(),
    "constraints": {"search"},
    "lengths": {"search"},
    "baselines": {"search"},
    "checks": {"search", "constraints", "lengths"},
    "methods": CORE | {"checks"},
    "text": {"search"},  # for `Gap`, which is one type in templates of words and of ids
    "models": {"search", "lengths", "text"},  # a model directory holds its words, and how lengths compare under it
    "words": {"search", "text"},
    "vision": {"text"},
    "data": {"text"},
    "dna": CORE | {"methods", "models", "data"},
    "pictures": {"search", "models", "vision"},
    "infiller": CORE | {"checks", "methods", "models", "text", "words", "vision", "pictures", "huggingface"},
    "huggingface": CORE | {"checks", "methods", "models", "text", "infiller"},  # sub-words, behind the same door
    "training": CORE | {"checks", "methods", "models", "text", "vision", "data", "infiller"},
    "evaluation": CORE | {"checks", "methods", "models", "text", "vision", "data", "infiller", "training"},
    "serving": ANYTHING,
    "scale": ANYTHING | {"serving"},
    "cli": ANYTHING | {"serving", "scale"},
    "__main__": {"cli"},
}


def folder_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imported_names(path: Path) -> set[str]:
    """What a file imports from us, in whatever way it is written."""
    package = ["bibs", *path.relative_to(PACKAGE).parts[:-1]]
    found = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name for name in names if name.startswith("bibs.")}
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_folder_imports_only_from_folders_nearer_the_core(path):
    folder = folder_of(path)
    if folder == "__init__":
        return
    assert folder in ALLOWED, f"{folder} has no place in the architecture yet"
    assert {name.split(".")[1] for name in imported_names(path)} - {folder} <= ALLOWED[folder]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nobody_outside_imports_the_inner_modules_of_the_core(path):
    for name in imported_names(path):
        folder, *rest = name.split(".")[1:]
        if folder in CORE and folder != folder_of(path):
            assert not rest or not (PACKAGE / folder / f"{rest[0]}.py").exists(), f"{name} is an inner module"


def test_search_imports_torch_and_the_standard_library_alone():
    import sys

    for path in (PACKAGE / "search").glob("*.py"):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Import):
                roots = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                roots = {(node.module or "").split(".")[0]}
            else:
                continue
            assert roots <= {"torch", *sys.stdlib_module_names}, path.name


@pytest.mark.parametrize("name", ["bibs", "bibs.text", "bibs.lengths", "bibs.baselines", "bibs.constraints"])
def test_every_public_name_exists_and_the_list_is_sorted_and_short(name):
    module = importlib.import_module(name)
    assert all(hasattr(module, public) for public in module.__all__)
    assert len(module.__all__) <= 12
    # As ruff sorts them: CONSTANTS, Classes, functions.
    assert module.__all__ == sorted(set(module.__all__), key=lambda each: (not each.isupper(), each[0].islower(), each))


def test_the_command_line_helps_without_loading_torch() -> None:
    code = "import sys, bibs, bibs.cli; sys.exit('torch' in sys.modules or not set(bibs.__all__) <= set(dir(bibs)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_ray_and_pyarrow_are_imported_by_their_own_files_alone_and_these_where_they_are_needed(path):
    owners = {"ray": {"scale/on_ray.py", "scale/serving.py"}, "pyarrow": {"scale/parquet.py"}}
    inner = {name: f"bibs.{name.removesuffix('.py').replace('/', '.')}" for names in owners.values() for name in names}
    here = str(path.relative_to(PACKAGE))
    tree = parse(path)
    for node in ast.walk(tree):
        names = {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
        names |= {node.module or ""} if isinstance(node, ast.ImportFrom) else set()
        for package, allowed in owners.items():
            assert here in allowed or package not in {name.split(".")[0] for name in names}
        if node in tree.body and here not in inner:  # not inside of a function
            assert not names & set(inner.values())
