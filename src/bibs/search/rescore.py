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
from .model import select_conditions
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
    def margin(self) -> float | None:
        """How far off S may be where a model of the passes is a quick copy of another; None where neither is."""
        margins = [getattr(side.prefixes.model, "margin", None) for side in (self.forward, self.backward)]
        return None if margins == [None, None] else sum(margin or 0.0 for margin in margins)


def left_to_right(direction: Direction, fills: Fills) -> Fills:
    return fills if direction == "forward" else {fill[::-1]: value for fill, value in fills.items()}


def score_both(batch: Batch, asked: Sequence[tuple[int, Tokens]], floors: Sequence[float]) -> list[tuple[float, float]]:
    """(forward_score, backward_score) of fills of examples: exact, where their sum reaches the fill's floor."""
    known = [
        side.prefixes.recall(
            [side.roots[example] for example, _ in asked],
            [(*fill[::turn], *side.layouts[example].rest) for example, fill in asked],
        )
        for side, turn in ((batch.forward, 1), (batch.backward, -1))
    ]
    needed = known[0].totals.new_tensor(floors)
    anything = needed == -torch.inf  # whatever the other model says, be it that nothing is possible
    forward = batch.forward.prefixes.score(known[0], (needed - known[1].totals).masked_fill(anything, -torch.inf))
    backward = batch.backward.prefixes.score(known[1], (needed - forward).masked_fill(anything, -torch.inf))
    return list(zip(forward.tolist(), backward.tolist(), strict=True))


def finish(batch: Batch, proposals: Sequence[Fills], settings: Settings, ranking: Ranking) -> list[list[Fill]]:
    """Score what was proposed for each example, from left to right, best guess first; sort it, and keep the best."""
    wanted, penalty = settings.num_return_sequences, batch.forward.rules.penalty
    margin = MARGIN + (batch.margin or 0.0)
    again = batch.margin is not None and ranking != "own"  # what a method chose itself is scored once, exactly
    results: list[list[Fill]] = [[] for _ in proposals]
    floors = [-torch.inf] * len(proposals)
    # By S, the first few are scored whole. The others have to reach the last of those, or are given up.
    few, others = slice(wanted), slice(wanted, None)
    for part in {"own": [few], "max": [slice(None)], "sum": [few, others]}[ranking]:
        asked = [(example, fill) for example, proposal in enumerate(proposals) for fill in list(proposal)[part]]
        needed = [floors[example] + penalty(example, fill) for example, fill in asked]
        if again or batch.margin is None:
            scores = score_both(batch, asked, needed)
        else:
            scores = score_sentences(batch, [(example, batch.layouts[example].fill(fill)) for example, fill in asked])
        for (example, fill), floor, (forward, backward) in zip(asked, needed, scores, strict=True):
            layout, lost = batch.layouts[example], penalty(example, fill)
            by = {"own": proposals[example][fill] + lost, "sum": forward + backward, "max": max(forward, backward)}
            # A template without a blank always comes back, even where a model thinks it impossible.
            if forward + backward >= floor and (by[ranking] > -torch.inf or not layout.region):
                tokens = layout.fill(fill)
                results[example].append(Fill(tokens, forward + backward, by[ranking], forward, backward, penalty=lost))
        for example, found in enumerate(results):
            if len(found) == wanted:
                floors[example] = min(fill.score - fill.penalty for fill in found) - margin
    if again:
        results = score_again(batch, [near_best(found, wanted, margin) for found in results], ranking)
    return [best_fills(found, wanted) for found in results]


def best_fills(fills: Iterable[Fill], count: int) -> list[Fill]:
    """The best distinct fills, best first."""
    distinct: dict[Tokens, Fill] = {}
    for fill in sorted(fills, key=lambda fill: fill.penalty - fill.ranking_score):
        distinct.setdefault(fill.tokens, fill)
    return list(distinct.values())[:count]


def near_best(fills: Sequence[Fill], count: int, margin: float) -> list[Fill]:
    """The fills that are worth no less than the last of the `count` best, but for the margin."""
    best = best_fills(fills, len(fills))
    floor = min((fill.ranking_score - fill.penalty for fill in best[:count]), default=0.0) - margin
    return [fill for fill in best if not fill.ranking_score - fill.penalty < floor]


def score_again(batch: Batch, results: Sequence[Sequence[Fill]], ranking: Ranking) -> list[list[Fill]]:
    """The fills with the scores of the models of which those of the passes are copies."""
    asked = [(example, fill) for example, fills in enumerate(results) for fill in fills]
    again: list[list[Fill]] = [[] for _ in results]
    scores = score_sentences(batch, [(example, fill.tokens) for example, fill in asked])
    for (example, fill), (forward, backward) in zip(asked, scores, strict=True):
        by = max(forward, backward) if ranking == "max" else forward + backward
        again[example].append(Fill(fill.tokens, forward + backward, by, forward, backward, penalty=fill.penalty))
    return again


def score_sentences(batch: Batch, asked: Sequence[tuple[int, Tokens]]) -> list[tuple[float, float]]:
    """(forward_score, backward_score) of whole sentences of examples, from scratch, exactly."""
    columns: list[list[float]] = [[], []]
    for side, turn, scores in zip((batch.forward, batch.backward), (1, -1), columns, strict=True):
        tree = side.prefixes
        for first in range(0, len(asked), tree.max_rows):
            some = asked[first : first + tree.max_rows]
            conditions = select_conditions(tree.conditions, [side.roots[example] for example, _ in some])
            scores += tree.model.exact_scores([tokens[::turn] for _, tokens in some], conditions).tolist()
    return list(zip(*columns, strict=True))
