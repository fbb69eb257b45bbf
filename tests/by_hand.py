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
        ranked: dict[Prefix, float] = {}
        running: dict[Prefix, float] = {}
        for prefix, score in frontier.items():
            log_probs = model.log_probs_after([*layout.context, *prefix])
            for y in allowed:
                longer = (*prefix, y)
                near = held(longer, region[: slot + 1], required)
                beyond = -math.inf if far else 0.0 if len(required) - len(near) <= free_left else -math.inf
                if far:
                    far_model, far_layout, far_pass = far
                    for other, c in far_pass.frontiers[len(region) - 1 - slot].items():
                        if near | held(other, far_layout.region[: len(other)], required) == set(required):
                            g = float(far_model.log_probs_after([*far_layout.context, *other])[y])
                            beyond = max(beyond, c + g)
                if beyond > -math.inf:
                    running[longer] = score + float(log_probs[y])
                    ranked[longer] = running[longer] + beyond
        banks: dict[frozenset[int], list[Prefix]] = {}
        for prefix in sorted(ranked, key=lambda prefix: -ranked[prefix]):
            banks.setdefault(held(prefix, region[: slot + 1], required), []).append(prefix)
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
