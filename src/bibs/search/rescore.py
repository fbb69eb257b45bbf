"""Exact scores of fills: S(Y) = log P_f(Y) + log P_g(Y), whole sequence, context included.

The two trees know most of what was searched; the models are asked for the rest of each sentence. Every further token
only lowers a score, so a fill is given up as soon as what is known of its S is below the best.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch

from .beam import Fills, Side
from .problem import Direction, Fill, Layout, Settings, Tokens

MARGIN = 1e-3
"""By how much a fill must be worse than another before it is given up: sums of float32 differ by less."""

Ranking: TypeAlias = Literal["own", "sum", "max"]
"""By what the method itself says, or by the sum or the larger of the two whole-sequence scores."""


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
    def margin(self) -> float:
        """How far S may be off as the models of the passes give it: 0, unless they are only nearly the exact ones."""
        return self.forward.prefixes.margin + self.backward.prefixes.margin


def left_to_right(direction: Direction, fills: Fills) -> Fills:
    return fills if direction == "forward" else {fill[::-1]: value for fill, value in fills.items()}


def score_both(
    batch: Batch, asked: Sequence[tuple[int, Tokens]], floors: Sequence[float], exact: bool = True
) -> list[tuple[float, float]]:
    """(forward_score, backward_score) of fills of examples: right where their sum reaches the fill's floor.

    They are those that come back, or without `exact` what the models of the passes say.
    """
    trees = [side.prefixes.exact if exact else side.prefixes for side in (batch.forward, batch.backward)]
    known = [
        tree.recall(
            [side.roots[example] for example, _ in asked],
            [(*fill[::turn], *side.layouts[example].rest) for example, fill in asked],
        )
        for tree, side, turn in zip(trees, (batch.forward, batch.backward), (1, -1), strict=True)
    ]
    needed = known[0].totals.new_tensor(floors)
    anything = needed == -torch.inf  # whatever the other model says, be it that nothing is possible
    forward = trees[0].score(known[0], (needed - known[1].totals).masked_fill(anything, -torch.inf))
    backward = trees[1].score(known[1], (needed - forward).masked_fill(anything, -torch.inf))
    return list(zip(forward.tolist(), backward.tolist(), strict=True))


def finish(batch: Batch, proposals: Sequence[Fills], settings: Settings, ranking: Ranking) -> list[list[Fill]]:
    """Score what was proposed for each example, from left to right, best guess first; sort it, and keep the best."""
    wanted = settings.num_return_sequences
    if batch.margin and ranking != "own":
        # The models of the passes say which fills may be among the best: only those are worth an exact score.
        found = _score(batch, proposals, wanted, ranking, exact=False)
        proposals = [_near_best(*each, wanted, batch.margin) for each in zip(batch.layouts, found, strict=True)]
    return [best_fills(fills, wanted) for fills in _score(batch, proposals, wanted, ranking, exact=True)]


def _score(
    batch: Batch, proposals: Sequence[Fills], wanted: int, ranking: Ranking, exact: bool
) -> list[list[Fill]]:
    """The fills of each example that may be among the best `wanted`, in no particular order."""
    penalty = batch.forward.rules.penalty
    slack = MARGIN if exact else MARGIN + batch.margin
    results: list[list[Fill]] = [[] for _ in proposals]
    floors = [-torch.inf] * len(proposals)
    # By S, the first few are scored whole. The others have to reach the last of those, or are given up.
    few, others = slice(wanted), slice(wanted, None)
    for part in {"own": [few], "max": [slice(None)], "sum": [few, others]}[ranking]:
        asked = [(example, fill) for example, proposal in enumerate(proposals) for fill in list(proposal)[part]]
        needed = [floors[example] + penalty(example, fill) for example, fill in asked]
        scores = score_both(batch, asked, needed, exact)
        for (example, fill), floor, (forward, backward) in zip(asked, needed, scores, strict=True):
            layout, lost = batch.layouts[example], penalty(example, fill)
            by = {"own": proposals[example][fill] + lost, "sum": forward + backward, "max": max(forward, backward)}
            # A template without a blank always comes back, even where a model thinks it impossible.
            if forward + backward >= floor and (by[ranking] > -torch.inf or not layout.region):
                tokens = layout.fill(fill)
                results[example].append(Fill(tokens, forward + backward, by[ranking], forward, backward, penalty=lost))
        for example, found in enumerate(results):
            if len(found) == wanted:
                floors[example] = min(fill.score - fill.penalty for fill in found) - slack
    return results


def _near_best(layout: Layout, fills: Sequence[Fill], wanted: int, margin: float) -> Fills:
    """The fills that are worth no less than the last of the best, but for the margin; best first."""
    region = slice(len(layout.context), len(layout.context) + len(layout.region))
    worth = {fill.tokens[region]: fill.ranking_score - fill.penalty for fill in best_fills(fills, len(fills))}
    floor = min(list(worth.values())[:wanted], default=0.0) - margin
    return {fill: value for fill, value in worth.items() if not value < floor}


def best_fills(fills: Iterable[Fill], count: int) -> list[Fill]:
    """The best distinct fills, best first."""
    distinct: dict[Tokens, Fill] = {}
    for fill in sorted(fills, key=lambda fill: fill.penalty - fill.ranking_score):
        distinct.setdefault(fill.tokens, fill)
    return list(distinct.values())[:count]
