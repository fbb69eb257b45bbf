"""Which encoder made a vector, told without vectors of any other encoder.

Two networks may give equally many numbers, but number k of the one has nothing to do with number k of the other. The
vectors of one network lie mostly in a few directions, the principal axes of the training pictures; to these a vector
of another network is a random one. So of the length of a vector, less its part along the mean and along (1, ..., 1),

    share(v) = |A v|^2 / (|v|^2 - |B v|^2),   A: the first K of D axes,   B: the mean and (1, ..., 1), orthonormal

is in A. A random vector has K / D there, give or take a little; those of training pictures have several times as much.
"""

from __future__ import annotations

from torch import Tensor

SHARED = 2
"""Rows of the axes that stand for B: all networks have a part along these."""

LIMIT = 1.75
"""A share below LIMIT K / D is that of another encoder's vector.

Chosen on COCO (D = 1280, K = 128, so the limit is .175): Lite0's vectors have at most .153 in Lite2's axes, Lite2's at
most .161 in Lite0's (45,000 pictures each); held-out pictures of the right kind have at least .247 and .222 (25,000
each), and 104 odd ones, from noise and chessboards to text and microscopy, at least .267 and .202.
"""

FAINT = 0.1
"""What is left of a vector must be so long, against the mean, to have a direction: a blank picture's may be 0."""


def shares(axes: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """The share (N,) of each vector (N, D) in the axes (2+K, D), orthonormal rows, B first; and its denominator."""
    parts = (vectors @ axes.t()).square()  # (N, 2+K)
    rest = vectors.square().sum(1) - parts[:, :SHARED].sum(1)
    return parts[:, SHARED:].sum(1) / rest.clamp(min=1e-12), rest


def least_share(axes: Tensor) -> float:
    return LIMIT * (len(axes) - SHARED) / axes.shape[1]


def of_another_kind(axes: Tensor, mean: Tensor, vectors: Tensor) -> Tensor:  # (2+K, D), (D,), (N, D) -> (N,)
    """Whether each vector cannot be of the encoder whose training pictures had these axes and this mean."""
    share, rest = shares(axes, vectors)
    return (share < least_share(axes)) & (rest > FAINT**2 * mean.square().sum())
