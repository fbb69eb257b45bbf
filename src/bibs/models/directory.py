"""A pair of models on disk: a directory with `config.json`, `forward.safetensors` and `backward.safetensors`.

`vocabulary.txt` and `model-card.md` stand beside them; the words are no business of a model, so the caller reads
them and checks that their number is `vocab_size`. `lengths.json`, where there is one, says how fills of different
lengths compare under this pair; without it, a stated default does.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from bibs.lengths import SCORE_KINDS, UNFITTED, LengthPrior, LengthWeights
from bibs.models.recurrent import RecurrentConfig, RecurrentModel
from bibs.models.storage import load_json, save_json

CONFIG = "config.json"
VOCABULARY = "vocabulary.txt"
MODEL_CARD = "model-card.md"
LENGTHS = "lengths.json"
DIRECTIONS = ("forward", "backward")


def save_pair(
    directory: Path | str, forward: RecurrentModel, backward: RecurrentModel, *, details: dict[str, Any] | None = None
) -> None:
    """Write both models, float16 on disk; `details` (training settings and the like) go into `config.json`."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for name, model in zip(DIRECTIONS, (forward, backward), strict=True):
        model.save(directory / f"{name}.safetensors")
    # Last, so that a directory with a configuration is a whole one.
    configs = {"forward": asdict(forward.config), "backward": asdict(backward.config)}
    save_json(directory / CONFIG, {"format": 1, **configs, **(details or {})})


def load_pair(directory: Path | str) -> tuple[RecurrentModel, RecurrentModel]:
    """The forward and the backward model of a directory, float32 and in eval mode."""
    directory = Path(directory)
    if not directory.is_dir():
        raise ValueError(f"no model directory at {directory}")
    settings = load_json(directory / CONFIG)
    configs = [_config(settings, name, directory / CONFIG) for name in DIRECTIONS]
    sizes = [config.vocab_size for config in configs]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"{directory / CONFIG}: both models must have one `vocab_size`, but have {sizes[0]} and {sizes[1]}"
        )
    forward, backward = (
        RecurrentModel.load(directory / f"{name}.safetensors", config)
        for name, config in zip(DIRECTIONS, configs, strict=True)
    )
    return forward, backward


def _config(settings: dict[str, Any], name: str, path: Path) -> RecurrentConfig:
    values = settings.get(name)
    known = {field.name for field in fields(RecurrentConfig)}
    if not isinstance(values, dict) or not {"vocab_size"} <= set(values) <= known:
        raise ValueError(f"{path}: `{name}` must be the configuration of a recurrent model")
    try:
        return RecurrentConfig(**values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: `{name}`: {error}") from error


def save_length_prior(directory: Path | str, prior: LengthPrior, *, details: dict[str, Any] | None = None) -> None:
    """Write `lengths.json`; `details` (what it was fitted on) are for the reader."""
    save_json(Path(directory) / LENGTHS, {"format": 1, **asdict(prior), **(details or {})})


def load_length_prior(directory: Path | str) -> LengthPrior:
    """The length prior of a model directory, or the unfitted one."""
    path = Path(directory) / LENGTHS
    if not path.exists():
        return UNFITTED
    values = load_json(path)
    for kind in SCORE_KINDS:
        if not isinstance(values.get(kind), dict) or set(values[kind]) != {"word", "sentence"}:
            raise ValueError(f"{path}: `{kind}` must hold `word` and `sentence`, but is {values.get(kind)!r}")
    counts = values.get("sentence_counts")
    if not isinstance(counts, list):
        raise ValueError(f"{path}: `sentence_counts` must be a list, but is {counts!r}")
    try:
        weights = {kind: LengthWeights(**values[kind]) for kind in SCORE_KINDS}
        return LengthPrior(**weights, sentence_counts=tuple(counts))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
