"""Maximum likelihood over whole captions, in one direction: one plain loop that may be killed at any moment.

The weights after step k are a function of the settings, the data and k alone: which captions are in the batch, which
pictures are withheld and which units are dropped are all drawn from the seed and k. So a run that is killed and
resumed from any checkpoint ends with the same weights, to the last bit, as one that was left alone.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import nn

from bibs.data import Features
from bibs.models.nade import NADE
from bibs.models.recurrent import RecurrentConfig, RecurrentModel
from bibs.models.storage import load_weights, save_tensors
from bibs.training import team
from bibs.training.batches import epoch_batches, evaluation_batches, make_batch, steps_per_epoch
from bibs.training.checkpoint import Progress, load_checkpoint, load_progress, save_checkpoint
from bibs.training.corpus import Captions
from bibs.training.dropped import dropped_weights
from bibs.training.normalisation import Normalisation
from bibs.training.settings import TrainingSettings
from bibs.training.tied import TiedModel

DIRECTIONS = ("forward", "backward")

Trainable: TypeAlias = RecurrentModel | NADE


@dataclass(frozen=True)
class Report:
    """What a run says of itself from time to time. `loss` is per token, over the steps since the last report."""

    direction: str
    step: int
    total_steps: int
    loss: float
    tokens_per_second: float
    val_losses: tuple[float, ...] = ()


@dataclass(frozen=True)
class Run:
    """One network's share of a training command: a direction of a pair, or a NADE."""

    direction: str
    settings: TrainingSettings
    config: RecurrentConfig
    train: Captions
    val: Captions
    folder: Path
    name: str  # fingerprints of settings, vocabulary and captions: a checkpoint of another name is refused
    missing: float | None = None  # the share of missing words, for a NADE instead of one direction
    initial: Path | None = None  # weights to begin with, instead of random ones
    normalisation: Normalisation | None = None  # of pictures that are learnt anew; other weights bring their own
    checkpoint_seconds: float = 120.0
    report_seconds: float = 5.0

    @property
    def checkpoint(self) -> Path:
        return self.folder / f"checkpoint-{self.direction}.safetensors"

    @property
    def best(self) -> Path:
        return self.folder / f"best-{self.direction}.safetensors"

    @property
    def reverse(self) -> bool:
        return self.direction == "backward"

    @property
    def batch_size(self) -> int:
        assert self.settings.batch_size is not None  # the settings are fitted to the captions
        return self.settings.batch_size

    @property
    def steps_per_epoch(self) -> int:
        return steps_per_epoch(self.train, self.batch_size)

    @property
    def total_steps(self) -> int:
        return self.steps_per_epoch * self.settings.epochs

    def new_model(self) -> Trainable:
        if self.initial is not None and self.normalisation is None:
            if self.missing is None:
                return RecurrentModel.load(self.initial, self.config)
            return NADE.load(self.initial, self.config, missing=self.missing)
        if self.missing is not None:
            model: Trainable = NADE(self.config, missing=self.missing)
        else:
            model = TiedModel(self.config) if self.settings.tied else RecurrentModel(self.config)
        if self.initial is not None:
            words = {name: weight for name, weight in load_weights(self.initial).items() if not _reads_pictures(name)}
            model.load_state_dict({**model.state_dict(), **words})
        if self.normalisation is not None:
            self.normalisation.apply(model)
        return model


def _reads_pictures(name: str) -> bool:
    """Whether a tensor of this name belongs to what reads a picture."""
    return name.startswith("condition")


def train_direction(
    run: Run,
    features: Features | None,
    report: Callable[[Report], None] = lambda report: None,
    *,
    until: int | None = None,
) -> Progress:
    """Train to the end, or `until` so many epochs are done, from the checkpoint where there is one.

    The best weights are left in `run.best`.
    """
    torch.manual_seed(run.settings.seed)
    model = run.new_model()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=run.settings.learning_rate, weight_decay=run.settings.weight_decay, fused=True
    )
    average = copy.deepcopy(model) if run.settings.ema_decay else None
    progress = Progress(run=run.name, epochs=run.settings.epochs)
    if run.checkpoint.exists():
        _check_same_run(load_progress(run.checkpoint).run, run)
        progress = load_checkpoint(run.checkpoint, model, optimizer, average).with_epochs(run.settings.epochs)
    meter = _Meter(run, progress, report)
    while not progress.finished and (until is None or len(progress.val_losses) < until):
        epoch, first = divmod(progress.step, run.steps_per_epoch)
        batches = epoch_batches(run.train, run.batch_size, seed=run.settings.seed, epoch=epoch)
        for rows in batches[first:]:
            total, count = _train_step(run, model, optimizer, progress.step, rows, features)
            if average is not None:
                _update_average(average, model, run.settings.ema_decay, progress.step)
            progress = replace(progress, step=progress.step + 1)
            meter.count(total, count, progress)
            if team.is_first() and meter.checkpoint_is_due() and progress.step % run.steps_per_epoch:
                save_checkpoint(run.checkpoint, model, optimizer, meter.timed(progress), average)
        progress = meter.timed(_end_epoch(run, average or model, progress, features))
        if team.is_first():
            save_checkpoint(run.checkpoint, model, optimizer, progress, average)
        team.wait()  # the others may read it next
        meter.say(progress)
    return progress


DECIDED_BY = {
    "settings": "its settings differ",
    "captions": "`data` or `texts` hold other captions",
    "vocabulary": "`data` or `texts` hold other words",
    "pictures": "`features` hold other pictures",
    "init": "`init` holds other weights",
    "missing": "`missing` differs",
    "processes": "the number of processes differs",
}
"""What a part of a run's name says where it differs from that of a checkpoint."""


