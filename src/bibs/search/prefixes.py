"""The one memory of a search: a tree of everything that one model has read.

A *node* is a context and the tokens read after it. Nodes of one depth stand in one table, a row each: what may follow
them, log P(y | all read so far) for every y, and the model's state. The model is asked about each node once, however
many beams, passes, chains or sentences come by it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from .model import Conditions, ScoringModel, State, map_state, select_conditions, select_rows
from .problem import Tokens


class Level:
    """The nodes of one depth. All have states of one shape, which may differ from those of other depths."""

    def __init__(self) -> None:
        self.edges: list[int] = []  # of each row: parent * V + token
        self.rows: dict[int, int] = {}  # edge -> row
        self.tables: tuple[Tensor, State] | None = None  # log_probs and state, with room for more rows

    def append(self, edges: Sequence[int], log_probs: Tensor, state: State) -> None:
        """Take in new rows; the first ones as they are, without a copy."""
        size = len(self.edges)
        new = (log_probs, state)
        self.tables = new if self.tables is None else map_state(lambda *both: _join(size, *both), self.tables, new)
        for row, edge in enumerate(edges, start=size):
            self.rows.setdefault(edge, row)
        self.edges += edges

    @property
    def log_probs(self) -> Tensor:  # (nodes, V)
        assert self.tables is not None
        return self.tables[0][: len(self.edges)]

    @property
    def shapes(self) -> tuple[torch.Size, ...]:
        """Of a row of its states."""
        found: list[torch.Size] = []
        map_state(lambda tensor: found.append(tensor.shape[1:]) or tensor, self.tables)  # type: ignore[func-returns-value]
        return tuple(found)

    def state(self, rows: Tensor) -> State:
        assert self.tables is not None
        return select_rows(self.tables[1], rows)


def _join(size: int, table: Tensor, rows: Tensor) -> Tensor:
    """The first `size` rows of a table, and more behind them; the table doubles where it has no room."""
    end = size + len(rows)
    if end > len(table):
        grown = table.new_empty(2 * end, *table.shape[1:])
        grown[:size] = table[:size]
        table = grown
    table[size:end] = rows
    return table


@dataclass(frozen=True)
class Recalled:
    """What a tree knows of A sequences, and where each leaves it."""

    totals: Tensor  # (A,) the score of each, as far as it is known
    nodes: list[tuple[int, int]]  # depth and row of the last one known
    left: list[Tokens]  # what follows that node; the probability of its first token is known


class Prefixes:
    """Everything that one model has read, as a tree. Row i of depth 0 is context i."""

    def __init__(self, model: ScoringModel, max_rows: int, max_nodes: int, lookup: bool) -> None:
        self.model = model
        self.vocab_size = model.vocab_size
        self.max_rows = max_rows  # the most that the model is handed at once
        self.max_nodes = max_nodes
        self.lookup = lookup  # without it, what is known is asked for again, with the same result

    def begin(self, contexts: Sequence[Tokens], conditions: Conditions) -> None:
        """Empty the tree and read new contexts."""
        log_probs, state, self.context_scores = self.model.start(contexts, conditions)  # the scores are (contexts,)
        self.device = log_probs.device
        self.conditions = conditions
        root = Level()
        root.append(range(-len(contexts), 0), log_probs, state)
        self._levels = [root]
        self._exact: dict[tuple[int, Tokens], float] = {}  # by context and sentence

    def forget(self) -> None:
        """Forget all but the contexts: other nodes mean nothing after that."""
        del self._levels[1:]

    @property
    def is_full(self) -> bool:
        return sum(len(level.edges) for level in self._levels) > self.max_nodes

    def log_probs(self, depth: int) -> Tensor:
        """What may follow each node of a depth: (nodes, V)."""
        level = self._levels[depth]
        return (level if level.edges else self._levels[0]).log_probs  # beams that are dead need rows to point at, too

    def path(self, depth: int, row: int) -> Tokens:
        """The tokens read after the context."""
        tokens: list[int] = []
        for level in self._levels[depth:0:-1]:
            row, token = divmod(level.edges[row], self.vocab_size)
            tokens.append(token)
        return tuple(reversed(tokens))

    def read(self, depth: int, rows: Sequence[int], tokens: Sequence[int]) -> list[int]:
        """The rows, one level deeper, after one more token each. What is new is stepped, all at once."""
        if depth + 1 == len(self._levels):
            self._levels.append(Level())
        here, below = self._levels[depth : depth + 2]
        edges = [row * self.vocab_size + token for row, token in zip(rows, tokens, strict=True)]
        fresh = [edge for edge in dict.fromkeys(edges) if not self.lookup or edge not in below.rows]
        for first in range(0, len(fresh), self.max_rows):
            some = fresh[first : first + self.max_rows]
            new = torch.tensor(some, device=self.device)
            below.append(some, *self.model.step(new % self.vocab_size, here.state(new // self.vocab_size)))
        return [below.rows[edge] for edge in edges]

    def recall(self, roots: Sequence[int], sequences: Sequence[Tokens]) -> Recalled:
        """Follow each sequence from its root as far as the tree knows it."""
        steps: dict[int, list[tuple[int, int, int]]] = defaultdict(list)  # depth -> (sequence, row, token that follows)
        nodes: list[tuple[int, int]] = []
        for which, (row, tokens) in enumerate(zip(roots, sequences, strict=True)):
            depth = 0
            for depth, token in enumerate(tokens):
                steps[depth].append((which, row, token))
                known = self._levels[depth + 1].rows if depth + 1 < min(len(self._levels), len(tokens)) else {}
                child = known.get(row * self.vocab_size + token)
                if child is None:
                    break
                row = child
            nodes.append((depth, row))
        totals = self.context_scores[list(roots)]
        for depth, several in steps.items():
            sequence, rows, following = torch.tensor(several, device=self.device).t()
            totals.index_add_(0, sequence, self.log_probs(depth)[rows, following])
        left = [tokens[depth:] for (depth, _), tokens in zip(nodes, sequences, strict=True)]
        return Recalled(totals, nodes, left)

    def score(self, known: Recalled, floors: Tensor) -> Tensor:
        """The score (A,) of each sequence, its context included: exact, but where it is below its floor (A,)."""
        totals = known.totals.clone()
        promising = (totals >= floors).tolist()
        asked = [which for which, tokens in enumerate(known.left) if len(tokens) > 1 and promising[which]]
        alike: dict[object, list[int]] = defaultdict(list)  # by the shapes of their states
        for which in sorted(asked, key=lambda which: known.nodes[which]):
            alike[self._levels[known.nodes[which][0]].shapes].append(which)
        for several in alike.values():
            for first in range(0, len(several), self.max_rows):
                some = several[first : first + self.max_rows]
                rows = torch.tensor(some, device=self.device)
                state = self._states([known.nodes[which] for which in some])
                left = [known.left[which] for which in some]
                totals[rows] += self.model.score(left, state, floors[rows] - totals[rows])
        return totals

    def exact_scores(self, roots: Sequence[int], sentences: Sequence[Tokens]) -> list[float]:
        """What whole sentences are to come back with. Each is asked for once."""
        asked = list(zip(roots, sentences, strict=True))
        new = [each for each in dict.fromkeys(asked) if each not in self._exact]
        for first in range(0, len(new), self.max_rows):
            some = new[first : first + self.max_rows]
            conditions = select_conditions(self.conditions, [root for root, _ in some])
            scores = self.model.exact_scores([sentence for _, sentence in some], conditions)
            self._exact.update(zip(some, scores.tolist(), strict=True))
        return [self._exact[each] for each in asked]

    def _states(self, nodes: Sequence[tuple[int, int]]) -> State:
        """The states of nodes, which are sorted by depth and alike in shape, as one."""
        parts = []
        for depth, group in groupby(nodes, key=lambda node: node[0]):
            parts.append(self._levels[depth].state(torch.tensor([row for _, row in group], device=self.device)))
        return map_state(lambda *tensors: torch.cat(tensors), *parts)
