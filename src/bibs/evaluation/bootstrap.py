"""The paired bootstrap (Koehn 2004): how far a metric, and a difference of two, depends on the sentences drawn.

A resample draws n of the n sentences with replacement, the same ones for every method. The 95 % interval is the
middle of the resampled values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bibs.evaluation.metrics import Measure

Floats = NDArray[np.float64]

NUM_RESAMPLES = 2_000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    value: float
    interval: tuple[float, float]


def draw_resamples(num_sentences: int, *, num_resamples: int = NUM_RESAMPLES, seed: int = 0) -> Floats:
    """How often each resample holds each sentence (R, n)."""
    generator = np.random.default_rng(seed)
    equal = np.full(num_sentences, 1 / num_sentences)
    return generator.multinomial(num_sentences, equal, size=num_resamples).astype(np.float64)


def estimate(measure: Measure, weights: Floats) -> Estimate:
    return Estimate(measure.value, _middle(measure.resampled(weights)))


def estimate_difference(measure: Measure, other: Measure, weights: Floats) -> Estimate:
    """Of `measure` over `other`, on the same sentences."""
    if len(measure.statistics) != len(other.statistics):
        raise ValueError(
            f"`other` must measure the same {len(measure.statistics)} sentences, but measures {len(other.statistics)}"
        )
    differences = measure.resampled(weights) - other.resampled(weights)
    return Estimate(measure.value - other.value, _middle(differences))


def estimate_each(measures: Mapping[str, Measure], names: Iterable[str], weights: Floats) -> dict[str, Any]:
    """Name -> value and name_ci -> 95 % interval, as a row of results holds them; None for what was not measured."""
    row: dict[str, Any] = {}
    for name in names:
        found = estimate(measures[name], weights) if name in measures else None
        row |= {name: found and found.value, f"{name}_ci": found and list(found.interval)}
    return row


def _middle(values: Floats) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
