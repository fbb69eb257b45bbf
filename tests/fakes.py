"""Models small enough to be followed by hand, or strange enough to catch a mistake; and enumeration, the judge."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bibs.search.step_model import Conditions, ScoringModel, State, StepModel, select_rows


class MatrixModel:
    """A first-order chain: row i of the matrix is what follows token i. Its beams can be followed by hand."""

    def __init__(self, probabilities: Sequence[Sequence[float]] | Tensor):
        self.log_matrix = torch.as_tensor(probabilities, dtype=torch.float64).log()
        self.vocab_size = len(self.log_matrix)

    def start(self, contexts: Sequence[Sequence[int]], conditions: Conditions = None) -> tuple[Tensor, State, Tensor]:
        last = torch.tensor([context[-1] for context in contexts])
        scores = [sum(float(self.log_matrix[a, b]) for a, b in itertools.pairwise(context)) for context in contexts]
        return self.log_matrix[last], last, torch.tensor(scores, dtype=torch.float64)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        assert len(tokens) == len(state)
        return self.log_matrix[tokens], tokens


class HistoryModel:
    """Every distribution depends on the whole prefix (and condition), so a mixed-up state cannot go unseen.

    Its state is the prefix itself, a tensor that grows with every step, padded on the left, inside a nest.
    """

    def __init__(self, vocab_size: int, seed: int = 0, *, sharpness: float = 1.5):
        self.vocab_size = vocab_size
        self.seed = seed
        self.sharpness = sharpness
        self._cache: dict[tuple[object, ...], Tensor] = {}

    def log_probs_after(self, prefix: Sequence[int], condition: int = 0) -> Tensor:
        key = (self.seed, condition, *prefix)
        if key not in self._cache:
            generator = torch.Generator().manual_seed(zlib.crc32(repr(key).encode()))
            logits = torch.randn(self.vocab_size, generator=generator, dtype=torch.float64) * self.sharpness
            self._cache[key] = logits.log_softmax(0)
        return self._cache[key]

    def _read(self, state: State) -> Tensor:
        rows = [[token for token in row if token >= 0] for row in state["prefix"].tolist()]
        pairs = zip(rows, state["condition"][0].tolist(), strict=True)
        return torch.stack([self.log_probs_after(row, condition) for row, condition in pairs])

    def start(self, contexts: Sequence[Sequence[int]], conditions: Conditions = None) -> tuple[Tensor, State, Tensor]:
        longest = max(map(len, contexts))
        padded = [[-1] * (longest - len(context)) + list(context) for context in contexts]
        numbers = [0 if conditions is None else int(conditions[row]) for row in range(len(contexts))]
        state = {"prefix": torch.tensor(padded), "condition": (torch.tensor(numbers),)}
        scores = [
            sum(float(self.log_probs_after(context[:t], number)[context[t]]) for t in range(1, len(context)))
            for context, number in zip(contexts, numbers, strict=True)
        ]
        return self._read(state), state, torch.tensor(scores, dtype=torch.float64)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        assert len(tokens) == len(state["prefix"])
        state = {**state, "prefix": torch.cat([state["prefix"], tokens[:, None]], 1)}
        return self._read(state), state


class PickyModel(HistoryModel):
    """A history model to which all but three tokens are impossible, now these, now those."""

    def log_probs_after(self, prefix: Sequence[int], condition: int = 0) -> Tensor:
        log_probs = super().log_probs_after(prefix, condition)
        return log_probs.masked_fill(log_probs < log_probs.topk(3).values[2], -torch.inf).log_softmax(0)


class UniformModel:
    """Knows nothing."""

    def __init__(self, vocab_size: int):
        self.vocab_size = vocab_size

    def start(self, contexts: Sequence[Sequence[int]], conditions: Conditions = None) -> tuple[Tensor, State, Tensor]:
        log_probs = torch.full((len(contexts), self.vocab_size), 1 / self.vocab_size, dtype=torch.float64).log()
        lengths = torch.tensor([len(context) - 1 for context in contexts])
        return log_probs, None, lengths * log_probs[0, 0]

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return torch.full((len(tokens), self.vocab_size), 1 / self.vocab_size, dtype=torch.float64).log(), None


class CountingModel:
    """Passes everything on and counts what it was asked."""

    def __init__(self, model: StepModel):
        self.model = model
        self.vocab_size = model.vocab_size
        self.starts = self.contexts = self.calls = self.rows = 0

    def start(self, contexts: Sequence[Sequence[int]], conditions: Conditions = None) -> tuple[Tensor, State, Tensor]:
        self.starts += 1
        self.contexts += len(contexts)
        return self.model.start(contexts, conditions)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        self.calls += 1
        self.rows += len(tokens)
        return self.model.step(tokens, state)


class CountingScoringModel(CountingModel):
    """The same for a model that scores given tokens itself: `scored` counts those."""

    scored = 0

    def score(self, continuations: Sequence[Sequence[int]], state: State, floors: Tensor | None = None) -> Tensor:
        self.scored += sum(len(tokens) - 1 for tokens in continuations)
        assert isinstance(self.model, ScoringModel)
        return self.model.score(continuations, state, floors)


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


def score_from_scratch(model: StepModel, sequence: Sequence[int], condition: object = None) -> float:
    """log P of every token after the first, one step at a time, no batch, nothing kept."""
    conditions = None if condition is None else [condition]
    log_probs, state, scores = model.start([list(sequence[:1])], conditions)
    total = float(scores[0])
    for token in sequence[1:]:
        total += float(log_probs[0, token])
        log_probs, state = model.step(torch.tensor([token]), select_rows(state, torch.tensor([0])))
    return total


def all_fills(template: Sequence[int | None], allowed: Sequence[int]) -> list[tuple[int, ...]]:
    free = [slot for slot, token in enumerate(template) if token is None]
    filled = []
    for words in itertools.product(allowed, repeat=len(free)):
        row = list(template)
        for slot, word in zip(free, words, strict=True):
            row[slot] = word
        filled.append(tuple(token for token in row if token is not None))
    return filled


def enumerate_scores(
    forward: StepModel,
    backward: StepModel,
    template: Sequence[int | None],
    banned: Sequence[int] = (),
    condition: object = None,
) -> dict[tuple[int, ...], tuple[float, float]]:
    """(forward_score, backward_score) of every fill there is."""
    allowed = [token for token in range(forward.vocab_size) if token not in banned]
    return {
        fill: (score_from_scratch(forward, fill, condition), score_from_scratch(backward, fill[::-1], condition))
        for fill in all_fills(template, allowed)
    }
