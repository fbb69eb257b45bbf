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

from bibs.evaluation.tasks import Words

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
        kept = min(num_dimensions, len(correlations))
        scale = correlations[:kept] ** power
        return cls(
            picture_mean=means[0],
            picture_map=whiten_x @ left[:, :kept] * scale,
            text_mean=means[1],
            text_map=whiten_y @ right[:kept].T * scale,
            correlations=correlations[:kept],
        )

    def narrowed(self, num_dimensions: int) -> JointSpace:
        """The first axes alone: those that a fit with fewer dimensions finds."""
        return replace(
            self,
            picture_map=self.picture_map[:, :num_dimensions],
            text_map=self.text_map[:, :num_dimensions],
            correlations=self.correlations[:num_dimensions],
        )

    def place_pictures(self, pictures: Floats) -> Floats:  # (n, P) -> (n, K), unit length
        return _unit((pictures - self.picture_mean) @ self.picture_map)

    def place_texts(self, texts: Floats) -> Floats:  # (n, T) -> (n, K), unit length
        return _unit((texts - self.text_mean) @ self.text_map)


@dataclass(frozen=True)
class Retrieval:
    """Answers by picture: the training answer whose place is nearest to the picture's."""

    space: JointSpace
    answers: tuple[Words, ...]
    vectors: Floats  # (answers, T): their bags of words
    places: Floats  # (answers, K): where they stand

    @classmethod
    def fit(
        cls,
        pictures: Floats,
        answers: Sequence[Words],
        *,
        num_dimensions: int = 64,
        regularisation: float = 0.1,
        power: float = POWER,
    ) -> Retrieval:
        """Learn from pictures (n, P) and the answer given for each; an answer's vector is its bag of words."""
        bag = BagOfWords.of(answers)
        space = JointSpace.fit(
            np.asarray(pictures, dtype=np.float64),
            bag.vectors(answers),
            num_dimensions=num_dimensions,
            regularisation=regularisation,
            power=power,
        )
        distinct = tuple(dict.fromkeys(answers))
        vectors = bag.vectors(distinct)
        return cls(space, distinct, vectors, space.place_texts(vectors))

    def narrowed(self, num_dimensions: int) -> Retrieval:
        space = self.space.narrowed(num_dimensions)
        return replace(self, space=space, places=space.place_texts(self.vectors))

    def nearest(self, pictures: Floats) -> list[Words]:
        """The answer for each picture (n, P)."""
        near = self.space.place_pictures(np.asarray(pictures, dtype=np.float64)) @ self.places.T  # (n, answers)
        return [self.answers[index] for index in near.argmax(1)]


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
