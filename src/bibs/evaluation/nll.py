"""Mean negative log probability of captions, in nats a token: the loss a captioner was trained for.

Every token after a caption's first is counted: END for the model that reads left to right, START for the other.
Words outside the vocabulary count as `<unk>`; how many there are is told beside, for they are easy to predict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from bibs.data import VAL_SHARE, Features, hold_out, read_captions
from bibs.evaluation.tasks import images_of
from bibs.models.directory import load_models
from bibs.search import StepModel

BATCH = 128

Caption = tuple[int | str, list[int]]
"""The id of its picture, and its tokens."""


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
    forward, backward, vocabulary = load_models(directory)
    images = images_of(hold_out(read_captions(data), VAL_SHARE), split, data)
    found = [(image.image_id, words) for image in images for words in image.captions]
    if not found:
        raise ValueError(f"{data} has no caption in its split {split!r}")
    if limit is not None and limit < 1:
        raise ValueError(f"`limit` must be at least 1, but is {limit}")
    captions = [
        (image_id, [vocabulary.start, *vocabulary.encode(words), vocabulary.end]) for image_id, words in found[:limit]
    ]
    image_ids = [image_id for image_id, _ in captions]
    if features is not None:
        _check_features(features, forward, image_ids, allow_missing_features)
    turned = [(image_id, tokens[::-1]) for image_id, tokens in captions]

    def loss(model: StepModel, captions: Sequence[Caption]) -> DirectionLoss:
        shown = None if features is None else mean_loss(model, captions, features, advance=advance)
        return DirectionLoss(shown, mean_loss(model, captions, advance=advance))

    num_tokens = sum(len(tokens) - 1 for _, tokens in captions)
    return Likelihood(
        forward=loss(forward, captions),
        backward=loss(backward, turned),
        split=split,
        captions=len(captions),
        captions_with_pictures=0 if features is None else sum(image_id in features for image_id in image_ids),
        tokens=num_tokens,
        unknown_share=sum(tokens.count(vocabulary.unk) for _, tokens in captions) / num_tokens,
    )


@torch.inference_mode()
def mean_loss(
    model: StepModel,
    captions: Sequence[Caption],
    features: Features | None = None,
    *,
    advance: Callable[[int], None] = lambda captions: None,
) -> float:
    """The mean over all tokens but the first of each caption, which is in the model's reading order."""
    ordered = sorted(captions, key=lambda caption: len(caption[1]))
    total = 0.0
    for first in range(0, len(ordered), BATCH):
        image_ids, sequences = zip(*ordered[first : first + BATCH], strict=True)
        pictures = None
        if features is not None:
            pictures = [features[each] if each in features else None for each in image_ids]  # noqa: SIM401 (no `get`)
        total -= model.start(sequences, pictures)[2].double().sum().item()
        advance(len(sequences))
    return total / sum(len(tokens) - 1 for _, tokens in captions)


def _check_features(features: Features, model: StepModel, image_ids: Sequence[int | str], allow_missing: bool) -> None:
    size = getattr(getattr(model, "config", None), "condition_size", 0)
    if not size:
        raise ValueError("`features` must be left out for a model that was trained without pictures, but were given")
    if features.size != size:
        raise ValueError(f"`features` must be vectors of {size} numbers for this model, but have {features.size}")
    if not allow_missing:
        remedy = " (score their captions without a picture with --allow-missing-features)"
        features.require(image_ids, remedy=remedy)
