"""A training run is a model from its first epoch on, says what is true when it is stopped, and goes on when told so."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bibs import Infiller
from bibs.cli import main
from bibs.models.nade import load_nade
from bibs.training import Report, Sources, TrainingSettings, train, train_nade
from bibs.training import loop as training_loop
from bibs.training.checkpoint import Progress
from test_text_alone import write_lines

SETTINGS = TrainingSettings(hidden_size=6, embedding_size=6, epochs=3, batch_size=16, warmup_steps=2, patience=0)
DIRECTIONS = ("forward", "backward")


class Killed(BaseException):
    """Stands for a kill: nothing in the code may catch it."""


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    return Sources((write_lines(tmp_path / "notes.txt"),), min_count=1, val_share=0.2)


def kill_when(condition):
    def report(each: Report) -> None:
        if condition(each):
            raise Killed

    return report


# A model at any moment


def test_a_run_is_a_model_from_the_first_epoch_of_both_directions_on(sources: Sources, tmp_path: Path) -> None:
    output = tmp_path / "model"
    seen = []

    def look(report: Report) -> None:
        seen.append((len(report.val_losses), (output / "config.json").exists()))
        if (output / "config.json").exists():
            assert Infiller.from_pretrained(output)("a _")

    train(sources, SETTINGS, output, in_parallel=False, report=look)
    # Both directions take turns: one epoch of each, and there is a model.
    assert seen == [(1, False), (1, True), (2, True), (2, True), (3, True), (3, True)]


def test_after_a_kill_the_directory_holds_the_best_weights_so_far(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "model"
    losses = iter([3.0, 3.0, 2.0, 2.0, 2.5, 2.5])  # forward and backward by turns: the second epoch is the best
    monkeypatch.setattr(training_loop, "mean_loss", lambda *_, **__: next(losses))
    with pytest.raises(Killed):
        train(
            sources,
            SETTINGS,
            output,
            in_parallel=False,
            report=kill_when(lambda r: r.direction == "backward" and len(r.val_losses) == 3),
        )
    best = Infiller.from_pretrained(output)
    told = json.loads((output / "config.json").read_text())["val_losses"]
    assert told == {"forward": [3.0, 2.0], "backward": [3.0, 2.0]}
    twin = tmp_path / "twin"
    losses = iter([3.0, 3.0, 2.0, 2.0])
    with pytest.raises(Killed):
        train(
            sources,
            SETTINGS,
            twin,
            in_parallel=False,
            report=kill_when(lambda r: r.direction == "backward" and len(r.val_losses) == 2),
        )
    assert best("a _ _ the _") == Infiller.from_pretrained(twin)("a _ _ the _")
    assert best.length_prior.sentence_counts


def test_a_kill_in_the_middle_of_any_write_leaves_a_whole_model_or_none(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, kept = tmp_path / "model", tmp_path / "kept"
    replace_file = os.replace
    whole = []

    def look(source: Path, target: Path) -> None:
        """At what a kill would leave here, with the file that is half-way in its place."""
        shutil.copytree(output, kept)
        whole.append((kept / "config.json").exists())
        if whole[-1]:
            assert Infiller.from_pretrained(kept)("a _")
        shutil.rmtree(kept)
        replace_file(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", look)
        train(sources, replace(SETTINGS, epochs=2), output, in_parallel=False)
    assert len(whole) > 10
    assert whole == sorted(whole)  # once there is a model, there always is
    assert not whole[0]
    assert whole[-1]


def test_a_nade_is_a_model_from_its_first_epoch_on(sources: Sources, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        train_nade(sources, SETTINGS, tmp_path / "nade", report=kill_when(lambda report: report.val_losses))
    assert load_nade(tmp_path / "nade").vocab_size > 3


# Going on


@pytest.fixture
def call(monkeypatch, capsys):
    """Calls `bibs train` in this process: exit code, standard error."""

    def run(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["bibs", "train", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        return int(caught.value.code or 0), capsys.readouterr().err

    return run


@pytest.mark.slow
def test_ctrl_c_says_what_is_kept_and_what_to_type(sources: Sources, tmp_path: Path) -> None:
    output = tmp_path / "model"
    small = ["--hidden", 6, "--embedding", 6, "--min-count", 1, "--val-share", 0.2, "--patience", 0]
    options = ["--data", sources.data[0], "--output", output, "--epochs", 100_000, *small]
    process = subprocess.Popen(
        [sys.executable, "-m", "bibs", "train", *map(str, options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # Ctrl-C as a terminal has it, whatever this process was started by.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 200
    while not (output / "config.json").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers, too
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130
    lines = [line for line in err.decode().splitlines() if " step " not in line]
    assert lines == [
        f"stopped; {output} holds the best model so far; `bibs train --output {output} --resume` goes on from the last "
        "checkpoint"
    ]
    assert not out
    assert Infiller.from_pretrained(output)("a _")


def test_resuming_needs_no_options_and_names_one_that_differs(sources: Sources, tmp_path: Path, call) -> None:
    output = tmp_path / "model"
    options = replace(SETTINGS, hidden_size=5, seed=3, cutoffs=(5,), ema_decay=0.9)
    whole = train(sources, options, tmp_path / "whole", in_parallel=False, command=["bibs", "train", "as begun"])
    with pytest.raises(Killed):
        train(
            sources,
            options,
            output,
            in_parallel=False,
            report=kill_when(lambda report: report.val_losses),
            command=["bibs", "train", "as begun"],
        )
    for typed, line in (
        (["--seed", 4], "bibs: `--seed` must be 3, as when this run began, but is 4: leave it out, or train into "),
        (["--hidden", 6], "bibs: `--hidden` must be 5, as when this run began, but is 6: "),
        (["--learning-rate", 0.1], "bibs: `--learning-rate` must be 0.002, as when this run began, but is 0.1: "),
        (["--cutoffs", ""], "bibs: `--cutoffs` must be [5], as when this run began, but is []: "),
        (["--val-share", 0.3], "bibs: `--val-share` must be 0.2, as when this run began, but is 0.3: "),
        (["--epochs", 2], "bibs: `--epochs` must be at least 3, as when this run began, but is 2: "),
        (["--missing", 0.5], "bibs: `--missing` must be None, as when this run began, but is 0.5: "),
    ):
        code, err = call("--output", output, "--resume", "--no-calibrate", *typed)
        assert (code, err.count("\n")) == (2, 1)
        assert err.startswith(line)
    assert call("--output", output, "--resume", "--no-calibrate", "--no-parallel", "--seed", 3)[0] == 0
    for name in DIRECTIONS:
        weights = f"{name}.safetensors"
        assert (output / weights).read_bytes() == (tmp_path / "whole" / weights).read_bytes()
    assert json.loads((output / "config.json").read_text())["result"]["forward"]["val_losses"] == [
        *whole.forward.val_losses
    ]
    assert "train 'as begun'" in (output / "model-card.md").read_text()


def test_there_is_nothing_to_resume_where_no_run_is(tmp_path: Path, call) -> None:
    code, err = call("--output", tmp_path / "model", "--resume")
    assert (code, err.count("\n")) == (2, 1)
    assert f"`--data` must name the captions to train on, but is missing, and {tmp_path / 'model'} holds no run" in err


def test_a_damaged_record_is_one_line(sources: Sources, tmp_path: Path) -> None:
    train(sources, replace(SETTINGS, epochs=1), tmp_path / "model", in_parallel=False)
    path = tmp_path / "model" / "training" / "run.json"
    for content in ("{", "{}", "[]", '{"options": 3, "command": [], "earlier_epochs": []}'):
        path.write_text(content)
        with pytest.raises(ValueError, match=str(path)) as error:
            train(sources, SETTINGS, tmp_path / "model", resume=True, in_parallel=False)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("stopped_after", [1, 2])
def test_a_run_takes_more_epochs_whether_it_had_ended_or_not(
    sources: Sources, tmp_path: Path, stopped_after: int
) -> None:
    short, output = replace(SETTINGS, epochs=2), tmp_path / "model"
    with pytest.raises(Killed):
        train(
            sources,
            short,
            output,
            in_parallel=False,
            report=kill_when(lambda r: r.direction == "backward" and len(r.val_losses) == stopped_after),
        )
    result = train(sources, replace(short, epochs=4), output, resume=True, in_parallel=False)
    assert len(result.forward.val_losses) == len(result.backward.val_losses) == 4
    record = json.loads((output / "training" / "run.json").read_text())
    assert (record["options"]["epochs"], record["earlier_epochs"]) == (4, [2])
    assert "was given more epochs while it went on (before: 2)" in (output / "model-card.md").read_text()
    with pytest.raises(ValueError, match="`epochs` must be at least 4, as when this run began, but is 2"):
        train(sources, short, output, resume=True, in_parallel=False)


def test_more_epochs_after_a_kill_end_with_the_same_weights(sources: Sources, tmp_path: Path) -> None:
    longer = replace(SETTINGS, epochs=4)
    for name in ("whole", "killed"):
        train(sources, replace(SETTINGS, epochs=2), tmp_path / name, in_parallel=False)
    train(sources, longer, tmp_path / "whole", resume=True, in_parallel=False)
    for epochs in (3, 4):
        with pytest.raises(Killed):
            train(
                sources,
                longer,
                tmp_path / "killed",
                resume=True,
                in_parallel=False,
                report=kill_when(lambda report, epochs=epochs: len(report.val_losses) == epochs),
            )
    train(sources, longer, tmp_path / "killed", resume=True, in_parallel=False)
    for name in DIRECTIONS:
        weights = f"{name}.safetensors"
        assert (tmp_path / "whole" / weights).read_bytes() == (tmp_path / "killed" / weights).read_bytes()


def test_patience_counts_anew_where_a_run_is_given_more_epochs() -> None:
    ended = Progress("run", val_losses=(3.0, 2.0, 2.5, 2.6), finished=True, epochs=5)
    assert ended.stale_epochs == 2
    assert ended.with_epochs(5) == ended
    longer = ended.with_epochs(8)
    assert not longer.finished
    assert longer.stale_epochs == 0
    assert replace(longer, val_losses=(*longer.val_losses, 2.4)).stale_epochs == 1
    assert replace(longer, val_losses=(*longer.val_losses, 1.9)).stale_epochs == 0
    assert replace(longer, val_losses=(*longer.val_losses, 1.9, 2.0)).stale_epochs == 1


def test_ctrl_c_while_lengths_are_fitted_says_that_the_model_is_whole(
    sources: Sources, tmp_path: Path, call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bibs.evaluation.calibration.calibrate", stop)
    train(sources, replace(SETTINGS, epochs=1), tmp_path / "model", in_parallel=False)
    code, err = call("--output", tmp_path / "model", "--resume", "--no-parallel")
    assert code == 130
    assert err == "stopped; the model is whole, but how long `___` is was not fitted\n"
