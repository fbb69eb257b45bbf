"""The one memory of a search: a tree of everything that one model has read.

A *node* is a context and the tokens read after it. It is a number, by which the tree finds the log probabilities (V,)
of what may follow and the model's state. The model is asked about each node once, however many beams, passes, chains or
sentences come by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .model import Conditions, ScoringModel, State, map_state, select_rows, shapes
from .problem import Tokens


class Block(NamedTuple):
    """What the model returned in one call, kept as it is. Its rows are nodes that follow one another."""

    log_probs: Tensor  # (rows, V)
    state: State


@dataclass(frozen=True)
class Recalled:
    """What a tree knows of A sequences, and where each leaves it."""

    totals: Tensor  # (A,) the score of each, as far as it is known
    nodes: Tensor  # (A,) the last one known
    left: list[Tokens]  # what follows that node; the probability of its first token is known


class Prefixes:
    """Everything that one model has read, as a tree. Node i, for the first few, is context i."""

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
        self._roots = Block(log_probs, state)
        self.forget()

    def forget(self) -> None:
        """Forget all but the contexts: other nodes mean nothing after that."""
        self._children: dict[int, int] = {}  # parent * V + token -> node
        self._edges: list[int] = []  # node -> that key; -1 for a context
        self._blocks: list[Block] = []
        self._starts: list[int] = []  # the first node of each block
        self._add([-1] * len(self.context_scores), self._roots)

    @property
    def is_full(self) -> bool:
        return len(self._edges) > self.max_nodes

    def log_probs(self, nodes: Tensor, tokens: Tensor | None = None) -> Tensor:
        """What may follow each node (R,): (R, V), or (R, T) of given tokens (R, T). A negative node has anything."""
        result = self.context_scores.new_empty(len(nodes), self.vocab_size if tokens is None else tokens.shape[1])
        for block, places, rows in self._in_blocks(nodes):
            table = block.log_probs
            part: Tensor = table.index_select(0, rows) if tokens is None else table[rows[:, None], tokens[places]]
            if len(places) == len(nodes):
                return part
            result.index_copy_(0, places, part)
        return result

    def path(self, node: int) -> Tokens:
        """The tokens read after the context."""
        tokens: list[int] = []
        while (edge := self._edges[node]) >= 0:
            node, token = divmod(edge, self.vocab_size)
            tokens.append(token)
        return tuple(reversed(tokens))

    def read(self, nodes: Tensor, tokens: Tensor) -> Tensor:
        """The nodes (R,) after one more token (R,) each. What is new is stepped, all at once."""
        edges: list[int] = (nodes * self.vocab_size + tokens).tolist()
        fresh = [edge for edge in dict.fromkeys(edges) if not self.lookup or edge not in self._children]
        new = torch.tensor(fresh, dtype=torch.long, device=self.device)
        for places, state in self._states(new // self.vocab_size):
            block = Block(*self.model.step(new[places] % self.vocab_size, state))
            self._add(new[places].tolist(), block)
        return torch.tensor([self._children[edge] for edge in edges], dtype=torch.long, device=self.device)

    def recall(self, roots: Sequence[int], sequences: Sequence[Tokens]) -> Recalled:
        """Follow each sequence from its root as far as the tree knows it."""
        steps: list[tuple[int, int, int]] = []  # (sequence, node, token that follows)
        nodes, left = list(roots), list(sequences)
        for which, tokens in enumerate(sequences):
            for place, token in enumerate(tokens):
                steps.append((which, nodes[which], token))
                left[which] = tokens[place:]
                child = self._children.get(nodes[which] * self.vocab_size + token)
                if child is None or place + 1 == len(tokens):
                    break
                nodes[which] = child
        which_one, at, following = torch.tensor(steps, dtype=torch.long, device=self.device).view(-1, 3).t()
        totals = self.context_scores[list(roots)].index_add(0, which_one, self.log_probs(at, following[:, None])[:, 0])
        return Recalled(totals, torch.tensor(nodes, dtype=torch.long, device=self.device), left)

    def score(self, known: Recalled, floors: Tensor) -> Tensor:
        """The score (A,) of each sequence, its context included: exact, but where it is below its floor (A,)."""
        totals = known.totals.clone()
        unread = torch.tensor([len(tokens) > 1 for tokens in known.left], dtype=torch.bool, device=self.device)
        asked = (unread & (totals >= floors)).nonzero().flatten()
        for places, state in self._states(known.nodes[asked]):
            rows = asked[places]
            left = [known.left[row] for row in rows.tolist()]
            totals[rows] += self.model.score(left, state, floors[rows] - totals[rows])
        return totals

    def _add(self, edges: Sequence[int], block: Block) -> None:
        """Append nodes. One that is known already keeps its number."""
        self._starts.append(len(self._edges))
        self._blocks.append(block)
        for edge in edges:
            self._children.setdefault(edge, len(self._edges))
            self._edges.append(edge)

    def _in_blocks(self, nodes: Tensor) -> Iterator[tuple[Block, Tensor, Tensor]]:
        """Block by block: which of the nodes (R,) it has, as places in `nodes`, and in which of its rows."""
        starts = torch.tensor(self._starts, device=self.device)
        nodes = nodes.clamp(min=0)
        numbers = torch.bucketize(nodes, starts, right=True) - 1  # (R,)
        rows = nodes - starts[numbers]
        for number in sorted(set(numbers.tolist())):
            places = (numbers == number).nonzero().flatten()
            yield self._blocks[number], places, rows[places]

    def _states(self, nodes: Tensor) -> Iterator[tuple[Tensor, State]]:
        """Some places in `nodes` (R,) at a time, with the states of those nodes: as many as can be handled together."""
        for first in range(0, len(nodes), self.max_rows):
            # A state may grow with every token read, so states of different depths may not fit together.
            alike: dict[tuple[torch.Size, ...], list[tuple[Tensor, State]]] = {}
            for block, places, rows in self._in_blocks(nodes[first : first + self.max_rows]):
                kind = tuple(shape[1:] for shape in shapes(block.state))
                alike.setdefault(kind, []).append((places + first, select_rows(block.state, rows)))
            for parts in alike.values():
                several, states = zip(*parts, strict=True)
                yield torch.cat(several), map_state(lambda *tensors: torch.cat(tensors), *states)
