"""The search written out over dictionaries: every connection (b, y, b') looked at, one by one, in plain Python.

An independent second implementation that also knows words that must appear. It reads `HistoryModel` alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from bibs.search.template import Layout
from fakes import HistoryModel

Prefix = tuple[int, ...]


@dataclass
class HandPass:
    frontiers: list[dict[Prefix, float]] = field(default_factory=list)  # slot -> partial fill -> running score
    ranking: dict[Prefix, float] = field(default_factory=dict)  # complete fill -> what it was chosen by


def held(tokens: Sequence[int], slots: Sequence[int | None], required: Sequence[int]) -> frozenset[int]:
    """The required words among the tokens that stand in free slots."""
    return frozenset(t for t, slot in zip(tokens, slots, strict=True) if slot is None and t in required)


def one_pass(
    model: HistoryModel,
    layout: Layout,
    banned: Sequence[int],
    num_beams: int,
    far: tuple[HistoryModel, Layout, HandPass] | None,
) -> HandPass:
    region, required = layout.region, layout.required
    seen = HandPass()
    frontier: dict[Prefix, float] = {(): 0.0}
    for slot, fixed in enumerate(region):
        seen.frontiers.append(frontier)
        allowed = [fixed] if fixed is not None else [y for y in range(model.vocab_size) if y not in banned]
        free_left = sum(other is None for other in region[slot + 1 :])
        running = {
            (*prefix, y): score + float(model.log_probs_after([*layout.context, *prefix])[y])
            for prefix, score in frontier.items()
            for y in allowed
        }
        near = {prefix: held(prefix, region[: slot + 1], required) for prefix in running}
        ranked = {prefix: score for prefix, score in running.items() if len(required) - len(near[prefix]) <= free_left}
        if far:
            steered: dict[Prefix, float] = {}
            far_model, far_layout, far_pass = far
            for prefix, score in ranked.items():
                for other, c in far_pass.frontiers[len(region) - 1 - slot].items():
                    if near[prefix] | held(other, far_layout.region[: len(other)], required) == set(required):
                        g = float(far_model.log_probs_after([*far_layout.context, *other])[prefix[-1]])
                        steered[prefix] = max(steered.get(prefix, -math.inf), score + c + g)
            if any(score > -math.inf for score in steered.values()):
                ranked = steered  # else nothing connects, and the pass goes on as if there were no far side
        banks: dict[frozenset[int], list[Prefix]] = {}
        for prefix in sorted(ranked, key=lambda prefix: -ranked[prefix]):
            if ranked[prefix] > -math.inf:
                banks.setdefault(near[prefix], []).append(prefix)
        chosen = [prefix for bank in banks.values() for prefix in bank[:num_beams]]
        frontier = {prefix: running[prefix] for prefix in chosen}
        seen.ranking = {prefix: ranked[prefix] for prefix in chosen}
    return seen


def search_by_hand(
    forward: HistoryModel,
    backward: HistoryModel,
    template: Sequence[int | None],
    *,
    required: Sequence[int] = (),
    banned: Sequence[int] = (),
    num_beams: int,
    num_rounds: int,
) -> list[HandPass]:
    """Every pass, the plain right-to-left one first."""
    layout = Layout.of(template, required)
    sides = {True: (forward, layout), False: (backward, layout.mirrored())}
    passes: list[HandPass] = []
    for number in range(1 + 2 * num_rounds):
        near, far = sides[number % 2 == 1], sides[number % 2 == 0]
        passes.append(one_pass(*near, banned, num_beams, (*far, passes[-1]) if passes else None))
    return passes
