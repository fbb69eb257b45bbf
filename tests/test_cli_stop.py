"""Ctrl-C ends every command with one line that says how to go on."""

from __future__ import annotations

import pytest

from bibs.cli import main
from bibs.cli.train import _plain_lines
from bibs.training import Report
from tiny_captions import make_home


def stop(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("command", "work", "line"),
    [
        ("eval captions", "bibs.evaluation.captions.evaluate_captions", "the same command goes on from here"),
        ("eval convergence", "bibs.evaluation.convergence.evaluate_convergence", "the same command goes on from here"),
        ("eval diversity", "bibs.evaluation.diversity.evaluate_diversity", "the same command goes on from here"),
        ("eval madlibs", "bibs.evaluation.madlibs.evaluate_madlibs", "the same command goes on from here"),
    ],
)
def test_a_command_that_is_stopped_says_how_to_go_on(tmp_path, monkeypatch, capsys, command, work, line):
    make_home(tmp_path)
    monkeypatch.setattr(work, stop)
    arguments = ["--data", tmp_path / "data.json", "--output", tmp_path / "out"]
    monkeypatch.setattr("sys.argv", ["bibs", *command.split(), *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 130
    assert capsys.readouterr().err == f"stopped; {line} ({tmp_path / 'out'})\n"


@pytest.mark.parametrize(
    ("command", "work", "line"),
    [
        ("train", "bibs.training.train", "stopped; there was no checkpoint yet: the same command begins anew"),
        ("train --missing 0.5", "bibs.training.train_nade", "stopped; there was no checkpoint yet: the same command"),
        (
            "calibrate",
            "bibs.evaluation.calibration.calibrate",
            "stopped; nothing was written, and the same command begins anew",
        ),
        (
            "eval nll",
            "bibs.evaluation.nll.evaluate_likelihood",
            "stopped; nothing was written, and the same command begins anew",
        ),
    ],
)
def test_a_command_that_kept_nothing_says_no_more(tmp_path, monkeypatch, capsys, command, work, line):
    make_home(tmp_path)
    monkeypatch.setattr(work, stop)
    arguments = ["--data", tmp_path / "data.json", *([] if "nll" in command else ["--output", tmp_path / "out"])]
    monkeypatch.setattr("sys.argv", ["bibs", *command.split(), *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 130
    said = capsys.readouterr().err
    assert said.startswith(line)
    assert said.count("\n") == 1


def test_the_first_line_of_progress_says_no_time_that_it_cannot_know(capsys):
    show = _plain_lines(epochs=2)
    show(Report("forward", 5, 10, 1.0, 100.0))
    show(Report("forward", 8, 10, 1.0, 100.0, val_losses=(1.0,)))
    first, second = capsys.readouterr().err.splitlines()
    assert "min left" not in first
    assert second.endswith("min left")
