"""Models small enough to be followed by hand, or strange enough to catch a mistake."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bibs import StepModel

State = Any
Conditions = Tensor | Sequence[Any] | None


def select_rows(state: State, rows: Tensor) -> State:
    """Some rows of a nest of tensors."""
    if isinstance(state, Tensor):
        return state[rows]
    if isinstance(state, dict):
        return {key: select_rows(part, rows) for key, part in state.items()}
    if isinstance(state, tuple | list):
        parts = [select_rows(part, rows) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)
    return state


def score_from_scratch(model: StepModel, tokens: Sequence[int], condition: object = None) -> float:
    """log P of every token after the first: the model reads the whole sequence at once, alone."""
    return model.start([list(tokens)], None if condition is None else [condition])[2].item()


class MatrixModel:
    """A first-order chain: row i of the matrix is what follows token i. Its beams can be followed by hand."""

    def __init__(self, probabilities: Sequence[Sequence[float]] | Tensor):
        self.log_matrix = torch.as_tensor(probabilities, dtype=torch.float64).log()
        self.vocab_size = len(self.log_matrix)

    @staticmethod
    def uniform(vocab_size: int) -> MatrixModel:
        return MatrixModel(torch.full((vocab_size, vocab_size), 1 / vocab_size))

    @staticmethod
    def random(vocab_size: int, seed: int) -> MatrixModel:
        generator = torch.Generator().manual_seed(seed)
        return MatrixModel(torch.randn(vocab_size, vocab_size, generator=generator, dtype=torch.float64).softmax(1))

    @staticmethod
    def walk(num_cells: int) -> MatrixModel:
        """A walk along a line of cells: every step moves one cell up or down."""
        near = torch.tensor([[abs(a - b) == 1 for b in range(num_cells)] for a in range(num_cells)]).double()
        return MatrixModel(near / near.sum(1, keepdim=True))

    def start(self, contexts: Sequence[Sequence[int]], conditions: Conditions = None) -> tuple[Tensor, State, Tensor]:
        last = torch.tensor([context[-1] for context in contexts])
        return self.log_matrix[last], last, self.score(contexts, last)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        assert len(tokens) == len(state)
        return self.log_matrix[tokens], tokens

    def score(self, continuations: Sequence[Sequence[int]], state: State, floors: Tensor | None = None) -> Tensor:
        scores = [sum(float(self.log_matrix[a, b]) for a, b in itertools.pairwise(tokens)) for tokens in continuations]
        return torch.tensor(scores, dtype=torch.float64)


class Nest(NamedTuple):
    conditions: list[Tensor]
    nothing: None = None


class HistoryModel:
    """Every distribution depends on the whole prefix (and condition), so a mixed-up state cannot go unseen.

    Its state has every kind of nest. In it is the prefix itself, padded on the left, which grows with every step.
    """

    def __init__(self, vocab_size: int, seed: int = 0, *, sharpness: float = 1.5, choices: int | None = None):
        """All but so many `choices` are impossible, now these, now those."""
        self.vocab_size = vocab_size
        self.seed = seed
        self.sharpness = sharpness
        self.choices = choices or vocab_size
        self._cache: dict[tuple[object, ...], Tensor] = {}

    @classmethod
    def like(cls, other: HistoryModel) -> HistoryModel:
        """The same distributions in another kind of model."""
        return cls(other.vocab_size, other.seed, sharpness=other.sharpness, choices=other.choices)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.vocab_size}, {self.seed}, choices={self.choices})"

    def log_probs_after(self, prefix: Sequence[int], condition: int = 0) -> Tensor:
        key = (self.seed, condition, *prefix)
        if key not in self._cache:
            generator = torch.Generator().manual_seed(zlib.crc32(repr(key).encode()))
            logits = torch.randn(self.vocab_size, generator=generator, dtype=torch.float64) * self.sharpness
            least = logits.topk(self.choices).values[-1]
            self._cache[key] = logits.masked_fill(logits < least, -torch.inf).log_softmax(0)
        return self._cache[key]

    def score_after(self, prefix: Sequence[int], tokens: Sequence[int], condition: int = 0) -> float:
        """log P of the tokens after the prefix."""
        whole = [*prefix, *tokens]
        places = range(len(prefix), len(whole))
        return sum(float(self.log_probs_after(whole[:place], condition)[whole[place]]) for place in places)

    @staticmethod
    def unpack(state: State) -> list[tuple[list[int], int]]:
        """What each row has read, and its condition."""
        (nest,) = state["nest"]
        assert isinstance(nest, Nest)
        rows = [[token for token in row if token >= 0] for row in state["prefix"].tolist()]
        return list(zip(rows, nest.conditions[0].tolist(), strict=True))

    def _read(self, state: State) -> Tensor:
        return torch.stack([self.log_probs_after(row, condition) for row, condition in self.unpack(state)])

    def start(self, contexts: Sequence[Sequence[int]], conditions: Conditions = None) -> tuple[Tensor, State, Tensor]:
        longest = max(map(len, contexts))
        padded = [[-1] * (longest - len(context)) + list(context) for context in contexts]
        numbers = [0 if conditions is None else int(conditions[row]) for row in range(len(contexts))]
        state = {"prefix": torch.tensor(padded), "nest": (Nest([torch.tensor(numbers)]),)}
        scores = [
            self.score_after(context[:1], context[1:], number)
            for context, number in zip(contexts, numbers, strict=True)
        ]
        return self._read(state), state, torch.tensor(scores, dtype=torch.float64)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        assert len(tokens) == len(state["prefix"])
        state = {**state, "prefix": torch.cat([state["prefix"], tokens[:, None]], 1)}
        return self._read(state), state


class ScoringHistoryModel(HistoryModel):
    """A history model that scores given tokens itself, straight from its definition."""

    def score(self, continuations: Sequence[Sequence[int]], state: State, floors: Tensor | None = None) -> Tensor:
        rows = zip(continuations, self.unpack(state), strict=True)
        scores = [self.score_after([*read, tokens[0]], tokens[1:], condition) for tokens, (read, condition) in rows]
        return torch.tensor(scores, dtype=torch.float64)


class FrugalHistoryModel(ScoringHistoryModel):
    """Reads no further than the floor, and says so little below it that any use of the value would be seen."""

    given_up = 0

    def score(self, continuations: Sequence[Sequence[int]], state: State, floors: Tensor | None = None) -> Tensor:
        exact = super().score(continuations, state)
        if floors is None:
            return exact
        self.given_up += int((exact < floors).sum())
        return exact.masked_fill(exact < floors, -1e6)


class CountingModel:
    """Passes everything on and counts what it was asked. A model that scores is stepped all the same."""

    def __init__(self, model: StepModel):
        self.model = model
        self.vocab_size = model.vocab_size
        self.starts = self.contexts = self.calls = self.rows = self.widest = 0

    def start(self, contexts: Sequence[Sequence[int]], conditions: Conditions = None) -> tuple[Tensor, State, Tensor]:
        self.starts += 1
        self.contexts += len(contexts)
        return self.model.start(contexts, conditions)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        self.calls += 1
        self.rows += len(tokens)
        self.widest = max(self.widest, len(tokens))
        return self.model.step(tokens, state)


class CountingScoringModel(CountingModel):
    """The same for a model that scores given tokens itself: `scored` counts those, and only passes step."""

    scored = 0

    def score(self, continuations: Sequence[Sequence[int]], state: State, floors: Tensor | None = None) -> Tensor:
        self.scored += sum(len(tokens) - 1 for tokens in continuations)
        self.widest = max(self.widest, len(continuations))
        return self.model.score(continuations, state, floors)  # type: ignore[attr-defined]


class TamperingModel:
    """Passes everything on but changes what `step` or `start` returns."""

    def __init__(self, model: StepModel, tamper: Callable[[str, Tensor, State], tuple[Tensor, State]]):
        self.model = model
        self.vocab_size = model.vocab_size
        self.tamper = tamper

    def start(self, contexts: Sequence[Sequence[int]], conditions: Conditions = None) -> tuple[Tensor, State, Tensor]:
        log_probs, state, scores = self.model.start(contexts, conditions)
        return *self.tamper("start", log_probs, state), scores

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return self.tamper("step", *self.model.step(tokens, state))
