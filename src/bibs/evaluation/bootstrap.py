"""The paired bootstrap (Koehn 2004): how far a metric, and a difference of two, depends on the sentences drawn.

A metric is a function of sums of per-sentence statistics. A resample draws n of the n sentences with replacement, the
same ones for every method, so it costs one matrix product, not a new scoring. The 95 % interval is the middle of the
resampled values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

NUM_RESAMPLES = 2_000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Measure:
    """One metric of one set of completions."""

    statistics: Floats  # (n, k)
    of_sums: Callable[[Floats], Floats]  # (..., k) -> (...)

    @property
    def value(self) -> float:
        return float(self.of_sums(self.statistics.sum(0)))

    def interval(self, weights: Floats) -> list[float]:  # (R, n)
        """The two ends of the middle of the resampled values."""
        ends = np.quantile(self.resampled(weights), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        return [float(end) for end in ends]

    def resampled(self, weights: Floats) -> Floats:  # (R, n) -> (R,)
        """The value of each resample; `weights` says how often it holds each sentence."""
        return self.of_sums(weights @ self.statistics)

    def __sub__(self, other: Measure) -> Measure:
        """How far this one is above another of the same sentences: a measure like any other."""
        if len(self.statistics) != len(other.statistics):
            raise ValueError(
                f"`other` must measure the same {len(self.statistics)} sentences, but measures {len(other.statistics)}"
            )
        own = self.statistics.shape[1]
        both = np.concatenate([self.statistics, other.statistics], axis=1)  # (n, k + k')
        return Measure(both, lambda sums: self.of_sums(sums[..., :own]) - other.of_sums(sums[..., own:]))


def mean_measure(values: Sequence[float] | Floats) -> Measure:
    return ratio_measure(values, np.ones(len(values)))


def ratio_measure(parts: Sequence[float] | Floats, wholes: Sequence[float] | Floats) -> Measure:
    """Sum of the parts over sum of the wholes."""
    statistics = np.stack([np.asarray(parts, dtype=np.float64), np.asarray(wholes, dtype=np.float64)], axis=1)
    return Measure(statistics, lambda sums: sums[..., 0] / sums[..., 1])


def draw_resamples(num_sentences: int, *, num_resamples: int = NUM_RESAMPLES, seed: int = 0) -> Floats:
    """How often each resample holds each sentence (R, n)."""
    generator = np.random.default_rng(seed)
    equal = np.full(num_sentences, 1 / num_sentences)
    return generator.multinomial(num_sentences, equal, size=num_resamples).astype(np.float64)


def estimate_each(measures: Mapping[str, Measure], weights: Floats, names: Iterable[str] = ()) -> dict[str, Any]:
    """Name -> value and name_ci -> 95 % interval, as a row of results holds them; None for what was not measured."""
    row: dict[str, Any] = {}
    for name in names or measures:
        found = measures.get(name)
        row |= {name: found and found.value, f"{name}_ci": found and found.interval(weights)}
    return row
