"""A model that is asked nothing twice: what it says after a beginning is kept, and looked up ever after.

The beginnings of an example form a tree. A state is a place in it, (depth, row), so that chains which began alike share
their steps, and so do the sweeps of one chain. Meant for the samplers, which come back to the same words again and
again. All rows of one level have states of one shape, so that a state may grow with depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from .beam import Opening
from .scoring import Left, score_left
from .step_model import Conditions, State, map_state, select_rows

MAX_VALUES = 2**26
"""How many log probabilities are kept before all is forgotten: 256 MiB in float32."""


@dataclass
class _Level:
    """The beginnings of one length. Buffers have room for more rows than there are."""

    log_probs: Tensor  # (capacity, V)
    state: State
    rows: dict[tuple[int, int], int] = field(default_factory=dict)  # (row one level up, token) -> row

    def add(self, edges: Sequence[tuple[int, int]], log_probs: Tensor, state: State) -> None:
        count = len(self.rows)
        self.log_probs = _write(self.log_probs, count, log_probs)
        self.state = map_state(lambda old, new: _write(old, count, new), self.state, state)
        self.rows.update((edge, count + row) for row, edge in enumerate(edges))


class RememberingModel:
    """Stands for the model of an opening. A state is (R, 2): depth and row; row i of depth 0 is example i."""

    def __init__(self, opening: Opening):
        self.opening = opening
        self.vocab_size = opening.model.vocab_size
        self._levels = [_Level(opening.log_probs, opening.state)]

    @staticmethod
    def open(opening: Opening) -> Opening:
        """The same opening, of a model that remembers."""
        rows = torch.arange(len(opening.layouts), device=opening.slots.device)
        return replace(opening, model=RememberingModel(opening), state=torch.stack([torch.zeros_like(rows), rows], 1))

    def start(self, contexts: Sequence[Sequence[int]], conditions: Conditions = None) -> tuple[Tensor, State, Tensor]:
        raise NotImplementedError("a remembering model goes on from an opening, whose contexts have been read")

    def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = self.read(tokens, state)
        return self.log_probs(state), state

    def read(self, tokens: Tensor, state: Tensor) -> Tensor:
        """The state (R, 2) after one more token (R,). All rows stand at one depth."""
        depth = int(state[0, 0])
        edges = list(zip(state[:, 1].tolist(), tokens.tolist(), strict=True))
        known = self._levels[depth + 1].rows if depth + 1 < len(self._levels) else {}
        fresh = [edge for edge in dict.fromkeys(edges) if edge not in known]
        if fresh:
            parents, chosen = torch.tensor(fresh, device=tokens.device).t()
            told = self.opening.step(chosen, select_rows(self._levels[depth].state, parents), depth + 1)
            if depth + 1 == len(self._levels):
                self._levels.append(_Level(told[0][:0], map_state(lambda tensor: tensor[:0], told[1])))
            self._levels[depth + 1].add(fresh, *told)
        rows = self._levels[depth + 1].rows
        return torch.tensor([(depth + 1, rows[edge]) for edge in edges], device=tokens.device)

    def log_probs(self, state: Tensor) -> Tensor:
        """What follows (R, V) each beginning, of any depth."""
        depths: list[int] = sorted(set(state[:, 0].tolist()))
        if len(depths) == 1:
            return self._levels[depths[0]].log_probs.index_select(0, state[:, 1])
        result = self.opening.log_probs.new_empty(len(state), self.vocab_size)
        for depth in depths:
            rows = (state[:, 0] == depth).nonzero().flatten()
            result[rows] = self._levels[depth].log_probs.index_select(0, state[rows, 1])
        return result

    def score(self, continuations: Sequence[Sequence[int]], state: Tensor, floors: Tensor | None = None) -> Tensor:
        """The log probability (R,) of each continuation after its first token: looked up as far as it is known."""
        totals = self.opening.scores.new_zeros(len(continuations))
        told: dict[int, list[tuple[int, int, int]]] = {}  # depth -> (which, row, token that followed)
        parts: dict[int, list[tuple[int, int, Sequence[int]]]] = {}  # depth -> (which, row, what is left)
        for which, (tokens, (depth, row)) in enumerate(zip(continuations, state.tolist(), strict=True)):
            place = 0
            while place + 1 < len(tokens) and depth + 1 < len(self._levels):
                below = self._levels[depth + 1].rows.get((row, tokens[place]))
                if below is None:
                    break
                place, depth, row = place + 1, depth + 1, below
                told.setdefault(depth, []).append((which, row, tokens[place]))
            parts.setdefault(depth, []).append((which, row, tokens[place:]))
        for depth, known in told.items():
            numbers, rows, tokens_ahead = torch.tensor(known, device=totals.device).t()
            totals.index_add_(0, numbers, self._levels[depth].log_probs[rows, tokens_ahead])
        left = [self._leave(depth, part) for depth, part in parts.items()]
        return score_left(self.opening, left, totals, floors)

    def _leave(self, depth: int, part: Sequence[tuple[int, int, Sequence[int]]]) -> Left:
        return Left(
            asked=[which for which, _, _ in part],
            continuations=[tuple(tokens) for _, _, tokens in part],
            depth=depth,
            state=self._levels[depth].state,
            rows=[row for _, row, _ in part],
        )

    def forget_if_full(self) -> bool:
        """Forget all but the opening when much is kept. Other states mean nothing after that; says whether."""
        full = sum(len(level.rows) for level in self._levels) * self.vocab_size > MAX_VALUES
        if full:
            del self._levels[1:]
        return full


def _write(buffer: Tensor, count: int, fresh: Tensor) -> Tensor:
    """The buffer with `fresh` written behind its first `count` rows; a new one, twice the size, if it is full."""
    if count + len(fresh) > len(buffer):
        bigger = buffer.new_empty(max(2 * len(buffer), count + len(fresh)), *buffer.shape[1:])
        bigger[:count] = buffer[:count]
        buffer = bigger
    buffer[count : count + len(fresh)] = fresh
    return buffer
