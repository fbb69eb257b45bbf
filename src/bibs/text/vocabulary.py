"""The words a model knows, and their ids: three special ones first, then the rest by falling count."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

START, END, UNK = "<start>", "<end>", "<unk>"
SPECIALS = (START, END, UNK)


class Vocabulary:
    """A fixed, ordered set of words. The id of a word is its place in `words`; the specials come first."""

    def __init__(self, words: Sequence[str]) -> None:
        """`words` are the ordinary words in the order of their ids; the specials are put before them."""
        if isinstance(words, str | bytes) or not isinstance(words, Sequence):
            raise ValueError(f"`words` must be a list of words, but is {words!r:.60}")
        for word in words:
            if not isinstance(word, str):
                raise ValueError(f"`words` must be strings, but one is {word!r:.60}")
        self.words: tuple[str, ...] = (*SPECIALS, *words)
        self.start, self.end, self.unk = range(len(SPECIALS))
        self._ids = {word: token for token, word in enumerate(self.words)}
        _check_words(self.words, self._ids)

    @classmethod
    def build(cls, sentences: Iterable[Sequence[str]], *, min_count: int = 1) -> Vocabulary:
        """The words seen at least `min_count` times, most frequent first, ties by alphabet."""
        if min_count < 1:
            raise ValueError(f"`min_count` must be at least 1, but is {min_count}")
        counts = Counter(word for sentence in sentences for word in sentence)
        for special in SPECIALS:  # text that names a special means the special, not a second word of that name
            del counts[special]
        kept = [word for word, count in counts.items() if count >= min_count]
        return cls(sorted(kept, key=lambda word: (-counts[word], word)))

    def encode(self, words: Iterable[str]) -> list[int]:
        """The id of each word; words outside the vocabulary become `unk`."""
        return [self._ids.get(word, self.unk) for word in words]

    def decode(self, tokens: Iterable[int]) -> list[str]:
        """The word of each id, specials included."""
        tokens = [int(token) for token in tokens]  # accepts the items of a tensor or an array too
        for token in tokens:
            if not 0 <= token < len(self.words):
                raise ValueError(f"`tokens` must be ids from 0 to {len(self.words) - 1}, but hold {token}")
        return [self.words[token] for token in tokens]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one word a line, in UTF-8. The file appears whole or not at all."""
        path = Path(path)
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            with partial.open("w", encoding="utf-8", newline="\n") as file:
                file.write(self._text())
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise ValueError(f"{path} could not be written: {error.strerror or error}") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Vocabulary:
        """Read what `save` wrote."""
        path = Path(path)
        if path.exists() and not path.is_file():  # a device may never end
            raise ValueError(f"{path} could not be read: it is not a file")
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise ValueError(f"the vocabulary {path} is not UTF-8 text (byte {error.start})") from None
        except OSError as error:
            raise ValueError(f"{path} could not be read: {error.strerror or error}") from error
        if tuple(lines[: len(SPECIALS)]) != SPECIALS:
            raise ValueError(f"the vocabulary {path} must begin with the lines {', '.join(SPECIALS)}")
        try:
            return cls(lines[len(SPECIALS) :])
        except ValueError as error:
            raise ValueError(f"the vocabulary {path} is damaged: {error}") from None

    def fingerprint(self) -> str:
        """A short name of the contents, the same wherever the words and their order are the same."""
        return hashlib.sha256(self._text().encode()).hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __eq__(self, other: object) -> bool:
        return self.words == other.words if isinstance(other, Vocabulary) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.words)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} words, {self.fingerprint()})"

    def _text(self) -> str:
        return "".join(f"{word}\n" for word in self.words)


def _check_words(words: Sequence[str], ids: dict[str, int]) -> None:
    for word in words:
        if word.split() != [word]:
            raise ValueError(f"`words` must not be empty nor hold white space, but one is {word!r}")
    if len(ids) < len(words):
        repeated = next(word for word, count in Counter(words).items() if count > 1)
        raise ValueError(f"`words` must be distinct and not name a special, but {repeated!r} stands twice")
