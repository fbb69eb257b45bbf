"""The paper's baselines that search one way: URNN-f, URNN-b, and the re-rankings of both beams."""

from __future__ import annotations

from bibs.search import DIRECTIONS, Batch, Direction, Fill, Fills, Settings, finish, run_pass


def search_forward(batch: Batch, settings: Settings) -> list[list[Fill]]:
    """URNN-f: plain beam search, ranked by the forward score of the fill given its left side."""
    return finish(batch, plain_beams(batch, "forward"), settings, "own")


def search_backward(batch: Batch, settings: Settings) -> list[list[Fill]]:
    """URNN-b: plain beam search, ranked by the backward score of the fill given its right side."""
    return finish(batch, plain_beams(batch, "backward"), settings, "own")


def search_rerank_max(batch: Batch, settings: Settings) -> list[list[Fill]]:
    """URNN-f+b: the beams of both directions, ranked by the larger of the two whole-sequence scores."""
    return finish(batch, _both(batch), settings, "max")


def search_rerank_sum(batch: Batch, settings: Settings) -> list[list[Fill]]:
    """BiRNN-f+b: the beams of both directions, ranked by the sum of the two whole-sequence scores."""
    return finish(batch, _both(batch), settings, "sum")


def plain_beams(batch: Batch, direction: Direction) -> list[Fills]:
    """The fills of each example that a plain pass ends with, best first, from left to right."""
    return [done.fills for done in run_pass(batch[direction])]


def _both(batch: Batch) -> list[Fills]:
    return [{**a, **b} for a, b in zip(*(plain_beams(batch, direction) for direction in DIRECTIONS), strict=True)]
