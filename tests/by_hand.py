"""The search written out over dictionaries: every connection (b, y, b') looked at, one by one, in plain Python.

An independent second implementation that also knows words that must appear and words that lose. It reads
`HistoryModel` alone.
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


@dataclass
class Side:
    """One model before a template."""

    model: HistoryModel
    layout: Layout

    def held(self, prefix: Prefix) -> frozenset[int]:
        return held(prefix, self.layout.region[: len(prefix)], self.layout.required)

    def log_prob(self, prefix: Prefix, y: int) -> float:
        return float(self.model.log_probs_after([*self.layout.context, *prefix])[y])

    def loss(self, slot: int, y: int) -> float:
        return self.layout.penalties.get(y, 0.0) if self.layout.region[slot] is None else 0.0


def held(tokens: Sequence[int], slots: Sequence[int | None], required: Sequence[int]) -> frozenset[int]:
    """The required words among the tokens that stand in free slots."""
    return frozenset(t for t, slot in zip(tokens, slots, strict=True) if slot is None and t in required)


def extensions(
    near: Side, frontier: dict[Prefix, float], slot: int, banned: Sequence[int], far: tuple[Side, HandPass] | None
) -> tuple[dict[Prefix, float], dict[Prefix, float]]:
    """Running score and ranking of each extension that can become a whole fill."""
    region, required = near.layout.region, set(near.layout.required)
    allowed = [region[slot]] if region[slot] is not None else range(near.model.vocab_size)
    running = {
        (*prefix, y): score + near.log_prob(prefix, y) - near.loss(slot, y)
        for prefix, score in frontier.items()
        for y in allowed
        if region[slot] is not None or y not in banned
    }
    free_left = sum(other is None for other in region[slot + 1 :])
    running = {p: score for p, score in running.items() if len(required - near.held(p)) <= free_left}
    if far is None:
        return running, running
    side, told = far
    ranking: dict[Prefix, float] = {}
    for prefix, score in running.items():
        for other, c in told.frontiers[len(region) - 1 - slot].items():
            if near.held(prefix) | side.held(other) == required:
                connected = score + c + side.log_prob(other, prefix[-1])
                ranking[prefix] = max(ranking.get(prefix, -math.inf), connected)
    # If nothing connects, the pass goes on as if there were no far side.
    return running, ranking if any(value > -math.inf for value in ranking.values()) else running


def one_pass(near: Side, banned: Sequence[int], num_beams: int, far: tuple[Side, HandPass] | None) -> HandPass:
    seen = HandPass()
    frontier: dict[Prefix, float] = {(): 0.0}
    for slot in range(len(near.layout.region)):
        seen.frontiers.append(frontier)
        running, ranking = extensions(near, frontier, slot, banned, far)
        banks: dict[frozenset[int], list[Prefix]] = {}
        for prefix in sorted(ranking, key=lambda prefix: -ranking[prefix]):
            if ranking[prefix] > -math.inf:
                banks.setdefault(near.held(prefix), []).append(prefix)
        chosen = [prefix for bank in banks.values() for prefix in bank[:num_beams]]
        frontier = {prefix: running[prefix] for prefix in chosen}
        seen.ranking = {prefix: ranking[prefix] for prefix in chosen}
    return seen


def search_by_hand(
    forward: HistoryModel,
    backward: HistoryModel,
    layout: Layout,
    *,
    banned: Sequence[int] = (),
    num_beams: int,
    num_rounds: int,
) -> list[HandPass]:
    """Every pass, the plain right-to-left one first."""
    sides = {True: Side(forward, layout), False: Side(backward, layout.mirrored())}
    passes: list[HandPass] = []
    for number in range(1 + 2 * num_rounds):
        near, far = sides[number % 2 == 1], sides[number % 2 == 0]
        passes.append(one_pass(near, banned, num_beams, (far, passes[-1]) if passes else None))
    return passes