def _check_same_run(name: str, run: Run) -> None:
    before, now = (dict(part.split(" ", 1) for part in each.split(", ")) for each in (name, run.name))
    differences = [difference for part, difference in DECIDED_BY.items() if before.get(part) != now.get(part)]
    if differences or name != run.name:
        raise ValueError(
            f"{run.checkpoint} belongs to another run: {differences[0] if differences else 'its name differs'}; train "
            "into another directory"
        )


def _train_step(
    run: Run,
    model: Trainable,
    optimizer: torch.optim.Optimizer,
    step: int,
    rows: np.ndarray[tuple[int], np.dtype[np.int64]],
    features: Features | None,
) -> tuple[float, int]:
    settings = run.settings
    draw = np.random.default_rng([settings.seed, step, 1])
    torch.manual_seed(int(draw.integers(2**62)) + team.rank())
    withheld = draw.random(len(rows)) < settings.picture_dropout
    share = slice(team.rank(), None, team.size())
    idle = team.rank() >= len(rows)  # reads a caption like the others, which counts for nothing
    share = slice(0, 1) if idle else share
    batch = make_batch(run.train, rows[share], reverse=run.reverse, features=features, withheld=withheld[share])
    for group in optimizer.param_groups:
        group["lr"] = settings.learning_rate_at(step, run.total_steps)
    model.train()
    optimizer.zero_grad()
    with dropped_weights(model, weight_dropout=settings.weight_dropout, word_dropout=settings.word_dropout):
        with torch.autocast("cpu", torch.bfloat16, enabled=settings.precision == "bfloat16"):
            loss, count = model.loss(batch.tokens, batch.lengths, batch.conditions)
        # Divided by the tokens of a usual batch, not of this one: every token of the corpus then weighs the same.
        (loss * (run.steps_per_epoch / run.train.scored_tokens)).backward()  # type: ignore[no-untyped-call]
    if idle:
        optimizer.zero_grad()
    team.add_gradients(model)
    nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
    optimizer.step()
    value, total = team.add_up(*((0.0, 0) if idle else (loss.item(), count)))
    if not np.isfinite(value):
        raise ValueError(f"the {run.direction} loss of step {step} is {value}; try a lower `learning_rate`")
    return value, int(total)


@torch.no_grad()
def _update_average(average: nn.Module, model: nn.Module, decay: float, step: int) -> None:
    """Early steps are forgotten sooner, for the first weights are random."""
    share = 1 - min(decay, (1 + step) / (10 + step))  # of the newest weights
    for mean, weight in zip(average.parameters(), model.parameters(), strict=True):
        mean.lerp_(weight, share)


def _end_epoch(run: Run, model: Trainable, progress: Progress, features: Features | None) -> Progress:
    """Validate; keep the weights if they are the best so far; decide whether to go on."""
    loss = mean_loss(model, run.val, reverse=run.reverse, features=features)
    losses = (*progress.val_losses, loss)
    progress = replace(progress, val_losses=losses)
    if team.is_first() and progress.best_epoch == len(losses) - 1:
        whole = model.untied() if isinstance(model, TiedModel) else model
        save_tensors(run.best, whole.state_dict(), {"run": run.name})
    stop = bool(run.settings.patience) and progress.stale_epochs >= run.settings.patience
    return replace(progress, finished=stop or progress.step >= run.total_steps)


@torch.no_grad()
def mean_loss(model: Trainable, captions: Captions, *, reverse: bool, features: Features | None) -> float:
    """The mean negative log probability of a token; without `features`, of captions without their pictures."""
    model.eval()
    totals, counts = 0.0, 0.0
    batches = evaluation_batches(captions, reverse=reverse, features=features)
    for batch in islice(batches, team.rank(), None, team.size()):
        total, count = model.loss(batch.tokens, batch.lengths, batch.conditions)
        totals, counts = totals + total.item(), counts + count
    totals, counts = team.add_up(totals, counts)
    return totals / counts


class _Meter:
    """Watches the clock, for reports and checkpoints; nothing that it does changes the weights."""

    def __init__(self, run: Run, progress: Progress, report: Callable[[Report], None]) -> None:
        self._run, self._report = run, report
        self._earlier = progress.seconds
        self._started = self._last_report = self._last_checkpoint = time.monotonic()
        self._loss, self._tokens = 0.0, 0

    def count(self, loss: float, tokens: int, progress: Progress) -> None:
        self._loss, self._tokens = self._loss + loss, self._tokens + tokens
        if time.monotonic() - self._last_report >= self._run.report_seconds:
            self.say(progress)

    def say(self, progress: Progress) -> None:
        now = time.monotonic()
        self._report(
            Report(
                direction=self._run.direction,
                step=progress.step,
                total_steps=self._run.total_steps,
                loss=self._loss / max(1, self._tokens),
                tokens_per_second=self._tokens / max(1e-9, now - self._last_report),
                val_losses=progress.val_losses,
            )
        )
        self._last_report, self._loss, self._tokens = now, 0.0, 0

    def checkpoint_is_due(self) -> bool:
        now = time.monotonic()
        if now - self._last_checkpoint < self._run.checkpoint_seconds:
            return False
        self._last_checkpoint = now
        return True

    def timed(self, progress: Progress) -> Progress:
        return replace(progress, seconds=self._earlier + time.monotonic() - self._started)
