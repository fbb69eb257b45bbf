"""Bidirectional Beam Search (the paper's Alg. 1): beam searches in alternating directions, each steered by the last.

    left to right, slot t:   top-B over (b, y) of   s_b + f_b(y) + max_b' [ c_b' + g_b'(y) ]

The first pass is plain. An example leaves as soon as a pass finds the frontiers of the previous pass in its direction:
the other direction is a function of them, so nothing can change any more. The fills of all passes are then scored
exactly, S(Y) = log P_f(Y) + log P_g(Y), and the best returned, so the best S never falls with more rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from .beam import Pass, beam_search
from .pair import (
    Fill,
    Memory,
    Pair,
    Proposal,
    Tokens,
    TracedPass,
    finish,
    opposite,
    propose,
    score_pairs,
)
from .settings import Direction, Settings


@dataclass
class _Progress:
    """How far one example has come."""

    fills: Proposal = field(default_factory=dict)  # of every pass
    latest: Proposal = field(default_factory=dict)  # of the last pass
    passes: list[TracedPass] = field(default_factory=list)


def search_both_ways(pair: Pair, settings: Settings) -> list[list[Fill]]:
    """Bidirectional beam search over one batch."""
    results: list[list[Fill]] = [[] for _ in range(len(pair))]
    progress = [_Progress() for _ in range(len(pair))]
    active = list(range(len(pair)))  # which example each row of `pair` is
    memory = Memory()
    direction = settings.start
    last = 2 * settings.num_rounds
    for number in range(last + 1):
        sender = memory[opposite(direction)]
        latest = beam_search(
            pair[direction],
            num_beams=settings.num_beams,
            messages=None if sender is None else sender.messages,
            previous=memory[direction],
            keep=settings.lookup,
        )
        memory = memory.after(direction, latest)
        _note([progress[example] for example in active], pair, direction, latest, settings.trace)
        leaves = latest.settled if number < last else torch.ones_like(latest.settled)
        leaving, staying = leaves.nonzero().flatten(), (~leaves).nonzero().flatten()
        if len(leaving):
            examples = [active[row] for row in leaving.tolist()]
            fills = _answer(pair.select(leaving), [progress[e] for e in examples], memory.select(leaving), settings)
            for example, found in zip(examples, fills, strict=True):
                results[example] = [replace(fill, rounds=(number + 1) // 2) for fill in found]
            if not len(staying):
                break
            pair, memory = pair.select(staying), memory.select(staying)
            active = [active[row] for row in staying.tolist()]
        direction = opposite(direction)
    return results


def _note(progress: Sequence[_Progress], pair: Pair, direction: Direction, latest: Pass, trace: bool) -> None:
    widths = pair[direction].widths.tolist()
    proposals = propose(direction, latest, widths)
    for noted, proposal in zip(progress, proposals, strict=True):
        noted.latest = proposal
        for fill, ranking in proposal.items():
            noted.fills.setdefault(fill, ranking)
    if not trace:
        return
    tops = [list(proposal)[:1] for proposal in proposals]
    layouts = pair.forward.layouts
    frontiers = _frontiers(latest, widths)
    for noted, layout, top, pairs, seen in zip(
        progress, layouts, tops, score_pairs(pair, tops), frontiers, strict=True
    ):
        for fill, scores in zip(top, pairs, strict=True):
            ranking = noted.latest[fill]
            noted.passes.append(TracedPass(direction, layout.fill(fill), sum(scores), ranking, seen))


def _answer(pair: Pair, progress: Sequence[_Progress], memory: Memory, settings: Settings) -> list[list[Fill]]:
    if settings.rescore:
        proposals = [noted.fills for noted in progress]
        answers = finish(pair, proposals, settings, rank=lambda f, b: f + b, memory=memory)
    else:
        answers = finish(pair, [noted.latest for noted in progress], settings, memory=memory)
    if settings.trace:
        answers = [
            [replace(fill, trace=tuple(noted.passes)) for fill in fills]
            for fills, noted in zip(answers, progress, strict=True)
        ]
    return answers


def _frontiers(latest: Pass, widths: Sequence[int]) -> list[tuple[tuple[tuple[Tokens, float], ...], ...]]:
    """Per example and slot, the partial fills alive when the pass stood there, with their running scores."""
    partial: list[list[Tokens]] = [[()] for _ in widths]
    frontiers: list[list[tuple[tuple[Tokens, float], ...]]] = [[(((), 0.0),)] if width else [] for width in widths]
    for slot, choice in enumerate(latest.choices):
        columns = (choice.parents.tolist(), choice.tokens.tolist(), choice.scores.tolist())
        for example, (parents, tokens, scores) in enumerate(zip(*columns, strict=True)):
            before = partial[example]
            partial[example] = [(*before[parent], token) for parent, token in zip(parents, tokens, strict=True)]
            if slot + 1 < widths[example]:
                alive = [(p, s) for p, s in zip(partial[example], scores, strict=True) if s > -torch.inf]
                frontiers[example].append(tuple(alive))
    return [tuple(slots) for slots in frontiers]
