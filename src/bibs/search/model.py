"""What search asks of a model, and the little that it does to a model's state.

A model reads tokens in one direction and says what comes next: `log P(y_t | y_<t, x)`. Whether "before" means left or
right is decided by the argument it is passed as, never by the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from torch import Tensor

State: TypeAlias = Any
"""Any nest (tuple, list, dict) of tensors whose first dimension is rows. Search selects rows and joins them."""

Conditions: TypeAlias = Tensor | Sequence[Any] | None
"""What each example is conditioned on (an image vector, or None), one per example; only models look inside."""


class StepModel(Protocol):
    """A sequence model that reads in one direction. Returned log probabilities are normalised over the vocabulary."""

    vocab_size: int

    def start(self, contexts: Sequence[Sequence[int]], conditions: Conditions = None) -> tuple[Tensor, State, Tensor]:
        """Read N ragged, non-empty contexts of token ids, each in this model's reading order.

        Returns the log_probs (N, V) of the next token, the state after each context (N rows), and scores (N,):
        the log probability of each context after its first token.
        """
        ...

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Read one token (R,) in each of R rows; returns log_probs (R, V) of the next token and the new state.

        `state` is not to be changed in place: search may step from the same rows again. What is returned may be kept
        as it is, so a model must not write into it later.
        """
        ...


class ScoringModel(StepModel, Protocol):
    """One that also scores given tokens. It is what search runs on; `bibs.checks` makes one of any `StepModel`.

    It may be a quick copy of another model, and then has a `margin`: of the fills found, those whose S is within the
    margin of the best are scored again, by `exact_scores`.
    """

    margin: float | None

    def score(self, continuations: Sequence[Sequence[int]], state: State, floors: Tensor) -> Tensor:
        """The log probability (R,) of R ragged, non-empty continuations after their first tokens, each read from its
        row of the state. This spares a model the whole distributions.

        A row that falls below its floor (R,) is of no more interest: the model may stop there, and give any value below
        the floor.
        """
        ...

    def exact_scores(self, sentences: Sequence[Sequence[int]], conditions: Conditions = None) -> Tensor:
        """The log probability (N,) of whole sentences after their first tokens, as it is to come back."""
        ...


def map_state(function: Callable[..., Tensor], *states: State) -> State:
    """Apply `function` to the matching tensors of one or more states of the same shape of nest."""
    first = states[0]
    if isinstance(first, Tensor):
        return function(*states)
    if isinstance(first, dict):
        return {key: map_state(function, *(state[key] for state in states)) for key in first}
    if isinstance(first, (tuple, list)):
        parts = [map_state(function, *group) for group in zip(*states, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    if first is None:
        return None
    raise ValueError(
        f"a model's state must be a nest (tuple, list, dict) of tensors, but holds a {type(first).__name__}"
    )


def select_rows(state: State, rows: Tensor) -> State:
    return map_state(lambda tensor: tensor.index_select(0, rows.to(tensor.device)), state)


def select_conditions(conditions: Conditions, examples: Sequence[int]) -> Conditions:
    if conditions is None or isinstance(conditions, Tensor):
        return conditions if conditions is None else conditions[list(examples)]
    return [conditions[example] for example in examples]
