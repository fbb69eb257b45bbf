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
        ("train", "bibs.training.train", "the same command with --resume goes on from here"),
        ("train --missing 0.5", "bibs.training.train_nade", "the same command with --resume goes on from here"),
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
    ("command", "work"),
    [
        ("eval nll", "bibs.evaluation.nll.evaluate_likelihood"),
        ("calibrate --output weights.json", "bibs.evaluation.calibration.calibrate"),
    ],
)
def test_a_command_that_keeps_nothing_says_so(tmp_path, monkeypatch, capsys, command, work):
    make_home(tmp_path)
    monkeypatch.setattr(work, stop)
    monkeypatch.setattr("sys.argv", ["bibs", *command.split(), "--data", str(tmp_path / "data.json")])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 130
    assert capsys.readouterr().err == "stopped; nothing was written, and the same command begins anew\n"


def test_the_first_line_of_progress_says_no_time_that_it_cannot_know(capsys):
    show = _plain_lines(epochs=2)
    show(Report("forward", 5, 10, 1.0, 100.0))
    show(Report("forward", 8, 10, 1.0, 100.0, val_losses=(1.0,)))
    first, second = capsys.readouterr().err.splitlines()
    assert "min left" not in first
    assert second.endswith("min left")
