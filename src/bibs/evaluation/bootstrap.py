"""The paired bootstrap (Koehn 2004): how far a metric, and a difference of two, depends on the sentences drawn.

A resample draws n of the n sentences with replacement, the same ones for every method. The 95 % interval is the
middle of the resampled values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bibs.evaluation.meteor import Floats
from bibs.evaluation.metrics import Measure

NUM_RESAMPLES = 2_000
CONFIDENCE = 0.95


def draw_resamples(num_sentences: int, *, num_resamples: int = NUM_RESAMPLES, seed: int = 0) -> Floats:
    """How often each resample holds each sentence (R, n)."""
    generator = np.random.default_rng(seed)
    equal = np.full(num_sentences, 1 / num_sentences)
    return generator.multinomial(num_sentences, equal, size=num_resamples).astype(np.float64)


def estimate_each(measures: Mapping[str, Measure], names: Iterable[str], weights: Floats) -> dict[str, Any]:
    """Name -> value and name_ci -> 95 % interval, as a row of results holds them; None for what was not measured."""
    row: dict[str, Any] = {}
    for name in names:
        found = measures.get(name)
        row |= {name: found and found.value, f"{name}_ci": found and interval(found, weights)}
    return row


def interval(measure: Measure, weights: Floats) -> list[float]:
    """The two ends of the middle of the resampled values."""
    ends = np.quantile(measure.resampled(weights), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return [float(end) for end in ends]
