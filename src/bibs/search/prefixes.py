"""The one memory of a search: a tree of everything that one model has read.

A *node* is a context and the tokens read after it. It is a number, by which the tree keeps the log probabilities (V,)
of what may follow and the model's state. The model is asked about each node once, however many beams, passes, chains or
sentences come by it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .model import Conditions, State, StepModel, map_state, select_rows, shapes
from .problem import Tokens


@dataclass
class _Store:
    """States of one shape. A state may grow with every token read, so a tree may have several stores."""

    state: State  # more rows than are in use
    count: int = 0


@dataclass(frozen=True)
class Recalled:
    """What a tree knows of A sequences, and where each leaves it."""

    totals: Tensor  # (A,) the score of each, as far as it is known
    nodes: list[int]  # the last one known
    left: list[Tokens]  # what follows that node; the probability of its first token is known


class Prefixes:
    """Everything that one model has read, as a tree. Node i, for the first few, is context i."""

    def __init__(self, name: str, model: StepModel, max_rows: int, max_nodes: int, lookup: bool) -> None:
        self.name = name
        self.model = model
        self.vocab_size = model.vocab_size
        self.max_rows = max_rows  # the most that the model is handed at once
        self.max_nodes = max_nodes
        self.lookup = lookup  # without it, what is known is asked for again, with the same result

    def begin(self, contexts: Sequence[Tokens], conditions: Conditions) -> None:
        """Empty the tree and read new contexts."""
        log_probs, state, scores = self.model.start(contexts, conditions)
        self._check("start()", len(contexts), log_probs, state)
        if float(log_probs.max()) > 1e-3:
            warnings.warn(f"the {self.name} model's log probabilities exceed 0: are they logits?", stacklevel=2)
        # (contexts,) the score of each context after its first token
        self.context_scores = self._check_scores("start()", len(contexts), scores)
        self.device = log_probs.device
        self._roots = log_probs, state
        self.forget()

    def forget(self) -> None:
        """Forget all but the contexts: other nodes mean nothing after that."""
        self._children: dict[int, int] = {}  # parent * V + token -> node
        self._edges: list[int] = []  # node -> that key; -1 for a context
        self._stores: dict[tuple[torch.Size, ...], _Store] = {}
        self._places: list[tuple[_Store, int]] = []  # node -> where its state is kept
        self._tables: list[Tensor] = []  # (some nodes, V) each, as the model returned them
        self._starts: list[int] = []  # the first node of each
        self._add([-1] * len(self.context_scores), *self._roots)

    @property
    def is_full(self) -> bool:
        return len(self._edges) > self.max_nodes

    def log_probs(self, nodes: Tensor, tokens: Tensor | None = None) -> Tensor:
        """What may follow each node (R,): (R, V), or (R, T) of given tokens (R, T). A negative node has anything."""
        starts = torch.tensor(self._starts, device=self.device)
        numbers = (torch.bucketize(nodes.contiguous(), starts, right=True) - 1).clamp_(
            min=0
        )  # (R,) of the table that has each
        rows = nodes.clamp(min=0) - starts[numbers]
        result = self.context_scores.new_empty(len(nodes), self.vocab_size if tokens is None else tokens.shape[1])
        for number in set(numbers.tolist()):
            table, at = self._tables[number], (numbers == number).nonzero().flatten()
            part: Tensor = table.index_select(0, rows[at]) if tokens is None else table[rows[at, None], tokens[at]]
            if len(at) == len(nodes):
                return part
            result.index_copy_(0, at, part)
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
        parents = [edge // self.vocab_size for edge in fresh]
        for part, state in self._states(parents):
            read = torch.tensor([fresh[i] % self.vocab_size for i in part], device=self.device)
            log_probs, state = self.model.step(read, state)
            self._check(f"step() at slot {len(self.path(parents[part[0]])) + 1}", len(part), log_probs, state)
            self._add([fresh[i] for i in part], log_probs, state)
        return torch.tensor([self._children[edge] for edge in edges], dtype=torch.long, device=self.device)

    def recall(self, roots: Sequence[int], sequences: Sequence[Tokens]) -> Recalled:
        """Follow each sequence from its root as far as the tree knows it."""
        steps: list[tuple[int, int, int]] = []  # (sequence, node, token that follows)
        ends: list[tuple[int, Tokens]] = []
        for which, (node, tokens) in enumerate(zip(roots, sequences, strict=True)):
            place = 0
            while tokens:
                steps.append((which, node, tokens[place]))
                child = self._children.get(node * self.vocab_size + tokens[place])
                if child is None or place + 1 == len(tokens):
                    break
                node, place = child, place + 1
            ends.append((node, tokens[place:]))
        which_one, at, following = torch.tensor(steps, dtype=torch.long, device=self.device).view(-1, 3).t()
        totals = self.context_scores[list(roots)].index_add(0, which_one, self.log_probs(at, following[:, None])[:, 0])
        return Recalled(totals, [node for node, _ in ends], [left for _, left in ends])

    def score(self, known: Recalled, floors: Tensor) -> Tensor:
        """The score (A,) of each sequence, its context included: exact, but where it is below its floor (A,)."""
        totals = known.totals.clone()
        asked = [i for i, reached in enumerate((totals >= floors).tolist()) if reached and len(known.left[i]) > 1]
        for part, state in self._states([known.nodes[i] for i in asked]):
            rows = [asked[i] for i in part]
            totals[rows] += self._score([known.left[i] for i in rows], state, floors[rows] - totals[rows])
        return totals

    def _score(self, continuations: Sequence[Tokens], state: State, floors: Tensor) -> Tensor:
        """The log probability (R,) of each continuation after its first token, by the model or step by step."""
        if hasattr(self.model, "score"):
            return self._check_scores("score()", len(floors), self.model.score(continuations, state, floors))
        scores = torch.zeros_like(floors)
        rows = torch.arange(len(continuations), device=self.device)  # those still read
        lengths = torch.tensor([len(tokens) for tokens in continuations], device=self.device)
        for place in range(int(lengths.max()) - 1):
            going = (lengths[rows] > place + 1) & (scores[rows] >= floors[rows])
            rows, state = rows[going], select_rows(state, going.nonzero().flatten())
            if not len(rows):
                break
            here = [continuations[row][place : place + 2] for row in rows.tolist()]
            tokens, following = torch.tensor(here, device=self.device).t()
            log_probs, state = self.model.step(tokens, state)
            self._check("step()", len(rows), log_probs, state)
            scores[rows] += log_probs.gather(1, following[:, None])[:, 0]
        return scores

    def _add(self, edges: Sequence[int], log_probs: Tensor, state: State) -> None:
        """Append nodes. One that is known already keeps its number."""
        self._tables.append(log_probs)
        self._starts.append(len(self._edges))
        kind = tuple(shape[1:] for shape in shapes(state))
        store = self._stores.setdefault(kind, _Store(map_state(lambda tensor: tensor[:0], state)))
        store.state = map_state(lambda kept, new: append_rows(kept, store.count, new), store.state, state)
        for edge in edges:
            self._children.setdefault(edge, len(self._edges))
            self._edges.append(edge)
            self._places.append((store, store.count))
            store.count += 1

    def _states(self, nodes: Sequence[int]) -> Iterator[tuple[list[int], State]]:
        """Some places of `nodes` at a time, with the states of those nodes: as many as can be handled together."""
        by_store: dict[int, list[int]] = {}
        for place, node in enumerate(nodes):
            by_store.setdefault(id(self._places[node][0]), []).append(place)
        for places in by_store.values():
            store = self._places[nodes[places[0]]][0]
            for begin in range(0, len(places), self.max_rows):
                part = places[begin : begin + self.max_rows]
                rows = torch.tensor([self._places[nodes[place]][1] for place in part], device=self.device)
                yield part, select_rows(store.state, rows)

    def _check(self, call: str, rows: int, log_probs: Tensor, state: State) -> None:
        """Blame the model for what would be hard to trace later."""
        said = f"the {self.name} model's {call}"
        if log_probs.shape != (rows, self.vocab_size):
            found = tuple(log_probs.shape)
            raise ValueError(f"{said} must return log_probs ({rows}, {self.vocab_size}), but returned {found}")
        for shape in shapes(state):
            if not shape or shape[0] != rows:
                found = tuple(shape)
                raise ValueError(f"{said} must return a state of {rows} rows, but one of its tensors has shape {found}")
        peak = float(log_probs.max())  # NaN and +inf survive a maximum
        if not peak < torch.inf:
            raise ValueError(f"{said} returned a log probability of {peak}")

    def _check_scores(self, call: str, rows: int, scores: Tensor) -> Tensor:
        if scores.shape != (rows,) or not bool((scores < torch.inf).all()):
            raise ValueError(
                f"the {self.name} model's {call} must return scores ({rows},), none NaN or +inf, "
                f"but returned {tuple(scores.shape)}: {scores.tolist()}"
            )
        return scores


def append_rows(buffer: Tensor, count: int, fresh: Tensor) -> Tensor:
    """The buffer with `fresh` written behind its first `count` rows. A full one is replaced by one four times as long:
    memory that nobody has touched costs nothing."""
    if count + len(fresh) > len(buffer):
        larger = buffer.new_empty(4 * (count + len(fresh)), *buffer.shape[1:])
        larger[:count] = buffer[:count]
        buffer = larger
    buffer[count : count + len(fresh)] = fresh
    return buffer
