"""Text to words, as the captioning literature does it: lower case, punctuation stripped."""

from __future__ import annotations

import re

_WORD = re.compile(r"[a-z0-9](?:[a-z0-9']*[a-z0-9])?")


def tokenize(text: str) -> list[str]:
    """The words of `text`: runs of letters, digits and inner apostrophes, in lower case.

    >>> tokenize("A man's dog, 'Rex', runs.")
    ['a', "man's", 'dog', 'rex', 'runs']
    """
    return _WORD.findall(text.lower())


def words_as_typed(text: str) -> list[str]:
    """What each of the words of `tokenize` is made from.

    >>> words_as_typed("A man's dog, 'Rex', runs.")
    ['A', "man's", 'dog', 'Rex', 'runs']
    """
    lowered = [character.lower() for character in text]
    sources = [place for place, lower in enumerate(lowered) for _ in lower]  # one letter may become two
    return [text[sources[word.start()] : sources[word.end() - 1] + 1] for word in _WORD.finditer("".join(lowered))]
