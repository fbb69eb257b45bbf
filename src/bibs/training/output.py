"""The directory that a run writes: a whole model from the first epoch on, and the best one so far at any moment.

Each direction is a model by itself, so weights of different epochs make a pair. Every file is replaced whole. Whoever
loads the directory, while the run goes on or after it was stopped, gets the best weights so far of either direction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from bibs.models.directory import CONFIG
from bibs.models.storage import make_directory
from bibs.training.loop import Report
from bibs.training.record import CHECKPOINTS, Record, load_record

Losses: TypeAlias = Mapping[str, tuple[float, ...]]
"""By direction, a validation loss an epoch."""


def check_output(output: Path, record: Record, resume: bool) -> Record:
    """The record of the run that `output` is to hold, or what is wrong with that. Nothing is written."""
    if resume:
        before = load_record(output)
        return before.resumed_by(record) if before else record
    if (output / CONFIG).exists() or has_checkpoint(output):
        raise ValueError(f"{output} already holds a training run: continue it with --resume, or choose another output")
    return record


def prepare_output(output: Path, record: Record) -> None:
    folder = output / CHECKPOINTS
    make_directory(folder)
    for leftover in folder.glob(".*.partial"):  # of a run that was killed while it wrote
        leftover.unlink(missing_ok=True)
    record.save(output)


def has_checkpoint(output: Path) -> bool:
    return any((output / CHECKPOINTS).glob("*.safetensors"))


class BestKeeper:
    """Listens to the reports of a run, and has the model written whenever a direction has become better."""

    def __init__(self, output: Path, directions: Sequence[str], write: Callable[[Losses], None]) -> None:
        self._output, self._write = output, write
        self._losses: dict[str, tuple[float, ...]] = dict.fromkeys(directions, ())

    def hear(self, report: Report) -> None:
        losses = report.val_losses
        if losses == self._losses[report.direction]:
            return
        self._losses[report.direction] = losses
        is_better = losses[-1] == min(losses) or not (self._output / CONFIG).exists()
        if is_better and all(self._losses.values()):
            self._write(self._losses)
