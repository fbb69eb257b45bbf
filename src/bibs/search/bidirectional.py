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

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from .beam import Fills, Pass, run_pass
from .problem import DIRECTIONS, Direction, Fill, Settings, TracedPass, opposite
from .rescore import Batch, finish, score_sentences

Step: TypeAlias = dict[Direction, list[Pass]]
"""One pass over all examples, or one from either end."""


def search_both_ways(batch: Batch, settings: Settings) -> list[list[Fill]]:
    """Bidirectional beam search over one batch."""
    steps = run_steps(batch, settings)
    proposals: list[Fills] = []
    for example in range(len(batch.layouts)):
        fills: Fills = {}
        for step in reversed(steps if settings.rescore else steps[-1:]):
            for passes in step.values():
                fills |= {fill: rank for fill, rank in passes[example].fills.items() if fill not in fills}
        proposals.append(fills if settings.rescore else dict(sorted(fills.items(), key=lambda item: -item[1])))
    answers = finish(batch, proposals, settings, "sum" if settings.rescore else "own")
    for example, found in enumerate(answers):
        states = [_state(steps[: number + 1], example, settings) for number in range(len(steps))]
        # The first step that came to nothing new, or the last one.
        settled = next((number for number, state in enumerate(states) if state in states[:number]), len(steps) - 1)
        trace = _trace(batch, example, steps[: settled + 1]) if settings.trace else ()
        answers[example] = [replace(fill, rounds=(settled + 1) // 2, trace=trace) for fill in found]
    return answers


def run_steps(batch: Batch, settings: Settings) -> list[Step]:
    """Step after step. Where they go round in circles, whole turns are left out: the last step stays the same."""
    turns = [DIRECTIONS] * 2 if settings.start == "both" else [(settings.start,), (opposite(settings.start),)]
    steps: list[Step] = []
    seen: dict[object, int] = {}
    left = 2 * settings.num_rounds + 1
    while left:
        heard = steps[-_num_heard(settings) :]
        directions = turns[len(steps) % 2]
        steps.append({each: run_pass(batch[each], [step[opposite(each)] for step in heard]) for each in directions})
        state = tuple(_state(steps, example, settings) for example in range(len(batch.layouts)))
        left -= 1
        if (before := seen.setdefault(state, len(steps))) < len(steps):
            left %= len(steps) - before
    return steps


def _num_heard(settings: Settings) -> int:
    """How many steps back a pass hears the far side."""
    return 2 if settings.start == "both" else 1


def _state(steps: Sequence[Step], example: int, settings: Settings) -> tuple[object, ...]:
    """What the next step of an example follows from."""
    last = steps[-_num_heard(settings) :]
    return tuple(passes[example].frontiers for step in last for passes in step.values())


def _trace(batch: Batch, example: int, steps: Sequence[Step]) -> tuple[TracedPass, ...]:
    """What every pass saw of one example."""
    passes = [(each, own[example]) for step in steps for each, own in step.items() if own[example].fills]
    tops = [(example, next(iter(done.fills))) for _, done in passes]
    result = []
    for (direction, done), (_, fill), scores in zip(passes, tops, score_sentences(batch, tops), strict=True):
        path, tokens = batch[direction].tree.path, batch.layouts[example].fill(fill)
        partial_fills = (
            tuple((path(slot, node), score) for node, score in zip(each.nodes, each.scores, strict=True) if node >= 0)
            for slot, each in enumerate(done.frontiers)
        )
        result.append(TracedPass(direction, tokens, sum(scores), done.fills[fill], tuple(partial_fills)))
    return tuple(result)
