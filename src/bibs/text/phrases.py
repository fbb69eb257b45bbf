"""Words and phrases that a user names, as the tokeniser reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from bibs.text.tokeniser import tokenize
from bibs.text.vocabulary import Vocabulary

Phrase: TypeAlias = tuple[int, ...]
"""The ids of words that stand together, in this order."""


def read_phrases(name: str, phrases: Any) -> list[tuple[str, ...]]:
    """The words of each phrase of a list, each phrase once."""
    if isinstance(phrases, str | bytes) or not isinstance(phrases, Sequence):
        raise ValueError(f"`{name}` must be a list of words, but is {phrases!r}")
    read = []
    for phrase in phrases:
        words = tuple(tokenize(phrase)) if isinstance(phrase, str) else ()
        if not words:
            raise ValueError(f"`{name}` must hold words, but holds {phrase!r}")
        read.append(words)
    return list(dict.fromkeys(read))


def banned_words(name: str, words: Any, vocabulary: Vocabulary) -> list[int]:
    """The ids of words that must not appear. What a model does not know cannot appear."""
    banned = []
    for phrase in read_phrases(name, words):
        if len(phrase) > 1:
            raise ValueError(f"`{name}` must hold single words, but holds {' '.join(phrase)!r}")
        banned += vocabulary.encode(phrase) if phrase[0] in vocabulary else []
    return banned


def required_phrases(name: str, phrases: Any, vocabulary: Vocabulary, *, banned: Sequence[int]) -> list[Phrase]:
    """The ids of phrases that must appear, each of words that the model knows and that may appear."""
    read = read_phrases(name, phrases)
    for word in (word for phrase in read for word in phrase):
        if word not in vocabulary:
            raise ValueError(f"`{name}` must hold words that the model knows, but holds {word!r}")
        if vocabulary.encode([word])[0] in banned:
            raise ValueError(f"`{name}` must hold no word of `bad_words`, but holds {word!r}")
    return [tuple(vocabulary.encode(phrase)) for phrase in read]
