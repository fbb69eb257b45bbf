"""Where every pass of a model begins: N examples whose contexts it has read, and what may stand in their slots."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from .step_model import Conditions, State, StepModel, map_state, select_conditions, select_rows
from .template import Layout, Penalties

FREE = -1
"""Marks a free slot in a tensor of slots."""


@dataclass(frozen=True)
class Opening:
    """N examples, longest region first, whose contexts one model has read: where every pass of it begins."""

    name: str
    model: StepModel
    layouts: tuple[Layout, ...]
    slots: Tensor  # (N, W) the token of a fixed slot, FREE elsewhere
    widths: Tensor  # (N,) slots in each region, falling
    banned: Tensor  # ids that may not fill a free slot
    required: Tensor  # (N, k) ids of which each must fill a free slot
    penalties: Tensor | None  # (N, V) what a token loses in a free slot, where any does
    log_probs: Tensor  # (N, V)
    state: State  # N rows
    scores: Tensor  # (N,) log probability of each context after its first token

    @staticmethod
    def read(
        name: str,
        model: StepModel,
        layouts: Sequence[Layout],
        *,
        conditions: Conditions = None,
        banned: Sequence[int] = (),
        owners: Sequence[int] | None = None,
    ) -> Opening:
        """Let the model read every context. Layouts of one owner (0, 1, ...) share its condition and equal contexts."""
        assert all(len(a.region) >= len(b.region) for a, b in pairwise(layouts))
        assert all(len(a.required) == len(b.required) for a, b in pairwise(layouts))
        owners = range(len(layouts)) if owners is None else owners
        distinct: dict[tuple[int, tuple[int, ...]], int] = {}
        rows = [
            distinct.setdefault((o, layout.context), len(distinct)) for o, layout in zip(owners, layouts, strict=True)
        ]
        log_probs, state, scores = model.start(
            [context for _, context in distinct], select_conditions(conditions, [owner for owner, _ in distinct])
        )
        _check_output(name, "start()", model.vocab_size, len(distinct), log_probs, state)
        if scores.shape != (len(distinct),) or not bool((scores < torch.inf).all()):
            raise ValueError(
                f"the {name} model's start() must return scores ({len(distinct)},), none NaN or +inf, "
                f"but returned {tuple(scores.shape)}: {scores.tolist()}"
            )
        if float(log_probs.max()) > 1e-3:
            warnings.warn(f"the {name} model's log probabilities exceed 0: are they logits?", stacklevel=2)
        width = max((len(layout.region) for layout in layouts), default=0)
        padded = [
            [FREE if token is None else token for token in layout.region] + [FREE] * (width - len(layout.region))
            for layout in layouts
        ]
        device = log_probs.device
        if len(distinct) < len(layouts):
            shared = torch.tensor(rows, device=device)
            log_probs, state, scores = log_probs[shared], select_rows(state, shared), scores[shared]
        return Opening(
            name=name,
            model=model,
            layouts=tuple(layouts),
            slots=torch.tensor(padded, dtype=torch.long, device=device).reshape(len(layouts), width),
            widths=torch.tensor([len(layout.region) for layout in layouts], device=device),
            banned=torch.tensor(sorted(set(banned)), dtype=torch.long, device=device),
            required=torch.tensor([layout.required for layout in layouts], dtype=torch.long, device=device),
            penalties=_dense([layout.penalties for layout in layouts], log_probs),
            log_probs=log_probs,
            state=state,
            scores=scores,
        )

    @property
    def num_banks(self) -> int:
        """How many subsets there are of what must appear."""
        return 1 << self.required.shape[1]

    def select(self, examples: Tensor) -> Opening:
        widths = self.widths[examples]
        return replace(
            self,
            layouts=tuple(self.layouts[example] for example in examples.tolist()),
            slots=self.slots[examples, : int(widths.max())],
            widths=widths,
            required=self.required[examples],
            penalties=None if self.penalties is None else self.penalties[examples],
            log_probs=self.log_probs[examples],
            state=select_rows(self.state, examples),
            scores=self.scores[examples],
        )

    def step(self, tokens: Tensor, state: State, slot: int) -> tuple[Tensor, State]:
        log_probs, state = self.model.step(tokens, state)
        _check_output(self.name, f"step() at slot {slot}", self.model.vocab_size, len(tokens), log_probs, state)
        return log_probs, state


def _dense(penalties: Sequence[Penalties], like: Tensor) -> Tensor | None:
    if not any(penalties):
        return None
    table = like.new_zeros(len(penalties), like.shape[1])
    for row, given in enumerate(penalties):
        table[row, list(given)] = table.new_tensor(list(given.values()))
    return table


def _check_output(name: str, call: str, vocab_size: int, num_rows: int, log_probs: Tensor, state: State) -> None:
    if log_probs.shape != (num_rows, vocab_size):
        raise ValueError(
            f"the {name} model's {call} must return log_probs ({num_rows}, {vocab_size}), "
            f"but returned {tuple(log_probs.shape)}"
        )

    def check(tensor: Tensor) -> Tensor:
        if tensor.dim() == 0 or len(tensor) != num_rows:
            raise ValueError(
                f"the {name} model's {call} must return a state of {num_rows} rows, "
                f"but one of its tensors has shape {tuple(tensor.shape)}"
            )
        return tensor

    map_state(check, state)
    peak = float(log_probs.max())  # NaN and +inf survive a maximum
    if not peak < torch.inf:
        raise ValueError(f"the {name} model's {call} returned a log probability of {peak}")
