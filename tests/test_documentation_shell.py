"""The shell blocks of the documentation: run, or marked as not; and what they ask for exists.

`benchmarks/stranger.py` runs those of the tutorial, in the gate.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

from bibs.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TUTORIAL = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
BETWEEN = ("|", ";", "&", "&&", "||", "\n")
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def expanded(text: str, variables: dict[str, str]) -> str:
    text = re.sub(r"\$\([^)]*\)", "inner", text)
    return re.sub(r"\$(\w+)", lambda name: variables.get(name[1], name[0]), text)


def commands(blocks: Iterator[str]) -> Iterator[list[str]]:
    """Each simple command of shell blocks, as a list of words; variables hold what the page gives them."""
    variables: dict[str, str] = {}
    for block in blocks:
        text = re.sub(r"<<'(\w+)'\n.*?^\1$", "", block, flags=re.DOTALL | re.MULTILINE)
        for line in re.sub(r"\\\n\s*", "", text).splitlines():
            reader = shlex.shlex(expanded(line, variables), posix=True, punctuation_chars=True)
            reader.whitespace_split = True
            words: list[str] = []
            for word in [*reader, ";"]:
                if word not in BETWEEN:
                    words.append(word)
                elif words:
                    if (given := re.fullmatch(r"(\w+)=(.*)", words[0], flags=re.DOTALL)) and len(words) == 1:
                        variables[given[1]] = given[2]
                    else:
                        yield words
                    words = []


def in_blocks(page: Path) -> list[list[str]]:
    return list(commands(block[1] for block in BLOCK.finditer(page.read_text(encoding="utf-8"))))


def of_bibs(words: list[str]) -> list[str] | None:
    """What a command says to `bibs`, if it does."""
    words = words[: next((place for place, word in enumerate(words) if word in ("<", ">", ">>")), None)]
    if words[0] == "bibs":
        return words[1:]
    return words[words.index("bibs") + 1 :] if ("-m", "bibs") in pairwise(words) else None


def resolved(words: list[str]) -> tuple[Any, list[str]]:
    """The command of `bibs` that words name, and what is said to it."""
    command: Any = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def at_once(command: Any) -> set[str]:
    """The options that do something as soon as they are read."""
    asked = [*command.params, command.get_help_option(typer.Context(command))]
    return {name for each in asked if each.callback is not None for name in each.opts}


@every_page
def test_a_shell_block_is_run_or_marked_with_the_reason_why_not(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    marked = len(re.findall(r"^<!-- not run: [^\n]+ -->\n```sh$", text, flags=re.MULTILINE))
    assert marked == (0 if page == TUTORIAL else len(re.findall(r"^ *```sh$", text, flags=re.MULTILINE)))


@every_page
def test_the_options_of_commands_in_blocks_exist_and_fit(page: Path) -> None:
    for words in in_blocks(page):
        if (said := of_bibs(words)) is not None:
            command, arguments = resolved(said)
            if not set(arguments) & at_once(command):
                command.make_context("bibs", list(arguments))  # parses; runs nothing


@every_page
def test_the_options_of_commands_in_sentences_exist(page: Path) -> None:
    for inline in INLINE.findall(BLOCK.sub("", page.read_text(encoding="utf-8"))):
        if inline.startswith("bibs "):
            command, arguments = resolved(re.split(r"\s+", inline)[1:])
            known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
            known |= at_once(command)
            assert {word for word in arguments if re.match(r"--?[a-z]", word)} <= known, inline


@every_page
def test_the_programs_and_targets_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for words in [*in_blocks(page), *(inline.split() for inline in INLINE.findall(BLOCK.sub("", text)))]:
        if words[0] == "python" and words[1].endswith(".py") and "/" in words[1]:
            assert (ROOT / words[1]).exists(), words
        if words[0] == "make" and len(words) > 1:
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE), words


def test_the_tutorial_shows_the_commands_of_a_newcomer() -> None:
    named = {tuple(said[:1]) for words in in_blocks(TUTORIAL) if (said := of_bibs(words)) is not None}
    assert {("fill",), ("serve",), ("train",)} <= named
