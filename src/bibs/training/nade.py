"""From files of captions to a NADE: the same data and the same loop as a pair, with words missing from the input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bibs.models.directory import CONFIG, VOCABULARY
from bibs.models.nade import NADE
from bibs.models.recurrent import RecurrentConfig
from bibs.models.storage import load_json, save_json
from bibs.training.checkpoint import Progress
from bibs.training.loop import Report, train_direction
from bibs.training.settings import TrainingSettings
from bibs.training.train import Sources, make_run, prepare_output

WEIGHTS = "nade.safetensors"


def train_nade(
    sources: Sources,
    settings: TrainingSettings,
    output: Path,
    *,
    missing: float = 0.5,
    resume: bool = False,
    checkpoint_seconds: float = 120.0,
    report: Callable[[Report], None] = lambda report: None,
) -> Progress:
    """Train a NADE and write it to `output`: `config.json`, `vocabulary.txt`, `nade.safetensors`.

    Losses are nats a missing word, and not to be compared with those of a pair.
    """
    features = sources.features.load() if sources.features else None
    corpus = sources.read(features)
    prepare_output(output, resume)  # only now, so that bad data leaves nothing behind
    size = features.size if features else 0
    run = make_run("nade", corpus, settings, size, output, checkpoint_seconds)
    run = replace(run, missing=missing, name=f"{run.name}, missing {missing}")
    progress = train_direction(run, features, report)
    NADE.load(run.best, run.config, missing=missing).save(output / WEIGHTS)
    corpus.vocabulary.save(output / VOCABULARY)
    details: dict[str, Any] = {
        "format": 1,
        "nade": asdict(run.config),
        "missing": missing,
        "vocabulary": corpus.vocabulary.fingerprint(),
        "training": asdict(settings),
        "val_losses": progress.val_losses,
    }
    save_json(output / CONFIG, details)
    return progress


def load_nade(directory: Path | str) -> NADE:
    """The NADE that `train_nade` wrote, float32 and in eval mode."""
    directory = Path(directory)
    settings = load_json(directory / CONFIG)
    try:
        config, missing = RecurrentConfig(**settings["nade"]), float(settings["missing"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{directory / CONFIG} is not the configuration of a NADE ({error})") from error
    return NADE.load(directory / WEIGHTS, config, missing=missing)
