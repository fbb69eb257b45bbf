"""Text to words, as the captioning literature does it: lower case, punctuation stripped. In any alphabet."""

from __future__ import annotations

import re
import unicodedata
from functools import cache


def tokenize(text: str) -> list[str]:
    """The words of `text`: runs of letters, digits and inner apostrophes, in lower case.

    >>> tokenize("A man's dog, 'Rex', runs.")
    ['a', "man's", 'dog', 'rex', 'runs']
    """
    # An accent may stand in its letter or behind it: one word either way.
    return _word(text).findall(unicodedata.normalize("NFC", _spaced(text).lower()))


def words_as_typed(text: str) -> list[str]:
    """What each of the words of `tokenize` is made from.

    >>> words_as_typed("A man's dog, 'Rex', runs.")
    ['A', "man's", 'dog', 'Rex', 'runs']
    """
    lowered = [character.lower() for character in _spaced(text)]
    sources = [place for place, lower in enumerate(lowered) for _ in lower]  # one letter may become two
    words = _word(text).finditer("".join(lowered))
    return [text[sources[word.start()] : sources[word.end() - 1] + 1] for word in words]


def ends_in_word(text: str) -> bool:
    """Whether a letter right behind `text` would lengthen its last word, apostrophes included."""
    return text.rstrip("'" + _marks_of(text))[-1:].isalnum()


def _spaced(text: str) -> str:
    return text.replace("_", " ")  # which is a letter to `re`


def _word(text: str) -> re.Pattern[str]:
    return _pattern(_marks_of(text))


@cache
def _pattern(marks: str) -> re.Pattern[str]:
    return re.compile(rf"\w(?:[\w'{marks}]*[\w{marks}])?")


def _marks_of(text: str) -> str:
    """The marks that a text can hold: `re` is quick with few, and with those below 0x10000."""
    return "" if text.isascii() else _marks(0x10000 if max(text) < "\U00010000" else 0xE0200)


@cache
def _marks(end: int) -> str:
    """The accents and vowel signs that stand behind a letter, and are no letters to `re`."""
    return "".join(mark for mark in map(chr, range(end)) if unicodedata.category(mark).startswith("M"))
