"""Counts of trips as a model of one's own: where people turn who are bound for somewhere.

    P(y | here, bound for z) = [ c(z, here, y) + t P(y | here) ] / [ c(z, here) + t ]        (Witten and Bell, 1991)

where c counts the moves of trips, t is how many different crossings came after `here` on the way to z, and P(y | here)
is counted from all trips. A trip was bound for every crossing that it came to, until it was there. A move that nobody
ever made has probability 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class TripModel:
    """Reads in the direction in which the trips are given, from checkpoint to checkpoint.

    A condition is the list of checkpoints in that order, the first and the last crossing included. A state (R, 2 + m)
    is the crossing, how many checkpoints were met, and the checkpoints.
    """

    def __init__(self, trips: Sequence[Sequence[int]], num_crossings: int) -> None:
        self.vocab_size = num_crossings
        counts = torch.zeros(num_crossings, num_crossings, num_crossings, dtype=torch.float64)  # (z, here, y)
        moves = counts.new_zeros(num_crossings, num_crossings)  # (here, y)
        for trip in trips:
            path = torch.tensor(trip)
            moves.index_put_((path[:-1], path[1:]), torch.ones(1).double(), accumulate=True)
            move, behind = torch.triu_indices(len(path) - 1, len(path) - 1)  # every move, every crossing after it
            counts.index_put_((path[behind + 1], path[move], path[move + 1]), torch.ones(1).double(), accumulate=True)
        alone = moves / moves.sum(1, keepdim=True).clamp(min=1)
        new = (counts > 0).sum(2, keepdim=True)
        seen = counts.sum(2, keepdim=True)
        self.table = torch.where(seen > 0, (counts + new * alone) / (seen + new).clamp(min=1), alone).log()

    def start(
        self, contexts: Sequence[Sequence[int]], conditions: Sequence[Sequence[int]]
    ) -> tuple[Tensor, Tensor, Tensor]:
        parts = [self._read(context, checkpoints) for context, checkpoints in zip(contexts, conditions, strict=True)]
        log_probs, states, scores = zip(*parts, strict=True)
        return torch.cat(log_probs), torch.cat(states), torch.cat(scores)

    def _read(self, context: Sequence[int], checkpoints: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        log_probs, state = self.step(torch.tensor(context[:1]), torch.tensor([[0, 0, *checkpoints]]))
        score = torch.zeros(1, dtype=torch.float64)
        for token in context[1:]:
            score = score + log_probs[:, token]
            log_probs, state = self.step(torch.tensor([token]), state)
        return log_probs, state, score

    def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        met, checkpoints = state[:, 1:2], state[:, 2:]
        last = checkpoints.shape[1] - 1
        met = met + (checkpoints.gather(1, met.clamp(max=last)) == tokens[:, None])
        bound_for = checkpoints.gather(1, met.clamp(max=last))[:, 0]
        return self.table[bound_for, tokens], torch.cat([tokens[:, None], met, checkpoints], 1)


class Homeward(TripModel):
    """The same for trips from goal to start: the checkpoints, which are given in the order of the trip, are turned."""

    def __init__(self, trips: Sequence[Sequence[int]], num_crossings: int) -> None:
        super().__init__([trip[::-1] for trip in trips], num_crossings)

    def start(
        self, contexts: Sequence[Sequence[int]], conditions: Sequence[Sequence[int]]
    ) -> tuple[Tensor, Tensor, Tensor]:
        return super().start(contexts, [checkpoints[::-1] for checkpoints in conditions])


def count_pair(trips: Sequence[Sequence[int]], num_crossings: int) -> tuple[TripModel, Homeward]:
    return TripModel(trips, num_crossings), Homeward(trips, num_crossings)
