"""From the letters of a FASTA file to token ids and back, and where a sequence has stretches of N."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bibs.models.kmers import LETTERS, OTHER

IUPAC = frozenset("ACGTURYSWKMBDHVN")
"""Bases, and letters for one of several bases: these are kept as they are, and no model reads them."""

_TOKENS = np.full(256, OTHER, np.uint8)
for _token, _letter in enumerate(LETTERS, start=1):
    _TOKENS[[ord(_letter), ord(_letter.lower())]] = _token


@dataclass(frozen=True)
class LetterGap:
    """A stretch of N: `start` to `end` in its record, counted from 0, and the letters next to it."""

    record: str
    start: int
    end: int
    left: str
    right: str

    @property
    def length(self) -> int:
        return self.end - self.start


def to_tokens(letters: str) -> NDArray[np.uint8]:
    """A, C, G, T in either case as 1 to 4; any other letter as `OTHER`."""
    return _TOKENS[np.frombuffer(letters.encode("latin-1", "replace"), np.uint8)]


def to_letters(tokens: Iterable[int]) -> str:
    return "".join(LETTERS[token - 1] if token != OTHER else "N" for token in tokens)


def find_gaps(record: str, letters: str, flank: int) -> Iterator[LetterGap]:
    """The stretches of N (or n) in a sequence, each with at most `flank` letters from either side."""
    for match in re.finditer("[Nn]+", letters):
        start, end = match.span()
        yield LetterGap(record, start, end, letters[max(0, start - flank) : start], letters[end : end + flank])


def check_letters(record: str, letters: str, file: str) -> None:
    """Refuse what is no DNA: a protein, an alignment."""
    wrong = sorted(set(letters.upper()) - IUPAC)
    if wrong:
        place = letters.upper().index(wrong[0]) + 1
        raise ValueError(
            f"{file}, record {record!r}: a letter must be A, C, G, T, N or another IUPAC code, "
            f"but letter {place:,} is {wrong[0]!r}"
        )
