"""From files of captions to a NADE: the same data and the same loop as a pair, with words missing from the input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from bibs.models.directory import CONFIG, FORMAT, VOCABULARY, load_pair, load_vocabulary
from bibs.models.nade import NADE, NADE_WEIGHTS, load_nade
from bibs.models.storage import save_json
from bibs.training.checkpoint import Progress
from bibs.training.loop import Report, train_direction
from bibs.training.normalisation import count_normalisation
from bibs.training.output import BestKeeper, Losses, check_output, prepare_output
from bibs.training.precision import check_precision
from bibs.training.record import Record
from bibs.training.settings import TrainingSettings
from bibs.training.sources import Sources
from bibs.training.train import Initial, fingerprint_file, make_run, with_pictures


def train_nade(
    sources: Sources,
    settings: TrainingSettings,
    output: Path,
    *,
    missing: float = 0.5,
    init: Path | None = None,
    resume: bool = False,
    checkpoint_seconds: float = 120.0,
    command: Sequence[str] = (),
    report: Callable[[Report], None] = lambda report: None,
) -> Progress:
    """Train a NADE and write it to `output`: `config.json`, `vocabulary.txt`, `nade.safetensors`.

    `init` is a directory to go on from, of a pair (`NADE.from_pair`) or of a NADE: its weights, words and shape are
    taken. Losses are nats a missing word, and not to be compared with those of a pair.
    """
    settings.check_untied("missing")
    check_precision(settings.precision)
    features = sources.features.load() if sources.features else None
    size = features.size if features else 0
    initial, weights = _initial(init, missing) if init is not None else (None, None)
    if initial is not None:
        settings, size = initial.apply(settings), initial.condition_size(features)
    record = check_output(output, Record.of(sources, settings, init=init, missing=missing, command=command), resume)
    corpus = sources.read(features, initial.vocabulary if initial else None)
    settings.check_cutoffs(len(corpus.vocabulary))
    settings = settings.fitted(num_captions=len(corpus.train), vocab_size=len(corpus.vocabulary))
    prepare_output(output, record)  # only now, so that bad data leaves nothing behind
    run = make_run("nade", corpus, settings, size, output, checkpoint_seconds)
    run = replace(run, missing=missing, name=f"{run.name}, missing {missing}")
    if weights is None and features is not None:
        run = with_pictures(run, features.encoder, count_normalisation(features, corpus.train.image_ids))
    if weights is not None:
        begin = run.folder / "initial-nade.safetensors"
        weights.save(begin, dtype=None)
        config = replace(run.config, encoder=weights.config.encoder, condition_axes=weights.config.condition_axes)
        run = replace(run, config=config, initial=begin, name=f"{run.name}, init {fingerprint_file(begin)}")

    def write(losses: Losses) -> None:
        model = NADE.load(run.best, run.config, missing=missing)
        model.save(output / NADE_WEIGHTS, dtype=getattr(torch, settings.storage))
        corpus.vocabulary.save(output / VOCABULARY)
        details: dict[str, Any] = {
            "format": FORMAT,
            "nade": asdict(run.config),
            "missing": missing,
            "vocabulary": corpus.vocabulary.fingerprint(),
            "training": asdict(settings),
            "val_losses": losses[run.direction],
        }
        save_json(output / CONFIG, details)

    keeper = BestKeeper(output, (run.direction,), write)

    def hear(each: Report) -> None:
        keeper.hear(each)
        report(each)

    progress = train_direction(run, features, hear)
    write({run.direction: progress.val_losses})
    return progress


def _initial(directory: Path, missing: float) -> tuple[Initial, NADE]:
    if not (directory / NADE_WEIGHTS).exists():
        initial = Initial.load(directory)
        return initial, NADE.from_pair(*load_pair(directory), missing=missing)
    model = load_nade(directory)
    return Initial(directory, load_vocabulary(directory, model.vocab_size), model.config), model
