"""What a length is worth: how fills of different lengths are compared.

Every word more costs probability, so the plain score of a fill prefers short ones. Across lengths, fills are ranked by

    score + word * (words in the gaps) + sentence * log P(words in the whole sentence)

where P is counted from real sentences. The two weights belong to a kind of score, since each is misled by length in
its own way: S ("sum"), the larger of the two whole-sequence scores ("max"), one model's ("forward", "backward"), and
how well the two models' plain beams join ("join"), by which lengths are chosen for the search.

The weights are fitted on validation data (`bibs calibrate`) as a conditional logit: the true length's probability

    P(length) proportional to exp( scale * (score + word * words + sentence * log P(sentence)) )

is made as large as possible. The scale does not change the ranking and is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal

ScoreKind = Literal["sum", "max", "forward", "backward", "join"]
SCORE_KINDS: tuple[ScoreKind, ...] = ("sum", "max", "forward", "backward", "join")

SHARE_COVERED = 0.99
"""A gap is not tried so long that the sentence would be among the longest 1 % of those counted."""

LEAST_ROOM = 6
"""But up to this length at least, however much is given."""


@dataclass(frozen=True)
class LengthWeights:
    """In nats: what each word in a gap adds to a score, and what log P of the sentence's length is multiplied by."""

    word: float
    sentence: float

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"`{field.name}` must be a finite number, but is {value!r}")


ONE_MODEL, TWO_MODELS = LengthWeights(0.5, 1.5), LengthWeights(1.0, 3.0)
"""Unfitted weights, of about the size that the bundled model's fit has for S."""


@dataclass(frozen=True)
class LengthPrior:
    """How fills of different lengths compare, by kind of score. Where no sentences were counted, words count alone."""

    sum: LengthWeights = TWO_MODELS
    max: LengthWeights = ONE_MODEL
    forward: LengthWeights = ONE_MODEL
    backward: LengthWeights = ONE_MODEL
    join: LengthWeights = TWO_MODELS
    sentence_counts: tuple[int, ...] = ()  # how many sentences of 0, 1, 2, ... words there were

    def __post_init__(self) -> None:
        for count in self.sentence_counts:
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise ValueError(f"`sentence_counts` must be whole numbers from 0, but hold {count!r}")
        if self.sentence_counts and not any(self.sentence_counts):
            raise ValueError("`sentence_counts` must count at least one sentence, but count none")

    @staticmethod
    def count_sentences(lengths: Iterable[int]) -> tuple[int, ...]:
        """`sentence_counts` of sentences with so many words."""
        seen = list(lengths)
        counts = [0] * (max(seen, default=-1) + 1)
        for length in seen:
            counts[length] += 1
        return tuple(counts)

    def bonus(self, kind: ScoreKind, *, words: int, given: int) -> float:
        """What is added to the score of a sentence of `given` words and `words` more in its gaps."""
        weights: LengthWeights = getattr(self, kind)
        return weights.word * words + weights.sentence * self.log_share(given + words)

    def log_share(self, length: int) -> float:
        """log P of a sentence of so many words, half a sentence added to every count; 0 where none were counted."""
        if not self.sentence_counts:
            return 0.0
        count = self.sentence_counts[length] if length < len(self.sentence_counts) else 0
        return math.log((count + 0.5) / (sum(self.sentence_counts) + 0.5 * len(self.sentence_counts)))

    def room(self, given: int) -> int | None:
        """The most words that gaps should be tried with beside `given` ones; None where no sentences were counted."""
        return max(self._longest - given, LEAST_ROOM) if self.sentence_counts else None

    @cached_property
    def _longest(self) -> int:
        covered, total = 0, sum(self.sentence_counts)
        for length, count in enumerate(self.sentence_counts):
            covered += count
            if covered >= SHARE_COVERED * total:
                return length
        return len(self.sentence_counts) - 1


UNFITTED = LengthPrior()
