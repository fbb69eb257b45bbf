"""What every command has: help that needs no torch, an example, completion, and answers that programs can read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
import typer

from bibs.cli import app

FOR_PEOPLE_ALONE = {"serve", "eval madlibs-captions"}
"""The service has its own protocol; the other writes a file and says so."""


def commands() -> Iterator[tuple[str, str]]:
    """The commands by name, each with all that `--help` says of it."""
    group = typer.main.get_command(app)
    waiting = [("", group)]
    while waiting:
        name, command = waiting.pop()
        inner = getattr(command, "commands", {})
        waiting += [(f"{name} {each}".strip(), one) for each, one in inner.items()]
        if not inner:
            context = command.make_context("bibs", [], resilient_parsing=True)
            yield name, re.sub(r"\s+", " ", command.get_help(context))


COMMANDS = dict(commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_shows_an_example_of_itself(name: str) -> None:
    assert f"Example: bibs {name}" in COMMANDS[name]


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - FOR_PEOPLE_ALONE))
def test_a_program_can_read_the_answer(name: str) -> None:
    assert "--json" in COMMANDS[name]


def test_the_shell_completes_commands_and_options() -> None:
    def complete(typed: str) -> list[str]:
        asked = {"_BIBS_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
        command = [sys.executable, "-m", "bibs"]
        said = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=False).stdout
        return said.split()

    assert complete("bibs ca") == ["calibrate"]
    assert "--must-include" in complete("bibs fill --mu")
