"""Mean and spread of the training pictures' vectors: what a model takes away from a vector before it reads it.

    m = mean over the pictures,   s = SPREAD / sqrt(mean over pictures and numbers of (v - m)^2)

One scale for all numbers: the network keeps the proportions that the encoder gave them. The principal axes of the same
pictures are kept beside, to tell vectors of another encoder (`bibs.models.kind`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bibs.data import Features
from bibs.models import kind
from bibs.models.nade import NADE
from bibs.models.recurrent import RecurrentModel

SPREAD = 0.383
"""The spread of EfficientNet-Lite0's vectors of COCO, for which the learning rate was chosen."""

AXES = 0.1
"""So many axes are kept, as a share of the vector's length."""

LEAST_SIZE = 500
"""Shorter vectors have too few axes to be told apart by."""

_CHUNK = 4096
"""Vectors held in float64 at once."""


@dataclass(frozen=True)
class Normalisation:
    """`(vector - mean) * scale` has mean 0 and spread `SPREAD` over the training pictures."""

    mean: NDArray[np.float32]  # (D,)
    scale: float
    axes: NDArray[np.float32] | None = None  # (2+K, D); None where they would not tell encoders apart

    @property
    def num_axes(self) -> int:
        return 0 if self.axes is None else len(self.axes)

    def apply(self, model: RecurrentModel | NADE) -> None:
        axes = None if self.axes is None else torch.from_numpy(self.axes)
        model.normalise(torch.from_numpy(self.mean), self.scale, axes)

    def fingerprint(self) -> str:
        return hashlib.sha256(self.mean.tobytes() + np.float64(self.scale).tobytes()).hexdigest()[:16]


def count_normalisation(features: Features, image_ids: Sequence[int | str]) -> Normalisation:
    """Over the pictures `image_ids`, each counted once. Where no two differ, there is nothing to scale."""
    ids = list(dict.fromkeys(image_ids))
    parts = [ids[first : first + _CHUNK] for first in range(0, len(ids), _CHUNK)]
    sums = sum((features.rows(part).sum(0, dtype=np.float64) for part in parts), np.zeros(features.size))
    mean = (sums / max(1, len(ids))).astype(np.float32)  # (D,)
    squares = sum(float(np.square(features.rows(part).astype(np.float64) - mean).sum()) for part in parts)
    if not squares:
        return Normalisation(mean, 1.0)
    return Normalisation(
        mean, SPREAD / float(np.sqrt(squares / (len(ids) * features.size))), _axes(features, ids, mean)
    )


def _axes(features: Features, ids: Sequence[int | str], mean: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """The axes of every second picture; none, unless by them all other vectors are of the same kind."""
    fitted = ids[::2]
    known = set(fitted)
    others = [image_id for image_id in features if image_id not in known]
    if features.size < LEAST_SIZE or len(fitted) < features.size:
        return None
    products = np.zeros((features.size, features.size))
    for first in range(0, len(fitted), _CHUNK):
        centred = features.rows(fitted[first : first + _CHUNK]) - mean
        products += centred.T @ centred
    shared = np.linalg.qr(np.stack([mean, np.ones_like(mean)], axis=1).astype(np.float64))[0].T  # (2, D)
    rest = np.eye(features.size) - shared.T @ shared
    _, vectors = np.linalg.eigh(rest @ products @ rest)  # columns, the longest axis last
    axes = np.concatenate([shared, vectors[:, : -int(AXES * features.size) - 1 : -1].T]).astype(np.float32)
    judge = torch.from_numpy(axes)
    least = min(
        float(kind.shares(judge, torch.from_numpy(features.rows(others[first : first + _CHUNK])))[0].min())
        for first in range(0, len(others), _CHUNK)
    )
    return axes if least > kind.least_share(judge) else None
