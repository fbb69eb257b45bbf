"""What every command has: help that needs no torch, an example, completion, and answers that programs can read."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from bibs import Infiller
from bibs.cli import app, main

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


@pytest.mark.slow
def test_the_shell_completes_commands_and_options() -> None:
    def complete(typed: str) -> list[str]:
        asked = {"_BIBS_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
        command = [sys.executable, "-m", "bibs"]
        said = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=False).stdout
        return said.split()

    assert complete("bibs ca") == ["calibrate"]
    assert "--must-include" in complete("bibs fill --mu")


def test_training_gives_its_losses_as_json_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"{a} {b} sat on the mat" for a in ("a", "the") for b in ("cat", "dog", "man", "hat")]
    (tmp_path / "notes.txt").write_text("\n".join(lines))
    sizes = [
        "--hidden",
        "4",
        "--embedding",
        "4",
        "--epochs",
        "2",
        "--min-count",
        "1",
        "--cutoffs",
        "",
        "--val-share",
        ".3",
    ]
    files = ["--data", str(tmp_path / "notes.txt"), "--output", str(tmp_path / "model")]
    monkeypatch.setattr("sys.argv", ["bibs", "train", *files, *sizes, "--no-parallel", "--no-calibrate", "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    result = json.loads(capsys.readouterr().out)
    for direction in ("forward", "backward"):
        assert result[direction]["val_loss"] == min(result[direction]["val_losses"])
    assert Infiller.from_pretrained(result["output"])("a _ sat")[0].text.startswith("a ")


def test_names_are_kept_as_they_were_typed_whatever_they_look_like(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train").write_text("".join(f"ein hund fährt über {k} brücken\n" for k in range(90)))
    sizes = "--hidden 4 --embedding 4 --epochs 1 --min-count 1 --no-parallel --no-calibrate"
    monkeypatch.setattr("sys.argv", ["bibs", "train", "--data", "train", "--output", "model[b]", *sizes.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert "written to model[b]\n" in capsys.readouterr().out
    card = Path("model[b]", "model-card.md").read_text()
    assert "bibs train --data train --output" in card
    assert "English" not in card
    assert "picture" not in card.partition("## Validation")[0]
