"""The search written out over dictionaries: every connection (b, y, b') looked at, one by one, in plain Python.

An independent second implementation that also knows zeros, words that must appear and words that lose. It reads
`HistoryModel` alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fakes import HistoryModel
from literal import JudgedPass, Prefix, Slots, cut, directions


@dataclass(frozen=True)
class Side:
    """One model before a template, in its own reading order."""

    model: HistoryModel
    context: Sequence[int]
    region: Slots
    required: Sequence[int]
    penalties: Mapping[int, float]
    banned: Sequence[int]
    condition: int

    def held(self, prefix: Prefix) -> frozenset[int]:
        """The required words among the tokens that stand in free slots."""
        return frozenset(
            token for token, slot in zip(prefix, self.region, strict=False) if slot is None and token in self.required
        )

    def log_prob(self, prefix: Prefix, y: int) -> float:
        return float(self.model.log_probs_after([*self.context, *prefix], self.condition)[y])

    def allowed(self, slot: int) -> list[int]:
        fixed = self.region[slot]
        return [y for y in range(self.model.vocab_size) if y not in self.banned] if fixed is None else [fixed]

    def loss(self, slot: int, y: int) -> float:
        return self.penalties.get(y, 0.0) if self.region[slot] is None else 0.0


def extensions(
    near: Side, frontier: dict[Prefix, float], slot: int, far: Side, heard: Sequence[JudgedPass]
) -> tuple[dict[Prefix, float], dict[Prefix, float]]:
    """Running score and ranking of each extension that can become a whole fill."""
    running = {
        (*prefix, y): score + near.log_prob(prefix, y) - near.loss(slot, y)
        for prefix, score in frontier.items()
        for y in near.allowed(slot)
    }
    required, free_left = set(near.required), list(near.region[slot + 1 :]).count(None)
    running = {p: score for p, score in running.items() if len(required - near.held(p)) <= free_left}
    beyond = [item for each in heard for item in each.frontiers[len(near.region) - 1 - slot].items()]
    ranking: dict[Prefix, float] = {}
    for prefix, score in running.items():
        for other, c in beyond:
            if near.held(prefix) | far.held(other) == required:
                connected = score + c + far.log_prob(other, prefix[-1])
                ranking[prefix] = max(ranking.get(prefix, -math.inf), connected)
    # If nothing connects, the pass goes on as if there were no far side.
    return running, ranking if any(value > -math.inf for value in ranking.values()) else running


def one_pass(direction: str, near: Side, num_beams: int, far: Side, heard: Sequence[JudgedPass]) -> JudgedPass:
    seen = JudgedPass(direction, [], {})
    frontier: dict[Prefix, float] = {(): 0.0}
    for slot in range(len(near.region)):
        seen.frontiers.append(frontier)
        running, ranking = extensions(near, frontier, slot, far, heard)
        banks: dict[frozenset[int], list[Prefix]] = {}
        for prefix in sorted(ranking, key=lambda prefix: -ranking[prefix]):
            if ranking[prefix] > -math.inf:
                banks.setdefault(near.held(prefix), []).append(prefix)
        chosen = [prefix for bank in banks.values() for prefix in bank[:num_beams]]
        frontier = {prefix: running[prefix] for prefix in chosen}
        seen.ranking = {prefix: ranking[prefix] for prefix in sorted(chosen, key=lambda prefix: -ranking[prefix])}
    return seen


def search_by_hand(
    forward: HistoryModel,
    backward: HistoryModel,
    template: Slots,
    *,
    required: Sequence[int] = (),
    penalties: Mapping[int, float] | None = None,
    banned: Sequence[int] = (),
    condition: int = 0,
    num_beams: int,
    num_rounds: int,
    start: str = "backward",
) -> list[JudgedPass]:
    """Every pass, the plain one first. From both ends: two at each step, which hear those of the last two steps."""
    left, region, right = cut(template)
    rules = (required, penalties or {}, banned, condition)
    sides = {
        "forward": Side(forward, left, region, *rules),
        "backward": Side(backward, right[::-1], region[::-1], *rules),
    }
    steps: list[list[JudgedPass]] = []
    for direction in directions(start, num_rounds):
        step = []
        for turn, other in (("forward", "backward"), ("backward", "forward")):
            if start == "both" or turn == direction:
                heard = [each for step in steps[-2:] for each in step if each.direction == other]
                step.append(one_pass(turn, sides[turn], num_beams, sides[other], heard))
        steps.append(step)
    return [each for step in steps for each in step]
