"""Text to words, as the captioning literature does it: lower case, punctuation stripped."""

from __future__ import annotations

import re

_WORD = re.compile(r"[a-z0-9']+")


def tokenize(text: str) -> list[str]:
    """The words of `text`: runs of letters, digits and inner apostrophes, in lower case.

    >>> tokenize("A man's dog, 'Rex', runs.")
    ['a', "man's", 'dog', 'rex', 'runs']
    """
    words = (run.strip("'") for run in _WORD.findall(text.lower()))
    return [word for word in words if word]
