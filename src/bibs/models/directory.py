"""A pair of models on disk: `config.json`, `vocabulary.txt`, `forward.safetensors` and `backward.safetensors`.

The configuration holds the fingerprint of the words: weights and words that were not written together are refused.
`lengths.json`, where there is one, says how fills of different lengths compare under this pair; without it, a stated
default does. `model-card.md` is for people.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch

from bibs.lengths import SCORE_KINDS, UNFITTED, LengthPrior, LengthWeights
from bibs.models.int8 import in_precision
from bibs.models.ngram import NGramModel
from bibs.models.recurrent import RecurrentConfig, RecurrentModel
from bibs.models.storage import load_json, make_directory, save_json
from bibs.search import StepModel
from bibs.text import Vocabulary

CONFIG = "config.json"
VOCABULARY = "vocabulary.txt"
MODEL_CARD = "model-card.md"
LENGTHS = "lengths.json"
DIRECTIONS = ("forward", "backward")
FORMAT = 1
NGRAM = "ngram"


def save_pair(
    directory: Path | str,
    forward: StepModel,
    backward: StepModel,
    vocabulary: Vocabulary,
    *,
    storage: str = "float16",
    details: dict[str, Any] | None = None,
) -> None:
    """Write two recurrent or two n-gram models; `details` (training settings and the like) go into `config.json`.

    The weights of recurrent models are rounded to float16, or to integers where `storage` is "int8".
    """
    if isinstance(forward, RecurrentModel) and isinstance(backward, RecurrentModel):
        kind: dict[str, Any] = {"forward": asdict(forward.config), "backward": asdict(backward.config)}
    elif isinstance(forward, NGramModel) and isinstance(backward, NGramModel):
        kind = {"kind": NGRAM}
    else:
        kinds = " and ".join(type(model).__name__ for model in (forward, backward))
        raise ValueError(f"a pair must be two recurrent or two n-gram models to be saved, but is {kinds}")
    directory = Path(directory)
    make_directory(directory)
    for name, model in zip(DIRECTIONS, (forward, backward), strict=True):
        path = directory / f"{name}.safetensors"
        if isinstance(model, RecurrentModel):
            model.save(path, dtype=getattr(torch, storage))
        else:
            model.save(path)
    vocabulary.save(directory / VOCABULARY)
    # Last, so that a directory with a configuration is a whole one.
    words = {"vocabulary": vocabulary.fingerprint()}
    save_json(directory / CONFIG, {"format": FORMAT, **kind, **words, **(details or {})})


def load_config(directory: Path) -> dict[str, Any]:
    if not directory.is_dir():
        raise ValueError(f"no model directory at {directory}")
    settings = load_json(directory / CONFIG)
    number = settings.get("format")
    if number != FORMAT:
        raise ValueError(f"{directory / CONFIG}: `format` must be {FORMAT}, but is {number!r}")
    return settings


def load_vocabulary(directory: Path, size: int | None = None) -> Vocabulary:
    """The words of a model (of `size` words); others than those it was written with are refused."""
    path = directory / VOCABULARY
    vocabulary = Vocabulary.load(path)
    if size not in (None, len(vocabulary)):
        raise ValueError(f"{path} must hold {size} words, as the models, but holds {len(vocabulary)}")
    written, found = load_config(directory).get("vocabulary"), vocabulary.fingerprint()
    if written not in (None, found):  # None: written before fingerprints were
        raise ValueError(
            f"{path} must hold the words that the models were trained on ({written}, says {directory / CONFIG}), but "
            f"holds others, or in another order ({found})"
        )
    return vocabulary


def load_models(directory: Path | str, *, precision: str = "float32") -> tuple[StepModel, StepModel, Vocabulary]:
    """The pair of a directory, of whatever kind it is, for a search of this precision; and its words."""
    directory = Path(directory)
    if load_config(directory).get("kind") == NGRAM:
        vocabulary = load_vocabulary(directory)
        first, second = (
            NGramModel.load(directory / f"{name}.safetensors", vocab_size=len(vocabulary)) for name in DIRECTIONS
        )
        return in_precision(first, precision), in_precision(second, precision), vocabulary
    forward, backward = load_pair(directory)
    vocabulary = load_vocabulary(directory, forward.vocab_size)
    return in_precision(forward, precision), in_precision(backward, precision), vocabulary


def load_pair(directory: Path | str) -> tuple[RecurrentModel, RecurrentModel]:
    """The forward and the backward model of a directory, float32 and in eval mode."""
    directory = Path(directory)
    settings = load_config(directory)
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
    except ValueError as error:
        raise ValueError(f"{path}: `{name}`: {error}") from error


def lengths_file(place: Path | str) -> Path:
    """A name that ends in .json is a file's own, any other that of a directory."""
    place = Path(place)
    return place if place.suffix == ".json" and not place.is_dir() else place / LENGTHS


def save_length_prior(place: Path | str, prior: LengthPrior, *, details: dict[str, Any] | None = None) -> None:
    """Write `lengths.json` into a directory, or a file of another name; `details` are for the reader."""
    save_json(lengths_file(place), {"format": FORMAT, **asdict(prior), **(details or {})})


def load_length_prior(directory: Path | str) -> LengthPrior:
    """The length prior of a model directory, or the unfitted one."""
    path = Path(directory) / LENGTHS
    if not path.exists():
        return UNFITTED
    values = load_json(path)
    if values.get("format", FORMAT) != FORMAT:
        raise ValueError(f"{path}: `format` must be {FORMAT}, but is {values['format']!r}")
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
