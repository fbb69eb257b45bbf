"""Models for a first try and for tests: any function that says what comes next, and a chain that fits on a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from bibs.search import Conditions, State


class NextTokenModel:
    """What `from_next_token` makes. Its state is all that was read: token ids, padded on the left with -1."""

    def __init__(self, function: Callable[[list[int]], Any], vocab_size: int) -> None:
        self.function = function
        self.vocab_size = vocab_size

    def start(self, contexts: Sequence[Sequence[int]], conditions: Conditions = None) -> tuple[Tensor, State, Tensor]:
        if conditions is not None and any(condition is not None for condition in conditions):
            raise ValueError("`conditions` must be None for a model made of a function, which is given token ids only")
        scores = [
            sum(float(self._ask(context[:place])[context[place]]) for place in range(1, len(context)))
            for context in contexts
        ]
        longest = max(map(len, contexts))
        read = torch.tensor([[-1] * (longest - len(context)) + list(context) for context in contexts])  # (N, T)
        log_probs = self._after(read)
        return log_probs, read, log_probs.new_tensor(scores)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        read = torch.cat([state, tokens.cpu()[:, None]], 1)  # (R, T)
        return self._after(read), read

    def _after(self, read: Tensor) -> Tensor:
        return torch.stack([self._ask([token for token in row if token >= 0]) for row in read.tolist()])

    def _ask(self, tokens: Sequence[int]) -> Tensor:
        log_probs = torch.as_tensor(self.function(list(tokens)))
        return log_probs if log_probs.is_floating_point() else log_probs.float()


def from_next_token(function: Callable[[list[int]], Any], vocab_size: int) -> NextTokenModel:
    """A model made of any function "token ids so far -> log probabilities (V,) of the next one", a list or a tensor.

    The ids come in the model's own reading order. Slow, since the function is called once for every row, and right: for
    a first try, and to test a faster model against.
    """
    return NextTokenModel(function, vocab_size)


class MatrixModel:
    """A first-order chain: row i of the matrix is what follows token i. Its beams can be followed by hand."""

    def __init__(self, probabilities: Sequence[Sequence[float]] | Tensor) -> None:
        self.log_matrix = torch.as_tensor(probabilities, dtype=torch.float64).log()
        self.vocab_size = len(self.log_matrix)

    def start(self, contexts: Sequence[Sequence[int]], conditions: Conditions = None) -> tuple[Tensor, State, Tensor]:
        last = torch.tensor([context[-1] for context in contexts])
        scores = [sum(float(self.log_matrix[a, b]) for a, b in pairwise(context)) for context in contexts]
        return self.log_matrix[last], last, self.log_matrix.new_tensor(scores)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return self.log_matrix[tokens], tokens
