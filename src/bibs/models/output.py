"""From a hidden state to log probabilities over the vocabulary: one dense layer, or an adaptive softmax.

The adaptive softmax (Grave et al., 2017) splits a vocabulary that is sorted by falling frequency into a head
of frequent words and clusters of rarer ones, each with a smaller projection:

    P(y | h) = P(y | head, h)                       for a frequent word
    P(y | h) = P(cluster | head, h) P(y | cluster, h)   otherwise

Training evaluates a cluster only where a target lies in it. Decoding evaluates all of them, so that what
search sees is exact and normalised over all V words either way.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bibs.models.products import FloatMatrix, Matrix

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

    def word_vectors(self, words: Tensor) -> Tensor:  # (U,) -> (U, H)
        """By what hidden states are multiplied to predict these words."""
        return F.embedding(words, self.weight)

    def prepare(self, matrix: type[Matrix] = FloatMatrix, added: int = 0) -> PreparedDense:
        """For decoding, with hidden states that are longer by `added` zeros."""
        return PreparedDense(matrix(F.pad(self.weight, (0, added)), self.bias.detach()))


class AdaptiveOutput(nn.AdaptiveLogSoftmaxWithLoss):
    """torch's adaptive softmax, with log probabilities of targets one by one."""

    def __init__(self, hidden_size: int, vocab_size: int, cutoffs: Sequence[int]) -> None:
        super().__init__(hidden_size, vocab_size, list(cutoffs), div_value=DIVISOR, head_bias=True)

    def log_probs(self, hidden: Tensor) -> Tensor:  # (..., H) -> (..., V)
        rows = self.log_prob(hidden.reshape(-1, hidden.shape[-1]))
        return rows.view(*hidden.shape[:-1], -1)

    def target_log_probs(self, hidden: Tensor, targets: Tensor) -> Tensor:  # (R, H), (R,) -> (R,)
        cluster, in_head = _places(targets, self.cutoffs)
        result = -F.cross_entropy(self.head(hidden), in_head, reduction="none")
        for index, tail in enumerate(self.tail):
            rows = (cluster == index + 1).nonzero().squeeze(1)
            if rows.numel():
                within = targets[rows] - self.cutoffs[index]
                extra = -F.cross_entropy(tail(hidden[rows]), within, reduction="none")
                result = result.index_add(0, rows, extra)
        return result

    def word_vectors(self, words: Tensor) -> Tensor:  # (U,) -> (U, H)
        """By what hidden states are multiplied to predict these words, in the head or within their cluster."""
        cluster, in_head = _places(words, self.cutoffs)
        vectors = F.embedding(in_head, self.head.weight)
        for index, tail in enumerate(self.tail):
            narrow, wide = (cast(nn.Linear, part).weight for part in cast(nn.Sequential, tail))
            rows = (cluster == index + 1).nonzero().squeeze(1)
            within = F.embedding(words[rows] - self.cutoffs[index], wide) @ narrow  # (cluster's words, H)
            vectors = vectors.index_copy(0, rows, within)
        return vectors

    def prepare(self, matrix: type[Matrix] = FloatMatrix, added: int = 0) -> PreparedAdaptive:
        """For decoding, with hidden states that are longer by `added` zeros."""
        return PreparedAdaptive(self, matrix, added)


@dataclass(frozen=True)
class PreparedDense:
    """The dense layer at decoding."""

    logits: Matrix  # (R, H) -> (R, V)

    def log_probs(self, hidden: Tensor) -> Tensor:  # (R, H) -> (R, V)
        return _log_softmax_(self.logits(hidden))

    def target_log_probs(self, hidden: Tensor, targets: Tensor) -> Tensor:  # (R, H), (R,) -> (R,)
        return -F.cross_entropy(self.logits(hidden), targets, reduction="none")


class PreparedAdaptive:
    """The adaptive softmax at decoding: the head and all narrow projections are one product.

    The head and the clusters have columns added up to a multiple of `ALIGNED`, whose probability is 0.
    """

    def __init__(self, output: AdaptiveOutput, matrix: type[Matrix], added: int) -> None:
        self.cutoffs = [int(cutoff) for cutoff in output.cutoffs]
        tails = [
            (cast(nn.Linear, narrow).weight.detach(), cast(nn.Linear, wide).weight)
            for narrow, wide in (cast(nn.Sequential, tail) for tail in output.tail)
        ]
        head = _aligned(output.head.weight)  # (shortlist + clusters, and more, H)
        weights = [head, *(narrow for narrow, _ in tails)]
        self.edges = [0, *itertools.accumulate(map(len, weights))]  # of the head and the narrow ones among the columns
        bias = output.head.bias.new_zeros(self.edges[-1])
        bias[: len(output.head.bias)] = output.head.bias.detach()
        bias[len(output.head.bias) : len(head)] = -torch.inf
        # (R, H) -> (R, head and narrow). Every word's probability has a part from the head: rounding it costs most.
        self.first = matrix(F.pad(torch.cat(weights), (0, added)), bias, num_fine=len(head))
        self.parts = [self.first.columns(*edges) for edges in itertools.pairwise(self.edges)]
        self.wide = [matrix(_aligned(wide)) for _, wide in tails]  # (R, D_k) -> (R, V_k and more)

    def log_probs(self, hidden: Tensor) -> Tensor:  # (R, H) -> (R, V)
        first, shortlist = self.first(hidden), self.cutoffs[0]
        head = torch.log_softmax(first[:, : self.edges[1]], 1)
        result = head.new_empty(len(hidden), self.cutoffs[-1])
        result[:, :shortlist] = head[:, :shortlist]
        for index, (begin, end) in enumerate(itertools.pairwise(self.cutoffs)):
            logits = self.wide[index](first[:, self.edges[index + 1] : self.edges[index + 2]])  # (R, V_k and more)
            logits[:, end - begin :] = -torch.inf
            within = _log_softmax_(logits)[:, : end - begin]
            torch.add(within, head[:, shortlist + index, None], out=result[:, begin:end])
        return result

    def target_log_probs(self, hidden: Tensor, targets: Tensor) -> Tensor:  # (R, H), (R,) -> (R,)
        cluster, in_head = _places(targets, self.cutoffs)
        result = -F.cross_entropy(self.parts[0](hidden), in_head, reduction="none")
        for index, (begin, end) in enumerate(itertools.pairwise(self.cutoffs)):
            rows = (cluster == index + 1).nonzero().squeeze(1)
            if rows.numel():
                logits = self.wide[index](self.parts[index + 1](hidden[rows]))[:, : end - begin]
                result[rows] -= F.cross_entropy(logits, targets[rows] - begin, reduction="none")
        return result


def _places(targets: Tensor, cutoffs: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The cluster (R,) of each target, 0 for the head, and its place (R,) in the head: its own, or its cluster's."""
    edges = torch.tensor(cutoffs[:-1], device=targets.device)
    cluster = torch.bucketize(targets, edges, right=True)
    return cluster, torch.where(cluster == 0, targets, cutoffs[0] + cluster - 1)


def _aligned(weight: Tensor) -> Tensor:
    """(N, K) with rows of zeros added: (N or a little more, K)."""
    return F.pad(weight.detach(), (0, 0, 0, -len(weight) % ALIGNED))


def _log_softmax_(logits: Tensor) -> Tensor:
    """In place: a second (R, V) would be fetched from memory anew at every step."""
    return torch.log_softmax(logits, 1, out=logits)
