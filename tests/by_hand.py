"""The search written out over dictionaries: every connection (b, y, b') looked at, one by one, in plain Python.

An independent second implementation that also knows words that must appear and groups that avoid each other. It reads
`HistoryModel` alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from bibs.search.template import Layout
from fakes import HistoryModel

Prefix = tuple[int, ...]


@dataclass
class HandPass:
    frontiers: list[dict[Prefix, float]] = field(default_factory=list)  # slot -> partial fill -> running score
    ranking: dict[Prefix, float] = field(default_factory=dict)  # complete fill -> what it was ranked by, penalty apart


@dataclass
class Side:
    """One model before a template."""

    model: HistoryModel
    layout: Layout

    def held(self, prefix: Prefix) -> frozenset[int]:
        return held(prefix, self.layout.region[: len(prefix)], self.layout.required)

    def log_prob(self, prefix: Prefix, y: int) -> float:
        return float(self.model.log_probs_after([*self.layout.context, *prefix])[y])


def held(tokens: Sequence[int], slots: Sequence[int | None], required: Sequence[int]) -> frozenset[int]:
    """The required words among the tokens that stand in free slots."""
    return frozenset(t for t, slot in zip(tokens, slots, strict=True) if slot is None and t in required)


def extensions(
    near: Side, frontier: dict[Prefix, float], banned: Sequence[int], far: Side | None, beyond: dict[Prefix, float]
) -> tuple[dict[Prefix, float], dict[Prefix, float]]:
    """Running score and ranking of each extension that can become a whole fill. `beyond` is the far side's frontier."""
    region, required = near.layout.region, set(near.layout.required)
    slot = len(next(iter(frontier), ()))
    allowed = [y for y in range(near.model.vocab_size) if y not in banned]
    if region[slot] is not None:
        allowed = [region[slot]]
    running = {(*prefix, y): score + near.log_prob(prefix, y) for prefix, score in frontier.items() for y in allowed}
    free_left = sum(other is None for other in region[slot + 1 :])
    running = {p: score for p, score in running.items() if len(required - near.held(p)) <= free_left}
    ranking: dict[Prefix, float] = {}
    for prefix, score in running.items():
        for other, c in beyond.items() if far else ():
            if near.held(prefix) | far.held(other) == required:
                connected = score + c + far.log_prob(other, prefix[-1])
                ranking[prefix] = max(ranking.get(prefix, -math.inf), connected)
    if not any(value > -math.inf for value in ranking.values()):
        ranking = dict(running)  # nothing connects: the pass goes on as if there were no far side
    return running, ranking


def one_pass(
    near: Side,
    banned: Sequence[int],
    num_beams: int,
    far: Side | None,
    told: Sequence[HandPass],
    num_groups: int,
    penalty: float,
) -> list[HandPass]:
    """One pass of every group. `told` is the last pass of each from the far side."""
    width = len(near.layout.region)
    seen = [HandPass() for _ in range(num_groups)]
    frontiers: list[dict[Prefix, float]] = [{(): 0.0} for _ in seen]
    for slot in range(width):
        used: Counter[int] = Counter()
        for group, frontier in enumerate(frontiers):
            seen[group].frontiers.append(frontier)
            beyond = told[group].frontiers[width - 1 - slot] if far else {}
            running, ranking = extensions(near, frontier, banned, far, beyond) if frontier else ({}, {})
            lowered = {prefix: value - penalty * used[prefix[-1]] for prefix, value in ranking.items()}
            banks: dict[frozenset[int], list[Prefix]] = {}
            for prefix in sorted(lowered, key=lambda prefix: -lowered[prefix]):
                if ranking[prefix] > -math.inf:
                    banks.setdefault(near.held(prefix), []).append(prefix)
            chosen = [prefix for bank in banks.values() for prefix in bank[:num_beams]]
            used.update(prefix[-1] for prefix in chosen)
            frontiers[group] = {prefix: running[prefix] for prefix in chosen}
            seen[group].ranking = {prefix: ranking[prefix] for prefix in chosen}
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
    num_groups: int = 1,
    penalty: float = 0.0,
) -> list[list[HandPass]]:
    """Every pass of every group, the plain right-to-left one first."""
    layout = Layout.of(template, required)
    sides = {True: Side(forward, layout), False: Side(backward, layout.mirrored())}
    passes: list[list[HandPass]] = []
    for number in range(1 + 2 * num_rounds):
        near, far = sides[number % 2 == 1], sides[number % 2 == 0]
        last = passes[-1] if passes else []
        passes.append(one_pass(near, banned, num_beams, far if passes else None, last, num_groups, penalty))
    return passes
