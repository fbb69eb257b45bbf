"""Which captions make up which batch: a pure function of seed and epoch, so that a position is all a resume needs.

Captions are shuffled, sorted by length and cut, so that a batch holds (nearly) one length and no work is padding;
the order of the batches is then shuffled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bibs.data import Features
from bibs.training.corpus import Captions


@dataclass(frozen=True)
class Batch:
    tokens: Tensor  # (N, T), in reading order
    lengths: Tensor | None  # (N,); None where all are T
    conditions: list[NDArray[np.float32] | None] | None  # one per caption; None for a model without pictures
    count: int  # tokens that are predicted


def steps_per_epoch(captions: Captions, batch_size: int) -> int:
    return -(-len(captions) // batch_size)


def epoch_batches(captions: Captions, batch_size: int, *, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """The rows of each batch of an epoch, in the order they are trained on."""
    draw = np.random.default_rng([seed, epoch])
    shuffled = draw.permutation(len(captions))
    by_length = shuffled[np.argsort(captions.lengths[shuffled], kind="stable")]
    batches = [by_length[first : first + batch_size] for first in range(0, len(captions), batch_size)]
    return [batches[place] for place in draw.permutation(len(batches))]


def in_order(captions: Captions, batch_size: int) -> list[NDArray[np.int64]]:
    """Batches for evaluation, without chance: shortest captions first."""
    rows = np.argsort(captions.lengths, kind="stable")
    return [rows[first : first + batch_size] for first in range(0, len(rows), batch_size)]


def make_batch(
    captions: Captions,
    rows: NDArray[np.int64],
    *,
    reverse: bool,
    features: Features | None,
    withheld: NDArray[np.bool_] | None = None,
) -> Batch:
    """The captions of `rows` as tensors; `withheld` (N,) says whose picture is not shown."""
    sentences = [captions.caption(int(row), reverse=reverse) for row in rows]
    lengths = [len(sentence) for sentence in sentences]
    longest = max(lengths)
    padded = torch.tensor([sentence + [0] * (longest - len(sentence)) for sentence in sentences])
    conditions: list[NDArray[np.float32] | None] | None = None
    if features is not None:
        ids = [captions.image_id(int(row)) for row in rows]
        hidden = np.zeros(len(rows), dtype=bool) if withheld is None else withheld
        conditions = [
            None if image_id is None or hide else features[image_id] for image_id, hide in zip(ids, hidden, strict=True)
        ]
    return Batch(
        tokens=padded,
        lengths=None if min(lengths) == longest else torch.tensor(lengths),
        conditions=conditions,
        count=sum(lengths) - len(lengths),
    )


def evaluation_batches(
    captions: Captions, *, reverse: bool, features: Features | None, batch_size: int = 128
) -> Iterator[Batch]:
    for rows in in_order(captions, batch_size):
        yield make_batch(captions, rows, reverse=reverse, features=features)
