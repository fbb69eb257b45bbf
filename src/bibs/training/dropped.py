"""Weights that are dropped for one step: DropConnect (Wan et al., 2013), as the AWD-LSTM has it (Merity et al., 2018).

    W'_hh = W_hh * mask / (1 - p),   E' = E * (one draw a word) / (1 - q)

The mask is drawn once a batch, so every place of every sentence reads the same thinned network, and a dropped word is
dropped wherever it stands. The loss is that of the thinned weights; its gradient reaches the weights that were kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def dropped_weights(model: nn.Module, *, weight_dropout: float, word_dropout: float) -> Iterator[None]:
    """Inside, a share of the recurrent weights and of the word vectors is zero: the place for a loss and its gradient.

    Afterwards the weights are what they were, to the last bit.
    """
    masks = {
        name: mask
        for name, weight in model.named_parameters()
        if (mask := _draw_mask(name, weight, weight_dropout, word_dropout)) is not None
    }
    weights = {name: model.get_parameter(name) for name in masks}
    whole = {name: weight.detach().clone() for name, weight in weights.items()}
    with torch.no_grad():
        for name, mask in masks.items():
            weights[name].mul_(mask)
    try:
        yield
    finally:
        with torch.no_grad():
            for name, weight in weights.items():
                weight.copy_(whole[name])
                if weight.grad is not None:
                    weight.grad.mul_(masks[name])


def _draw_mask(name: str, weight: Tensor, weight_dropout: float, word_dropout: float) -> Tensor | None:
    """What a parameter is multiplied by: 0 or 1 / (1 - share); None where it stays whole."""
    if weight_dropout and ".weight_hh_" in name:
        return nn.functional.dropout(torch.ones_like(weight), weight_dropout)
    if word_dropout and name == "embedding.weight":
        return nn.functional.dropout(weight.new_ones(len(weight), 1), word_dropout)  # (V, 1)
    return None
