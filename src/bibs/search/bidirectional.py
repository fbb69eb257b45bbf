"""Bidirectional Beam Search (the paper's Alg. 1): beam searches in alternating directions, each steered by the last.

    left to right, slot t:   top-B over (b, y) of   s_b + f_b(y) + max_b' [ c_b' + g_b'(y) ]

The first pass is plain. An example is settled as soon as a pass finds the frontiers of the previous pass in its
direction: the other direction is a function of them, so nothing can change any more. The fills of all passes are then
scored exactly, S(Y) = log P_f(Y) + log P_g(Y), and the best returned, so the best S never falls with more rounds.
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
    TracedPass,
    finish,
    opposite,
    propose,
    score_both,
)
from .settings import Direction, Settings
from .template import Tokens


@dataclass
class Progress:
    """How far one example has come."""

    fills: Proposal = field(default_factory=dict)  # of every pass
    latest: Proposal = field(default_factory=dict)  # of the last pass
    passes: list[TracedPass] = field(default_factory=list)
    rounds: int | None = None  # after which nothing could change any more


def search_both_ways(pair: Pair, settings: Settings) -> list[list[Fill]]:
    """Bidirectional beam search over one batch."""
    progress, memory = run_passes(pair, settings)
    if settings.rescore:
        proposals: list[Proposal] = [{**noted.latest, **noted.fills} for noted in progress]
        answers = finish(pair, memory, proposals, settings, "sum")
    else:
        answers = finish(pair, memory, [noted.latest for noted in progress], settings, "own")
    return [
        [
            replace(
                fill, rounds=settings.num_rounds if noted.rounds is None else noted.rounds, trace=tuple(noted.passes)
            )
            for fill in fills
        ]
        for fills, noted in zip(answers, progress, strict=True)
    ]


def run_passes(pair: Pair, settings: Settings) -> tuple[list[Progress], Memory]:
    """Pass after pass, until nothing can change any more; what they found, and what they remember."""
    progress = [Progress() for _ in range(len(pair))]
    memory = Memory()
    direction = settings.start
    for number in range(2 * settings.num_rounds + 1):
        latest = beam_search(
            pair[direction],
            num_beams=settings.num_beams,
            facing=memory[opposite(direction)],
            previous=memory[direction],
            keep=settings.lookup,
        )
        memory = memory.after(direction, latest)
        _note(progress, pair, direction, latest, number, settings.trace)
        if all(noted.rounds is not None for noted in progress):
            break
        direction = opposite(direction)
    return progress, memory


def _note(
    progress: Sequence[Progress], pair: Pair, direction: Direction, latest: Pass, number: int, trace: bool
) -> None:
    """Take down what a pass found for the examples that it could still change."""
    widths = pair[direction].widths.tolist()
    proposals = propose(direction, latest, widths)
    settled = latest.settled.tolist()
    going = [row for row, noted in enumerate(progress) if noted.rounds is None]
    for row in going:
        noted = progress[row]
        noted.latest = proposals[row]
        noted.fills.update(proposals[row])
        if settled[row]:
            noted.rounds = (number + 1) // 2
    if trace:
        tops = [list(proposal)[:1] for proposal in proposals]
        scores = score_both(pair, Memory(), tops)
        frontiers = frontiers_of(latest, widths)
        for row in going:
            for fill, pairs in zip(tops[row], scores[row], strict=True):
                tokens, own = pair.forward.layouts[row].fill(fill), proposals[row][fill]
                progress[row].passes.append(TracedPass(direction, tokens, sum(pairs), own, frontiers[row]))


def frontiers_of(latest: Pass, widths: Sequence[int]) -> list[tuple[tuple[tuple[Tokens, float], ...], ...]]:
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
