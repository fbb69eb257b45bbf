"""What may stand in each slot: fixed tokens, banned tokens, a choice of tokens, and tokens that lose.

bias_t(y) = -inf where y may not stand at t, else minus what y loses there
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from bibs.search import Layout, OneOf, Tokens

Penalties: TypeAlias = Mapping[int, float]
"""What a token loses in each free slot that it fills."""

FREE = -1
"""Marks a free slot in a tensor of slots."""


class SlotRules:
    """Fixed, banned and penalised tokens of a batch of layouts."""

    num_groups = 1

    def __init__(
        self,
        layouts: Sequence[Layout],
        banned: Sequence[int],
        penalties: Sequence[Penalties],
        vocab_size: int,
        like: Tensor,
    ) -> None:
        self.layouts = layouts
        self.lost = penalties
        width = max(len(layout.region) for layout in layouts)
        rows = [[token if isinstance(token, int) else FREE for token in layout.region] for layout in layouts]
        self.choices = {
            (example, slot): list(choice.tokens)
            for example, layout in enumerate(layouts)
            for slot, choice in enumerate(layout.region)
            if isinstance(choice, OneOf)
        }
        self.slots = torch.tensor(
            [row + [FREE] * (width - len(row)) for row in rows], dtype=torch.long, device=like.device
        )
        self.free_bias = like.new_zeros(1, vocab_size)  # (1, V), or (N, V) where tokens lose
        if any(penalties):
            self.free_bias = like.new_zeros(len(layouts), vocab_size)
            for bias, lost in zip(self.free_bias, penalties, strict=True):
                bias[list(lost)] = -like.new_tensor(list(lost.values()))
        self.free_bias[:, list(banned)] = -torch.inf

    def bias(self, examples: Tensor, slot: int) -> Tensor:
        bias = self.free_bias if len(self.free_bias) == 1 else self.free_bias[examples]
        fixed = self.slots[examples, slot]  # (m,)
        bound = (fixed != FREE).nonzero().flatten()
        if len(bound):
            bias = bias.repeat(len(examples) // len(bias), 1)
            bias[bound] = -torch.inf
            bias[bound, fixed[bound]] = 0.0
        return self._choose(bias, examples, slot) if self.choices else bias

    def _choose(self, bias: Tensor, examples: Tensor, slot: int) -> Tensor:
        """The bias of each example, with all that a slot with a choice does not take made impossible."""
        bias = bias.repeat(len(examples) // len(bias), 1)  # (m, V)
        for row, example in enumerate(examples.tolist()):
            if (example, slot) in self.choices:
                allowed = self.choices[example, slot]
                kept = bias[row, allowed]
                bias[row] = -torch.inf
                bias[row, allowed] = kept
        return bias

    def steer(self, examples: Tensor, slot: int, bias: Tensor, message: Tensor | None) -> Tensor:
        return bias[:, None] if message is None else message.add_(bias[:, None])

    def candidates(self, examples: Tensor, slot: int, ranked: Tensor, count: int) -> tuple[Tensor, Tensor | None]:
        return top_k(ranked.flatten(0, 1), count).view(*ranked.shape[:2], count), None

    def penalty(self, example: int, fill: Tokens) -> float:
        lost = self.lost[example]
        return sum(lost.get(token, 0.0) for token in self.layouts[example].free_words(fill)) if lost else 0.0


def top_k(values: Tensor, k: int, block: int = 128) -> Tensor:
    """The places of the k largest of each row (n, M). On long rows the k best blocks come first: they hold them all."""
    num_values = values.shape[1]
    num_blocks = num_values // block
    if num_blocks < 4 * k:
        return values.topk(k).indices
    whole = num_blocks * block
    best = values[:, :whole].reshape(-1, num_blocks, block).amax(2)  # (n, blocks)
    if whole < num_values:
        best = torch.cat([best, values[:, whole:].amax(1, keepdim=True)], 1)
    blocks = best.topk(k, sorted=False).indices  # (n, k)
    places = (blocks[..., None] * block + torch.arange(block, device=values.device)).flatten(1)  # (n, k * block)
    inside = values.gather(1, places.clamp(max=num_values - 1)).masked_fill_(places >= num_values, -torch.inf)
    return places.gather(1, inside.topk(k).indices)
