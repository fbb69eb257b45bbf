"""Exact scores of fills: S(Y) = log P_f(Y) + log P_g(Y), whole sequence, context included.

The two trees know most of what was searched; the models are asked for the rest of each sentence. Every further token
only lowers a score, so a fill is given up as soon as what is known of its S is below the best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from .beam import Fills, Side
from .problem import Direction, Fill, Layout, Settings, Tokens

MARGIN = 1e-3
"""By how much a fill must be worse than another before it is given up: sums of float32 differ by less."""

Ranking: TypeAlias = Literal["own", "sum", "max"]
"""By what the method itself says, or by the sum or the larger of the two whole-sequence scores."""

Asked: TypeAlias = Sequence[tuple[int, Tokens]]
"""Fills of examples, from left to right."""

Scores: TypeAlias = list[tuple[float, float]]
"""forward_score and backward_score of each."""


@dataclass(frozen=True)
class Batch:
    """Layouts that are searched together, before the two models."""

    forward: Side
    backward: Side

    def __getitem__(self, direction: Direction) -> Side:
        return self.forward if direction == "forward" else self.backward

    @property
    def layouts(self) -> Sequence[Layout]:
        return self.forward.layouts

    @property
    def margins(self) -> list[float]:
        """How far off the models of the passes may be, of those that are quick copies of others."""
        margins = (side.tree.model.margin for side in (self.forward, self.backward))
        return [margin for margin in margins if margin is not None]


def score_fills(batch: Batch, asked: Asked, floors: Sequence[float]) -> Scores:
    """What the models of the passes say: exact, where the sum reaches the fill's floor."""
    known = [
        side.tree.recall(
            [side.roots[example] for example, _ in asked],
            [(*fill[::turn], *side.layouts[example].rest) for example, fill in asked],
        )
        for side, turn in ((batch.forward, 1), (batch.backward, -1))
    ]
    needed = known[0].totals.new_tensor(floors)
    anything = needed == -math.inf  # whatever the other model says, be it that nothing is possible
    forward = batch.forward.tree.score(known[0], (needed - known[1].totals).masked_fill(anything, -math.inf))
    backward = batch.backward.tree.score(known[1], (needed - forward).masked_fill(anything, -math.inf))
    return list(zip(forward.tolist(), backward.tolist(), strict=True))


def score_sentences(batch: Batch, asked: Asked) -> Scores:
    """What is to come back: from scratch, by the models of which those of the passes may be quick copies."""
    sentences = [batch.layouts[example].fill(fill) for example, fill in asked]
    roots = [batch.forward.roots[example] for example, _ in asked]
    forward = batch.forward.tree.exact_scores(roots, sentences)
    backward = batch.backward.tree.exact_scores(roots, [sentence[::-1] for sentence in sentences])
    return list(zip(forward, backward, strict=True))


def finish(batch: Batch, proposals: Sequence[Fills], settings: Settings, ranking: Ranking) -> list[list[Fill]]:
    """Score what was proposed for each example, from left to right, best guess first; sort it, and keep the best."""
    wanted, penalty = settings.num_return_sequences, batch.forward.rules.penalty
    margin = MARGIN + sum(batch.margins)
    scores: list[dict[Tokens, tuple[float, float]]] = [{} for _ in proposals]

    def rank(example: int, fill: Tokens) -> float:
        pair = scores[example][fill]
        own = proposals[example][fill] + penalty(example, fill)
        return {"own": own, "sum": sum(pair), "max": max(pair)}[ranking]

    def worth(example: int, fill: Tokens) -> float:
        return rank(example, fill) - penalty(example, fill)

    def floor(example: int) -> float:
        """What others have to reach, to be among those wanted in the end."""
        best = sorted((worth(example, fill) for fill in scores[example]), reverse=True)
        return best[wanted - 1] - margin if len(best) >= wanted else -math.inf

    def take(asked: Asked, pairs: Scores) -> None:
        for (example, fill), pair in zip(asked, pairs, strict=True):
            scores[example][fill] = pair

    # By S, the first few are scored whole. The others have to reach the last of those, or are given up.
    few, others = slice(wanted), slice(wanted, None)
    for part in {"own": [few], "max": [slice(None)], "sum": [few, others]}[ranking]:
        floors = list(map(floor, range(len(scores))))
        asked = [(example, fill) for example, proposal in enumerate(proposals) for fill in list(proposal)[part]]
        take(asked, score_fills(batch, asked, [floors[example] + penalty(example, fill) for example, fill in asked]))
    if batch.margins and settings.exact:
        floors = list(map(floor, range(len(scores))))
        near = [(e, fill) for e, found in enumerate(scores) for fill in found if worth(e, fill) >= floors[e]]
        scores = [{} for _ in proposals]
        take(near, score_sentences(batch, near))
    results = []
    for example, layout in enumerate(batch.layouts):
        best = sorted(scores[example], key=lambda fill: -worth(example, fill))[:wanted]
        # A template without a blank always comes back, even where a model thinks it impossible.
        possible = [fill for fill in best if not layout.region or worth(example, fill) > -math.inf]
        results.append(
            [_fill(layout.fill(f), scores[example][f], rank(example, f), penalty(example, f)) for f in possible]
        )
    return results


def _fill(tokens: Tokens, scores: tuple[float, float], ranking_score: float, penalty: float) -> Fill:
    return Fill(tokens, sum(scores), ranking_score, *scores, penalty=penalty)
