"""A recurrent network read one token at a time, without gradients and dropout: what a search asks for.

Everything that a step needs is computed once from the weights. With the embeddings projected beforehand, a step is a
look-up, one product and the gates a layer, and the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import torch
from torch import Tensor

from bibs.models.cells import STEPS, CellState, PreparedLayer
from bibs.models.output import PreparedAdaptive, PreparedDense
from bibs.models.products import Matrix

RecurrentState: TypeAlias = tuple[CellState, ...]
"""One `CellState` a layer, rows first."""

SCORED_ROWS = 512
"""Contexts are scored this many tokens at a time, so that memory stays at SCORED_ROWS x V."""


@dataclass(frozen=True)
class Decoder:
    """The weights of one network, ready for decoding."""

    cell: str
    table: Tensor  # (V, G*H): the first layer's projection of every embedding
    layers: tuple[PreparedLayer, ...]
    output: PreparedDense | PreparedAdaptive
    condition: Matrix | None  # (N, D) -> (N, E): of what is read first, if anything is

    def start(self, contexts: Sequence[Sequence[int]], first: Tensor | None) -> tuple[Tensor, RecurrentState, Tensor]:
        """Read N ragged contexts after a first input (N, E), if there is one; returns as `StepModel.start`."""
        state, scores = self.read(contexts, first)
        return self.output.log_probs(state[-1][0]), state, scores

    def step(self, tokens: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Read one token (R,) in each row: log_probs (R, V) of the next, and the new state."""
        state = self._advance(self.table.index_select(0, tokens), state)
        return self.output.log_probs(state[-1][0]), state

    def score(self, continuations: Sequence[Sequence[int]], state: RecurrentState, floors: Tensor | None) -> Tensor:
        """The log probability (R,) of each continuation after its first token, read from its row of the state.

        A row is read no further once it is below its floor (R,).
        """
        lengths, tokens = _pad(continuations, self.table.device)  # (R,), (R, T)
        rows = torch.arange(len(lengths), device=lengths.device)
        scores = self.table.new_zeros(len(lengths))
        for place in range(tokens.shape[1] - 1):
            going = lengths[rows] > place + 1
            if floors is not None:
                going &= scores[rows] >= floors[rows]
            if not bool(going.all()):
                kept = going.nonzero().flatten()
                rows, state = rows[kept], tuple(tuple(part[kept] for part in layer) for layer in state)
                if not len(rows):
                    break
            state = self._advance(self.table.index_select(0, tokens[rows, place]), state)
            scores.index_add_(0, rows, self._target_log_probs(state[-1][0], tokens[rows, place + 1]))
        return scores

    def _advance(self, gates: Tensor, state: RecurrentState) -> RecurrentState:
        """One step of every layer; `gates` (R, G*H), the first layer's projected input, is overwritten."""
        cell = STEPS[self.cell]
        result = [cell(gates, state[0], self.layers[0])]
        for layer, old in zip(self.layers[1:], state[1:], strict=True):
            result.append(cell(layer.project(result[-1][0]), old, layer))
        return tuple(result)

    def read(self, contexts: Sequence[Sequence[int]], first: Tensor | None) -> tuple[RecurrentState, Tensor]:
        """What `start` does, but for what comes next: the last states (N rows), and the scores (N,)."""
        state = self._empty_state(len(contexts))
        if first is not None:
            state = self._advance(self.layers[0].project(first), state)
        # Longest first: the rows that are still being read at any time are then the first ones.
        order = sorted(range(len(contexts)), key=lambda row: -len(contexts[row]))
        lengths, tokens = _pad([contexts[row] for row in order], self.table.device)
        rows = torch.tensor(order, device=tokens.device)
        columns = tokens.t().contiguous()  # (T, N)
        counts = [int((lengths > place).sum()) for place in range(len(columns) + 1)]
        state = tuple(tuple(part[rows] for part in layer) for layer in state)
        ended: list[RecurrentState] = []
        hidden, targets, owners = [], [], []
        for place, (reading, scored) in enumerate(pairwise(counts)):  # scored: the rows whose next token is given
            gates = self.table.index_select(0, columns[place, :reading])
            state = self._advance(gates, _rows(state, slice(reading)))
            ended.append(_rows(state, slice(scored, reading)))
            if scored:
                hidden.append(state[-1][0][:scored])
                targets.append(columns[place + 1, :scored])
                owners.append(rows[:scored])
        scores = self.table.new_zeros(len(order))
        if hidden:
            log_probs = self._target_log_probs(torch.cat(hidden), torch.cat(targets))
            scores.index_add_(0, torch.cat(owners), log_probs)
        back = torch.argsort(rows)
        last = tuple(
            tuple(torch.cat(parts[::-1])[back] for parts in zip(*layers, strict=True))
            for layers in zip(*ended, strict=True)
        )
        return last, scores

    def _empty_state(self, rows: int) -> RecurrentState:
        parts = 2 if self.cell == "lstm" else 1
        return tuple((self.table.new_zeros(rows, layer.size),) * parts for layer in self.layers)

    def _target_log_probs(self, hidden: Tensor, targets: Tensor) -> Tensor:  # (R, H), (R,) -> (R,)
        pairs = zip(torch.split(hidden, SCORED_ROWS), torch.split(targets, SCORED_ROWS), strict=True)
        return torch.cat([self.output.target_log_probs(*pair) for pair in pairs])


def _pad(sequences: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """The lengths (R,) of ragged sequences, and their tokens (R, T), padded with 0."""
    longest = max(map(len, sequences))
    padded = [[*tokens, *[0] * (longest - len(tokens))] for tokens in sequences]
    return torch.tensor(list(map(len, sequences)), device=device), torch.tensor(padded, device=device)


def _rows(state: RecurrentState, which: slice) -> RecurrentState:
    return tuple(tuple(part[which] for part in layer) for layer in state)
