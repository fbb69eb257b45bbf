"""Mean negative log probability of captions, in nats a token: the loss a captioner was trained for.

Every token after a caption's first is counted: END for the model that reads left to right, START for the other.
Words outside the vocabulary count as `<unk>`; how many there are is told beside, for they are easy to predict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bibs.data import Features, read_captions
from bibs.models.directory import load_pair, load_vocabulary
from bibs.models.recurrent import RecurrentModel
from bibs.text import Vocabulary

BATCH = 128


@dataclass(frozen=True)
class DirectionLoss:
    """Nats a token. `with_pictures` is None where no features were given or the model takes none."""

    with_pictures: float | None
    without_pictures: float


@dataclass(frozen=True)
class Likelihood:
    """The losses of both directions on the same captions."""

    forward: DirectionLoss
    backward: DirectionLoss
    split: str
    captions: int
    captions_with_pictures: int
    tokens: int
    unknown_share: float  # of the tokens


def evaluate_likelihood(
    directory: Path,
    data: Path,
    *,
    features: Features | None = None,
    split: str = "val",
    limit: int | None = None,
    allow_missing_features: bool = False,
    advance: Callable[[int], None] = lambda captions: None,
) -> Likelihood:
    """Score the captions of one split with the pair of models in `directory`; `limit` takes the first ones only."""
    forward, backward = load_pair(directory)
    vocabulary = load_vocabulary(directory, forward.vocab_size)
    captions, image_ids = _read(data, split, vocabulary, limit)
    if features is not None:
        _check_features(features, forward, image_ids, allow_missing_features)
    losses = []
    for model, reverse in ((forward, False), (backward, True)):
        sequences = [caption[::-1] for caption in captions] if reverse else captions
        shown = None if features is None else mean_loss(model, sequences, features, image_ids, advance=advance)
        losses.append(DirectionLoss(shown, mean_loss(model, sequences, advance=advance)))
    tokens = sum(len(caption) - 1 for caption in captions)
    return Likelihood(
        forward=losses[0],
        backward=losses[1],
        split=split,
        captions=len(captions),
        captions_with_pictures=0 if features is None else sum(image_id in features for image_id in image_ids),
        tokens=tokens,
        unknown_share=sum(caption.count(vocabulary.unk) for caption in captions) / tokens,
    )


@torch.no_grad()
def mean_loss(
    model: RecurrentModel,
    sequences: Sequence[Sequence[int]],
    features: Features | None = None,
    image_ids: Sequence[int | str] = (),
    *,
    advance: Callable[[int], None] = lambda captions: None,
) -> float:
    """The mean over all tokens but the first of each sequence, which is in the model's reading order."""
    model.eval()
    order = sorted(range(len(sequences)), key=lambda row: len(sequences[row]))
    totals, counts = 0.0, 0
    for first in range(0, len(order), BATCH):
        rows = order[first : first + BATCH]
        lengths = [len(sequences[row]) for row in rows]
        padded = torch.tensor([[*sequences[row], *[0] * (max(lengths) - len(sequences[row]))] for row in rows])
        conditions = None if features is None else [_vector(features, image_ids[row]) for row in rows]
        tokens = padded.to(model.embedding.weight.device)
        total, count = model.loss(tokens, torch.tensor(lengths), conditions)
        totals, counts = totals + total.item(), counts + count
        advance(len(rows))
    return totals / counts


def _vector(features: Features, image_id: int | str) -> NDArray[np.float32] | None:
    if image_id not in features:
        return None
    return features[image_id]


def _read(data: Path, split: str, vocabulary: Vocabulary, limit: int | None) -> tuple[list[list[int]], list[int | str]]:
    captions: list[list[int]] = []
    image_ids: list[int | str] = []
    for image in read_captions(data, split=split):
        for words in image.captions:
            captions.append([vocabulary.start, *vocabulary.encode(words), vocabulary.end])
            image_ids.append(image.image_id)
    if not captions:
        raise ValueError(f"{data} has no caption in its split {split!r}")
    if limit is not None and limit < 1:
        raise ValueError(f"`limit` must be at least 1, but is {limit}")
    return captions[:limit], image_ids[:limit]


def _check_features(
    features: Features, model: RecurrentModel, image_ids: Sequence[int | str], allow_missing: bool
) -> None:
    size = model.config.condition_size
    if not size:
        raise ValueError("features were given, but the model was trained without pictures")
    if features.size != size:
        raise ValueError(f"the model takes image vectors of {size} numbers, but the features have {features.size}")
    missing = features.missing(image_ids)
    if missing and not allow_missing:
        shown = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise ValueError(
            f"{len(missing)} of {len(set(image_ids))} pictures have no features: {shown} "
            "(score their captions without a picture with --allow-missing-features)"
        )
