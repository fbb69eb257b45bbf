"""The paper's baselines that search one way: URNN-f, URNN-b, and the re-rankings of both beams."""

from __future__ import annotations

from .beam import beam_search
from .pair import DIRECTIONS, Fill, Memory, Pair, Proposal, finish, propose
from .settings import Direction, Settings


def search_forward(pair: Pair, settings: Settings) -> list[list[Fill]]:
    """URNN-f: plain beam search, ranked by the forward score of the fill given its left side."""
    return _search_one_way(pair, settings, "forward")


def search_backward(pair: Pair, settings: Settings) -> list[list[Fill]]:
    """URNN-b: plain beam search, ranked by the backward score of the fill given its right side."""
    return _search_one_way(pair, settings, "backward")


def search_rerank_max(pair: Pair, settings: Settings) -> list[list[Fill]]:
    """URNN-f+b: the beams of both directions, ranked by the larger of the two whole-sequence scores."""
    return finish(pair, *_both(pair, settings), settings, "max")


def search_rerank_sum(pair: Pair, settings: Settings) -> list[list[Fill]]:
    """BiRNN-f+b: the beams of both directions, ranked by the sum of the two whole-sequence scores."""
    return finish(pair, *_both(pair, settings), settings, "sum")


def _search_one_way(pair: Pair, settings: Settings, direction: Direction) -> list[list[Fill]]:
    opening = pair[direction]
    latest = beam_search(opening, num_beams=settings.num_beams, send=False)
    proposals = propose(direction, latest, opening.widths.tolist())
    return finish(pair, Memory().after(direction, latest), proposals, settings, "own")


def _both(pair: Pair, settings: Settings) -> tuple[Memory, list[Proposal]]:
    memory = Memory(*(beam_search(pair[d], num_beams=settings.num_beams, send=False) for d in DIRECTIONS))
    assert memory.forward is not None
    assert memory.backward is not None
    widths = pair.forward.widths.tolist()
    beams = (
        propose(d, latest, widths) for d, latest in zip(DIRECTIONS, (memory.forward, memory.backward), strict=True)
    )
    return memory, [{**forward, **backward} for forward, backward in zip(*beams, strict=True)]
