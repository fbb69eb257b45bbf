"""From a hidden state to log probabilities over the vocabulary: one dense layer, or an adaptive softmax.

The adaptive softmax (Grave et al., 2017) splits a vocabulary that is sorted by falling frequency into a head
of frequent words and clusters of rarer ones, each with a smaller projection:

    P(y | h) = P(y | head, h)                       for a frequent word
    P(y | h) = P(cluster | head, h) P(y | cluster, h)   otherwise

Training evaluates a cluster only where a target lies in it. Decoding evaluates all of them, so that what
search sees is exact and normalised over all V words either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DIVISOR = 2.0
"""Cluster k is seen through a projection of size H / DIVISOR^k."""

ALIGNED = 16
"""Products are up to half as fast again if every row of their result begins on a multiple of so many numbers."""


class DenseOutput(nn.Linear):
    """softmax(W h + b)."""

    def log_probs(self, hidden: Tensor) -> Tensor:  # (..., H) -> (..., V)
        return F.log_softmax(self(hidden), dim=-1)

    def target_log_probs(self, hidden: Tensor, targets: Tensor) -> Tensor:  # (R, H), (R,) -> (R,)
        return -F.cross_entropy(self(hidden), targets, reduction="none")

    def prepare(self) -> PreparedDense:
        return PreparedDense(self.weight.detach().t().contiguous(), self.bias.detach())


class PreparedDense:
    """The dense layer with its matrix transposed, which multiplies up to twice as fast at few rows."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.weight = weight  # (H, V)
        self.bias = bias  # (V,)

    def log_probs(self, hidden: Tensor) -> Tensor:  # (R, H) -> (R, V)
        return _log_softmax_(torch.addmm(self.bias, hidden, self.weight))


class AdaptiveOutput(nn.AdaptiveLogSoftmaxWithLoss):
    """torch's adaptive softmax, with log probabilities of targets one by one."""

    def __init__(self, hidden_size: int, vocab_size: int, cutoffs: Sequence[int]) -> None:
        super().__init__(hidden_size, vocab_size, list(cutoffs), div_value=DIVISOR, head_bias=True)

    def log_probs(self, hidden: Tensor) -> Tensor:  # (..., H) -> (..., V)
        rows = self.log_prob(hidden.reshape(-1, hidden.shape[-1]))
        return rows.view(*hidden.shape[:-1], -1)

    def target_log_probs(self, hidden: Tensor, targets: Tensor) -> Tensor:  # (R, H), (R,) -> (R,)
        first = self.shortlist_size
        edges = torch.tensor(self.cutoffs[:-1], device=targets.device)
        cluster = torch.bucketize(targets, edges, right=True)  # (R,): 0 is the head
        in_head = torch.where(cluster == 0, targets, first + cluster - 1)
        result = -F.cross_entropy(self.head(hidden), in_head, reduction="none")
        for index, tail in enumerate(self.tail):
            rows = (cluster == index + 1).nonzero().squeeze(1)
            if rows.numel():
                within = targets[rows] - self.cutoffs[index]
                extra = -F.cross_entropy(tail(hidden[rows]), within, reduction="none")
                result = result.index_add(0, rows, extra)
        return result

    def prepare(self) -> PreparedAdaptive:
        return PreparedAdaptive(self)


class PreparedAdaptive:
    """The matrices transposed, with columns added up to a multiple of `ALIGNED`, whose probability is 0."""

    def __init__(self, output: AdaptiveOutput) -> None:
        self.cutoffs = [int(cutoff) for cutoff in output.cutoffs]
        self.head = _aligned(output.head.weight)  # (H, shortlist + clusters, and more)
        added = self.head.shape[1] - len(output.head.bias)
        self.bias = F.pad(output.head.bias.detach(), (0, added), value=-torch.inf)
        self.tails = [
            (cast(nn.Linear, narrow).weight.detach().t().contiguous(), _aligned(cast(nn.Linear, wide).weight))
            for narrow, wide in (cast(nn.Sequential, tail) for tail in output.tail)  # (H, D_k), (D_k, V_k and more)
        ]

    def log_probs(self, hidden: Tensor) -> Tensor:  # (R, H) -> (R, V)
        first = self.cutoffs[0]
        head = _log_softmax_(torch.addmm(self.bias, hidden, self.head))
        result = head.new_empty(len(hidden), self.cutoffs[-1])
        result[:, :first] = head[:, :first]
        for index, (narrow, wide) in enumerate(self.tails):
            size = self.cutoffs[index + 1] - self.cutoffs[index]
            logits = torch.mm(torch.mm(hidden, narrow), wide)  # (R, V_k and more)
            logits[:, size:] = -torch.inf
            within = _log_softmax_(logits)[:, :size]
            cluster = head[:, first + index, None]  # (R, 1)
            torch.add(within, cluster, out=result[:, self.cutoffs[index] : self.cutoffs[index + 1]])
        return result


def _aligned(weight: Tensor) -> Tensor:
    """(N, K) transposed, with columns of zeros added: (K, N or a little more)."""
    return F.pad(weight.detach().t(), (0, -len(weight) % ALIGNED)).contiguous()


def _log_softmax_(logits: Tensor) -> Tensor:
    """In place: a second (R, V) would be fetched from memory anew at every step."""
    return torch.log_softmax(logits, 1, out=logits)
