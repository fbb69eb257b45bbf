"""Mean and spread of the training pictures' vectors: what a model takes away from a vector before it reads it.

    m = mean over the pictures,   s = SPREAD / sqrt(mean over pictures and numbers of (v - m)^2)

One scale for all numbers: the network keeps the proportions that the encoder gave them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bibs.data import Features

SPREAD = 0.383
"""The spread of EfficientNet-Lite0's vectors of COCO, for which the learning rate was chosen."""

_CHUNK = 4096
"""Vectors held in float64 at once."""


@dataclass(frozen=True)
class Normalisation:
    """`(vector - mean) * scale` has mean 0 and spread `SPREAD` over the training pictures."""

    mean: NDArray[np.float32]  # (D,)
    scale: float

    def fingerprint(self) -> str:
        return hashlib.sha256(self.mean.tobytes() + np.float64(self.scale).tobytes()).hexdigest()[:16]


def count_normalisation(features: Features, image_ids: Sequence[int | str]) -> Normalisation:
    """Over the pictures `image_ids`, each counted once. Where no two differ, there is nothing to scale."""
    ids = list(dict.fromkeys(image_ids))
    parts = [ids[first : first + _CHUNK] for first in range(0, len(ids), _CHUNK)]
    sums = sum((features.rows(part).sum(0, dtype=np.float64) for part in parts), np.zeros(features.size))
    mean = (sums / max(1, len(ids))).astype(np.float32)  # (D,)
    squares = sum(float(np.square(features.rows(part).astype(np.float64) - mean).sum()) for part in parts)
    return Normalisation(mean, SPREAD / float(np.sqrt(squares / (len(ids) * features.size))) if squares else 1.0)
