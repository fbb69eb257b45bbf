"""The code in the documentation runs, and what it shows is true."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """No code on a page asks for METEOR by name, and Java takes long to start it."""
    from bibs.evaluation import meteor

    def refuse() -> None:
        raise meteor.NoMeteorError("no Java")

    monkeypatch.setattr(meteor, "_find_java", refuse)


@pytest.fixture(autouse=True)
def methods_as_they_were() -> Iterator[None]:
    """A page may enter methods of its own."""
    from bibs.evaluation import METHODS

    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_blocks_of_a_page_run_in_order(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    for number, code in enumerate(blocks(page)):
        exec(compile("from __future__ import annotations\n" + code, f"{page.name}, block {number}", "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_python_hides_in_a_block_of_another_kind(page):
    text_of_page = page.read_text(encoding="utf-8")
    fence = re.compile(r"^[ >]*```([^\n]*)\n(.*?)^[ >]*```", flags=re.DOTALL | re.MULTILINE)
    fences = fence.findall(text_of_page)
    assert {kind for kind, _ in fences} <= {"python", "sh", "text", ""}
    assert sum(kind == "python" for kind, _ in fences) == len(blocks(page))
    for kind, text in fences:
        if kind in ("text", ""):
            with pytest.raises(SyntaxError):
                ast.parse(text)
    for text in re.findall(r"\n\n((?: {4}[^\n]*\n)+)", fence.sub("", text_of_page)):
        assert not is_program(textwrap.dedent(text)), text


def is_program(text: str) -> bool:
    """Whether an indented block is more than a formula."""
    try:
        return any(not isinstance(statement, ast.Expr) for statement in ast.parse(text).body)
    except SyntaxError:
        return False


def test_the_readme_has_python_to_run():
    assert blocks(ROOT / "README.md")


def test_three_models_of_ones_own_are_searched_and_checked_on_the_page():
    searched = [code for code in blocks(ROOT / "docs" / "own-models.md") if "bidirectional_beam_search(" in code]
    assert len(searched) >= 3
    assert all("assert " in code for code in searched)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_a_package_index_which_has_no_other_file_shows_no_broken_link():
    settings = pytest.importorskip("tomllib").loads(read("pyproject.toml"))["tool"]["hatch"]["metadata"]["hooks"]
    text = read("README.md")
    for each in settings["fancy-pypi-readme"]["substitutions"]:
        assert re.search(each["pattern"], text), "there is nothing to replace"
        text = re.sub(each["pattern"], each["replacement"], text)
    assert not re.search(r"\]\((?!https?:|#)", text)
    assert not re.search(r'pip install "?\.', text)
    assert re.search(r"^pip install bibs ", text, flags=re.MULTILINE)


def test_the_version_is_the_one_that_is_cited_and_dated():
    import bibs

    assert re.search(rf"^## \[{re.escape(bibs.__version__)}\] - \d{{4}}-\d\d-\d\d$", read("CHANGELOG.md"), re.MULTILINE)
    assert f"\nversion: {bibs.__version__}\n" in read("CITATION.cff")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")
