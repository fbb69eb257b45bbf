"""Fitting the length prior: a conditional logit over the lengths of a blank.

    P(length | sentence) proportional to exp( scale * score + a * words + b * log P(words in the sentence) )

fitted by maximum likelihood of the true lengths, for each kind of score. Rankings do not depend on the scale, so what
is kept is `word` = a / scale and `sentence` = b / scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bibs.lengths import SCORE_KINDS, LengthPrior, LengthWeights, ScoreKind

Floats = NDArray[np.float64]

LEAST_SCALE = 0.01
"""A score that says less than this about lengths (or the contrary) is taken to say this much."""

RIDGE = 1e-3
"""Keeps the fit finite where the data cannot tell two weights apart."""


@dataclass(frozen=True)
class Observation:
    """One blank whose length is known: what each kind of score says of the lengths that it might have."""

    removed: int  # per cent of the words
    given: int
    true: int
    lengths: tuple[int, ...]
    scores: Mapping[ScoreKind, tuple[float, ...]]

    def ranking(self, kind: ScoreKind, prior: LengthPrior) -> dict[int, float]:
        return {
            length: score + prior.bonus(kind, words=length, given=self.given)
            for length, score in zip(self.lengths, self.scores[kind], strict=True)
        }

    def chosen(self, kind: ScoreKind, prior: LengthPrior, num_lengths: int) -> int:
        """The length that a search would choose: the best by `kind` of those at which the beams join best."""
        join, ranking = self.ranking("join", prior), self.ranking(kind, prior)
        tried = sorted(self.lengths, key=lambda length: -join[length])[:num_lengths]
        return max(tried, key=lambda length: ranking[length])


def fit_prior(
    observations: Sequence[Observation], prior: LengthPrior, kinds: Sequence[ScoreKind] = SCORE_KINDS
) -> LengthPrior:
    """The prior with the weights of these kinds fitted. Blanks whose true length was not looked at say nothing."""
    seen = [each for each in observations if each.true in each.lengths]
    if not seen:
        raise ValueError("the calibration must see the true length of at least one blank, but sees none")
    for kind in kinds:
        prior = replace(prior, **{kind: _fit(seen, kind, prior)})  # type: ignore[arg-type]
    return prior


def _fit(observations: Sequence[Observation], kind: ScoreKind, prior: LengthPrior) -> LengthWeights:
    width = max(len(each.lengths) for each in observations)
    features = np.zeros((len(observations), width, 3))  # score, words, log P of the sentence's length
    present = np.zeros((len(observations), width), dtype=bool)
    true = np.zeros(len(observations), dtype=int)
    for row, each in enumerate(observations):
        count = len(each.lengths)
        present[row, :count] = np.isfinite(each.scores[kind])
        features[row, :count, 0] = np.where(present[row, :count], each.scores[kind], 0.0)
        features[row, :count, 1] = each.lengths
        features[row, :count, 2] = [prior.log_share(each.given + length) for length in each.lengths]
        true[row] = each.lengths.index(each.true)
    possible = present[np.arange(len(true)), true]
    features, present, true = features[possible], present[possible], true[possible]
    scale, a, b = _newton(features, present, true, np.zeros(3), free=np.array([True, True, True]))
    if scale < LEAST_SCALE:
        begin = np.array([LEAST_SCALE, a, b])
        scale, a, b = _newton(features, present, true, begin, free=np.array([False, True, True]))
    return LengthWeights(word=float(a / scale), sentence=float(b / scale))


def _newton(
    features: Floats, present: NDArray[np.bool_], true: NDArray[np.int_], begin: Floats, free: NDArray[np.bool_]
) -> Floats:
    """Maximise the mean log probability of the true places. It is concave, so halved Newton steps find the maximum."""
    features = features - features[np.arange(len(true)), true][:, None]  # (n, K, 3): 0 at the true place
    weights = begin.copy()

    def value(weights: Floats) -> float:
        logits = np.where(present, features @ weights, -np.inf)
        largest = logits.max(1)
        return float(-(largest + np.log(np.exp(logits - largest[:, None]).sum(1))).mean() - RIDGE * weights @ weights)

    for _ in range(100):
        logits = np.where(present, features @ weights, -np.inf)
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)  # (n, K)
        mean = np.einsum("nk,nkf->nf", shares, features)
        gradient = -mean.mean(0) - 2 * RIDGE * weights
        second = np.einsum("nk,nkf,nkg->fg", shares, features, features) / len(true) - mean.T @ mean / len(true)
        second += 2 * RIDGE * np.eye(len(weights))
        step = np.zeros_like(weights)
        step[free] = np.linalg.solve(second[np.ix_(free, free)], gradient[free])
        size = 1.0
        while size > 1e-8 and value(weights + size * step) < value(weights):
            size /= 2
        weights = weights + size * step
        if np.abs(size * step).max() < 1e-9:
            break
    return weights
