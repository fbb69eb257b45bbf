"""Recurrent models with matrix products of 8-bit integers, for the passes of a search.

A search only has to know which extensions are best. `exact_scores` are those of the float32 model, for what comes
back, and `margin` says how far a fill may be behind the best by the integers and still be worth an exact score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from bibs.models.decoding import RecurrentState
from bibs.models.products import Int8Matrix, has_int8_instructions
from bibs.models.recurrent import RecurrentModel
from bibs.search import Conditions, StepModel

Precision: TypeAlias = Literal["float32", "int8"]

PRECISIONS = (*get_args(Precision), "auto")

MARGIN = 0.075
"""Of one model, so .15 in S. On val .1 lost no best fill, and without a margin 1 in 100 was lost (lab-notes.md)."""


class Int8Model:
    """The decoding half of a recurrent model. Its weights are rounded anew whenever those of `exact` have changed."""

    margin = MARGIN

    def __init__(self, exact: RecurrentModel) -> None:
        self.exact = exact
        self.vocab_size = exact.vocab_size
        self.exact_scores = exact.score_sentences

    @torch.no_grad()
    def start(
        self, contexts: Sequence[Sequence[int]], conditions: Conditions = None
    ) -> tuple[Tensor, RecurrentState, Tensor]:
        """Read N ragged contexts: log_probs (N, V) of the next token, the state, and the scores (N,)."""
        self.exact.check_contexts(contexts)
        decoder = self.exact.decoder(Int8Matrix)
        return decoder.start(contexts, self.exact.first_inputs(conditions, len(contexts), decoder.condition))

    @torch.no_grad()
    def step(self, tokens: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Read one token (R,) in each row: log_probs (R, V) of the next, and the new state."""
        return self.exact.decoder(Int8Matrix, checked=False).step(tokens, state)

    @torch.no_grad()
    def score(
        self, continuations: Sequence[Sequence[int]], state: RecurrentState, floors: Tensor | None = None
    ) -> Tensor:
        """The log probability (R,) of each continuation after its first token, read from its row of the state."""
        self.exact.check_contexts(continuations)
        return self.exact.decoder(Int8Matrix, checked=False).score(continuations, state, floors)


def choose_precision(precision: str, models: Sequence[StepModel]) -> Precision:
    """What `precision` comes to for these models on this processor."""
    if precision not in PRECISIONS:
        raise ValueError(f"`precision` must be one of {', '.join(PRECISIONS)}, but is {precision!r}")
    if precision == "float32":
        return "float32"
    able = [isinstance(model, RecurrentModel) and model.embedding.weight.device.type == "cpu" for model in models]
    if precision == "auto":
        return "int8" if all(able) and has_int8_instructions() else "float32"
    if not all(able):
        kind = type(models[able.index(False)]).__name__
        raise ValueError(
            f"`precision` must be float32 or auto but for recurrent models on a CPU, but is int8 for {kind}"
        )
    if not hasattr(torch, "_int_mm"):
        raise ValueError(f"`precision` must be float32 or auto where torch has no int8 products, but is {precision!r}")
    return "int8"


def in_precision(model: StepModel, precision: str) -> StepModel:
    """The model that a search runs on."""
    if choose_precision(precision, [model]) == "float32":
        return model
    assert isinstance(model, RecurrentModel)
    return Int8Model(model)
