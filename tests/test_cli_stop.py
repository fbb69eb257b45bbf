"""Ctrl-C ends every command with one line that says how to go on."""

from __future__ import annotations

import subprocess
import sys

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


INTERRUPTED_WHILE_STARTING = """
import multiprocessing, os, signal
from bibs.training import held_back_interrupts

def child():
    os.kill(os.getpid(), signal.SIGINT)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever this process was started by
    try:
        with held_back_interrupts():
            worker = multiprocessing.get_context("spawn").Process(target=child)
            worker.start()
            os.kill(os.getpid(), signal.SIGINT)
            worker.join()
            print(worker.exitcode)
    except KeyboardInterrupt:
        print("heard")
"""


@pytest.mark.slow
def test_ctrl_c_while_workers_are_started_is_late_but_not_lost_and_they_never_hear_it(tmp_path):
    (tmp_path / "start.py").write_text(INTERRUPTED_WHILE_STARTING)
    done = subprocess.run([sys.executable, tmp_path / "start.py"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\nheard\n", "")


def test_ctrl_c_before_there_is_anything_to_keep_says_that_it_was_heard(monkeypatch, capsys):
    monkeypatch.setattr("bibs.cli.app", stop)
    with pytest.raises(SystemExit) as caught:
        main()
    assert (caught.value.code, capsys.readouterr().err) == (130, "stopped\n")
