"""Bidirectional Beam Search (the paper's Alg. 1): beam searches in alternating directions, each steered by the last.

    left to right, slot t:   top-B over (b, y) of   s_b + f_b(y) + max_b' [ c_b' + g_b'(y) ]

The paper's chain of passes begins at the right end, with a plain pass; where it ends depends on where it began. By
default two chains run in step, one from either end, and a pass hears the last passes of both: b' runs over the
frontiers of the last two passes of the far side.

What a step comes to follows from the passes that it hears, so an example is settled as soon as these are what they were
at an earlier step. The fills of all passes are then scored exactly, S(Y) = log P_f(Y) + log P_g(Y), and the best
returned, so the best S never falls with more rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from .beam import Fills, Frontier, Pass, run_pass
from .problem import DIRECTIONS, Direction, Fill, Settings, Start, TracedPass, opposite
from .rescore import Batch, finish, left_to_right, score_both, score_sentences


class Visit(NamedTuple):
    """What one pass came to in one example."""

    direction: Direction
    frontiers: tuple[Frontier, ...]
    fills: Fills  # from left to right


Step: TypeAlias = tuple[Visit, ...]
"""One pass, or one from either end."""


@dataclass
class History:
    """The steps of one example, until nothing new came."""

    steps: list[Step] = field(default_factory=list)
    seen: dict[tuple[object, ...], int] = field(default_factory=dict)
    repeats: int | None = None  # the step that the last one repeats

    def add(self, step: Step, num_heard: int) -> None:
        if self.repeats is None:
            self.steps.append(step)
            heard = tuple(visit[:2] for each in self.steps[-num_heard:] for visit in each)
            first = self.seen.setdefault(heard, len(self.steps) - 1)
            self.repeats = first if first < len(self.steps) - 1 else None

    def at(self, number: int) -> Step:
        """A step, also one that was not run because the search goes round from `repeats` on."""
        if self.repeats is not None and number >= len(self.steps):
            first = self.repeats + 1
            number = first + (number - first) % (len(self.steps) - first)
        return self.steps[number]


def search_both_ways(batch: Batch, settings: Settings) -> list[list[Fill]]:
    """Bidirectional beam search over one batch."""
    histories = run_steps(batch, settings.start, settings.num_rounds)
    proposals: list[Fills] = []
    for history in histories:
        steps = history.steps[::-1] if settings.rescore else [history.at(2 * settings.num_rounds)]
        fills: Fills = {}
        for visit in (visit for step in steps for visit in step):
            fills |= {fill: value for fill, value in visit.fills.items() if fill not in fills}
        proposals.append(fills if settings.rescore else dict(sorted(fills.items(), key=lambda item: -item[1])))
    answers = finish(batch, proposals, settings, "sum" if settings.rescore else "own")
    return [
        [replace(fill, rounds=len(history.steps) // 2, trace=trace) for fill in fills]
        for example, (fills, history) in enumerate(zip(answers, histories, strict=True))
        for trace in [_trace(batch, example, history) if settings.trace else ()]
    ]


def run_steps(batch: Batch, start: Start, num_rounds: int) -> list[History]:
    """Step after step for all examples, until nothing new can come for any."""
    histories = [History() for _ in batch.layouts]
    num_heard = 2 if start == "both" else 1
    steps: list[dict[Direction, Pass]] = []
    turns = [DIRECTIONS, DIRECTIONS] if start == "both" else [(start,), (opposite(start),)]
    for number in range(2 * num_rounds + 1):
        step: dict[Direction, Pass] = {}
        for direction in turns[number % 2]:
            heard = [earlier[opposite(direction)] for earlier in steps[-num_heard:]]
            step[direction] = run_pass(batch[direction], heard)
        steps.append(step)
        for example, history in enumerate(histories):
            visits = (
                Visit(direction, each.frontiers[example], left_to_right(direction, each.fills[example]))
                for direction, each in step.items()
            )
            history.add(tuple(visits), num_heard)
        if all(history.repeats is not None for history in histories):
            break
    return histories


def _trace(batch: Batch, example: int, history: History) -> tuple[TracedPass, ...]:
    """What every pass saw of one example."""
    passes = []
    for direction, frontiers, fills in (visit for step in history.steps for visit in step):
        partial_fills = tuple(map(batch[direction].partial_fills, frontiers))
        for fill, value in list(fills.items())[:1]:
            tokens = batch.layouts[example].fill(fill)
            if batch.margin is None:
                ((forward, backward),) = score_both(batch, [(example, fill)], [-math.inf])
            else:
                ((forward, backward),) = score_sentences(batch, [(example, tokens)])
            passes.append(TracedPass(direction, tokens, forward + backward, value, partial_fills))
    return tuple(passes)
