"""Fitting the length prior: a conditional logit over the lengths of a blank.

    P(length | sentence) proportional to exp( scale * score + a * words + b * log P(words in the sentence) )

fitted by maximum likelihood of the true lengths, for each kind of score. Rankings do not depend on the scale, so what
is kept is `word` = a / scale and `sentence` = b / scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from bibs.lengths import SCORE_KINDS, LengthPrior, LengthWeights, ScoreKind

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

    def at_best(self, kind: ScoreKind, prior: LengthPrior, count: int) -> Observation:
        """At those lengths alone that are best by `kind`."""
        ranking = self.ranking(kind, prior)
        kept = sorted(self.lengths, key=lambda length: -ranking[length])[:count]
        places = [place for place, length in enumerate(self.lengths) if length in kept]
        scores = {name: tuple(values[place] for place in places) for name, values in self.scores.items()}
        return replace(self, lengths=tuple(self.lengths[place] for place in places), scores=scores)

    def chosen(self, kind: ScoreKind, prior: LengthPrior, num_lengths: int) -> int:
        """The length that a search would choose: the best by `kind` of those at which the beams join best."""
        ranking = self.at_best("join", prior, num_lengths).ranking(kind, prior)
        return max(ranking, key=lambda length: ranking[length])


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
    possible = [each for each in observations if math.isfinite(each.scores[kind][each.lengths.index(each.true)])]
    rows = [
        torch.tensor(
            [
                (score, length, prior.log_share(each.given + length))
                for length, score in zip(each.lengths, each.scores[kind], strict=True)
            ],
            dtype=torch.float64,
        )
        for each in possible
    ]
    features = pad_sequence(rows, batch_first=True, padding_value=-math.inf)  # (n, K, 3)
    present = features.isfinite().all(2)  # (n, K)
    features = features.masked_fill(~present[..., None], 0.0)
    true = torch.tensor([each.lengths.index(each.true) for each in possible])

    def likelihood(weights: Tensor) -> Tensor:
        logits = (features @ weights).masked_fill(~present, -math.inf)  # (n, K)
        return -F.cross_entropy(logits, true) - RIDGE * weights @ weights

    scale, a, b = _maximise(likelihood, 3)
    if scale < LEAST_SCALE:
        scale = LEAST_SCALE
        a, b = _maximise(lambda weights: likelihood(torch.cat([weights.new_tensor([scale]), weights])), 2)
    return LengthWeights(word=a / scale, sentence=b / scale)


def _maximise(value: Callable[[Tensor], Tensor], size: int) -> list[float]:
    """Where a concave function is largest."""
    weights = torch.zeros(size, dtype=torch.float64, requires_grad=True)
    climb = torch.optim.LBFGS(
        [weights], max_iter=1000, tolerance_grad=1e-9, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def step() -> Tensor:
        climb.zero_grad()
        loss = -value(weights)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    climb.step(step)  # type: ignore[no-untyped-call]
    return list(weights.tolist())
