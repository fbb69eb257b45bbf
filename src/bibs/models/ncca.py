"""Normalised CCA (Gong et al. 2014): pictures and answers in one space, and the nearest training answer.

With X the centred picture vectors and Y the centred answer vectors of the training set, A and B solve

    max  trace(A^T Cxy B)   such that   A^T (Cxx + r_x I) A = B^T (Cyy + r_y I) B = I

with canonical correlations d. A picture x becomes (x A) d^p, an answer y becomes (y B) d^p (p = 4 in the paper that
introduced it), and the answer whose direction is nearest to the picture's is retrieved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Words = tuple[str, ...]
Floats = NDArray[np.float64]

POWER = 4.0


@dataclass(frozen=True)
class JointSpace:
    """Two linear maps into one space, the axes already scaled by their correlations."""

    picture_mean: Floats  # (P,)
    picture_map: Floats  # (P, K)
    text_mean: Floats  # (T,)
    text_map: Floats  # (T, K)
    correlations: Floats  # (K,), falling

    @classmethod
    def fit(
        cls,
        pictures: Floats,  # (n, P)
        texts: Floats,  # (n, T)
        *,
        num_dimensions: int = 64,
        regularisation: float = 0.1,
        power: float = POWER,
    ) -> JointSpace:
        """`regularisation` is in units of each side's mean variance."""
        if len(pictures) != len(texts) or len(pictures) < 2:
            raise ValueError(f"`texts` must be one per picture ({len(pictures)}, at least 2), but are {len(texts)}")
        if num_dimensions < 1:
            raise ValueError(f"`num_dimensions` must be at least 1, but is {num_dimensions}")
        if regularisation < 0:
            raise ValueError(f"`regularisation` must be at least 0, but is {regularisation}")
        means = pictures.mean(0), texts.mean(0)
        x, y = pictures - means[0], texts - means[1]
        whiten_x, whiten_y = _whitener(x, regularisation), _whitener(y, regularisation)
        cross = whiten_x.T @ (x.T @ y / len(x)) @ whiten_y  # (P, T)
        left, correlations, right = np.linalg.svd(cross, full_matrices=False)
        scale = correlations**power
        space = cls(means[0], whiten_x @ left * scale, means[1], whiten_y @ right.T * scale, correlations)
        return space.narrowed(num_dimensions)

    def narrowed(self, num_dimensions: int) -> JointSpace:
        """The first axes alone: those that a fit with fewer dimensions finds."""
        return replace(
            self,
            picture_map=self.picture_map[:, :num_dimensions],
            text_map=self.text_map[:, :num_dimensions],
            correlations=self.correlations[:num_dimensions],
        )

    def nearest(self, pictures: Floats, texts: Floats) -> NDArray[np.int_]:  # (n, P), (m, T) -> (n,)
        """The place of the text whose direction is nearest to each picture's."""
        seen = _unit((pictures - self.picture_mean) @ self.picture_map)  # (n, K)
        said = _unit((texts - self.text_mean) @ self.text_map)  # (m, K)
        places: NDArray[np.int_] = (seen @ said.T).argmax(1)
        return places


@dataclass(frozen=True)
class BagOfWords:
    """A text as its words' counts, scaled to unit length."""

    places: dict[str, int]

    @classmethod
    def of(cls, texts: Sequence[Words]) -> BagOfWords:
        return cls({word: place for place, word in enumerate(sorted({word for text in texts for word in text}))})

    def vectors(self, texts: Sequence[Words]) -> Floats:  # (n, words)
        counts = np.zeros((len(texts), len(self.places)))
        for row, text in enumerate(texts):
            for word in text:
                if word in self.places:
                    counts[row, self.places[word]] += 1
        return _unit(counts)


def _whitener(centred: Floats, regularisation: float) -> Floats:
    """W with W^T (C + r I) W = I, in the directions in which C + r I is not nothing."""
    covariance = centred.T @ centred / len(centred)
    values, vectors = np.linalg.eigh(covariance)
    values = values + regularisation * float(np.trace(covariance)) / len(covariance)
    kept = values > 1e-10 * values.max(initial=0.0)
    whitener: Floats = vectors[:, kept] / np.sqrt(values[kept])
    return whitener


def _unit(rows: Floats) -> Floats:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Floats = rows / np.where(length > 0, length, 1.0)
    return unit
