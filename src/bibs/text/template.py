r"""The template language: text with holes.

    _           one missing word; several in a row (`_ _ _`) are one blank of that many words
    ___         a blank of unknown length, one word at least (three underscores or more)
    ___{2,6}    a blank of 2 to 6 words; `{3}` is exactly 3, `{2,}` at least 2, `{0,4}` possibly none
    _'s         one missing word that ends in 's, for `man's` is one word to a model
    \_  \\      an underscore, a backslash (which any other character leaves as it is)

Punctuation may touch a blank, other letters and digits may not. A model reads the words of the fixed text; whoever
reads the result sees the fixed text as it was typed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from bibs.search import Gap, OneOf
from bibs.text.tokeniser import ends_in_word, tokenize
from bibs.text.vocabulary import Vocabulary

T = TypeVar("T")

_MARK = re.compile(r"\\(?P<escaped>[_\\])|(?P<underscores>_+)(?:(?P<range>\{[^}]*\}?)|(?P<ending>'[^\W\d_]+))?")
_RANGE = re.compile(r"\{\s*(?P<minimum>[0-9]+)\s*(?P<comma>,\s*(?P<maximum>[0-9]+)?\s*)?\}")
_MAX_DIGITS = 6
_WORD_AHEAD = re.compile(r"'*[^\W_]")
_OPENING = tuple("([{")
_CLOSING = tuple(",.;:!?)]}")


@dataclass(frozen=True)
class Template:
    """Text with blanks, made by `Template.parse`. The fixed text before blank k is `literals[k]`."""

    source: str
    literals: tuple[str, ...]  # one more than blanks; escapes are resolved
    blanks: tuple[Gap, ...]
    gaps: tuple[tuple[str, ...], ...]  # per blank, the white space typed between its `_` marks
    endings: tuple[tuple[str, ...], ...]  # per blank, what its `_` marks end in ("" for most); none for other blanks

    @classmethod
    def parse(cls, text: str) -> Template:
        """Read a template; what cannot be meant is a ValueError of one line that shows the place."""
        if not text.strip():
            raise ValueError("the template must hold a word or a blank, but is empty")
        literals, blanks, gaps, endings = [""], list[Gap](), list[list[str]](), list[list[str]]()
        ends_with_slot = False  # whether the last blank is a run of `_`, which a further `_` would lengthen
        position = 0
        for mark in _MARK.finditer(text):
            literals[-1] += text[position : mark.start()]
            position = mark.end()
            if mark["underscores"] is None:
                literals[-1] += mark["escaped"]
                continue
            blank = _read_mark(text, mark)
            is_slot = mark["underscores"] == "_"
            if is_slot and ends_with_slot and literals[-1] and literals[-1].isspace():
                length = blanks[-1].minimum + 1
                blanks[-1] = Gap(length, length)
                gaps[-1].append(literals[-1])
                literals[-1] = ""
            else:
                _check_left(text, mark, literals[-1], is_first=not blanks)
                blanks.append(blank)
                gaps.append([])
                endings.append([])
                literals.append("")
            if is_slot:
                endings[-1].append(mark["ending"] or "")
            _check_right(text, mark)
            ends_with_slot = is_slot
        literals[-1] += text[position:]
        return cls(text, tuple(literals), tuple(blanks), tuple(map(tuple, gaps)), tuple(map(tuple, endings)))

    @property
    def has_unknown_lengths(self) -> bool:
        return not all(blank.minimum == blank.maximum for blank in self.blanks)

    @property
    def num_words(self) -> int:
        """The words of the finished text, where a blank of unknown length counts as short as it may be."""
        fixed = sum(len(tokenize(literal)) for literal in self.literals)
        return fixed + sum(blank.minimum for blank in self.blanks)

    def row(self, vocabulary: Vocabulary) -> list[int | Gap | OneOf | None]:
        """START, the ids of the fixed words with None at each missing one, END; a blank of unknown length as it is."""
        row: list[int | Gap | OneOf | None] = [vocabulary.start, *vocabulary.encode(tokenize(self.literals[0]))]
        for blank, endings, literal in zip(self.blanks, self.endings, self.literals[1:], strict=True):
            if any(endings):
                row += [_words_with(ending, vocabulary) if ending else None for ending in endings]
            else:
                row += [None] * blank.minimum if blank.minimum == blank.maximum else [blank]
            row += vocabulary.encode(tokenize(literal))
        return [*row, vocabulary.end]

    def slots(self, vocabulary: Vocabulary, lengths: Sequence[int] = ()) -> list[int | OneOf | None]:
        """The row with None at each missing word. `lengths` gives one per blank of unknown length, left to right."""
        self._all_lengths(lengths)  # refuses what does not fit
        unknown = iter(lengths)
        slots: list[int | OneOf | None] = []
        for slot in self.row(vocabulary):
            slots += [None] * next(unknown) if isinstance(slot, Gap) else [slot]
        return slots

    def cut(self, tokens: Sequence[T], lengths: Sequence[int] = ()) -> list[list[T]]:
        """The items of each blank, out of a row as long as `slots` (START and END included)."""
        all_lengths = self._all_lengths(lengths)
        num_fixed = [len(tokenize(literal)) for literal in self.literals]
        expected = sum(num_fixed) + sum(all_lengths) + 2
        if len(tokens) != expected:
            raise ValueError(f"`tokens` must hold {expected} items for this template, but hold {len(tokens)}")
        fills = []
        position = 1
        for length, fixed in zip(all_lengths, num_fixed[:-1], strict=True):
            position += fixed
            fills.append(list(tokens[position : position + length]))
            position += length
        return fills

    def render(self, fills: Sequence[Sequence[str]]) -> tuple[str, tuple[str, ...]]:
        """The finished text, and the words of each blank as one string. `fills` holds the words per blank."""
        if len(fills) != len(self.blanks):
            raise ValueError(f"`fills` must hold one per blank ({len(self.blanks)}), but hold {len(fills)}")
        text = self.literals[0]
        for k, (blank, words) in enumerate(zip(self.blanks, fills, strict=True)):
            if not _allows(blank, len(words)):
                raise ValueError(f"`fills[{k}]` must have a length of {_range(blank)}, but has {len(words)}")
            following = self.literals[k + 1]
            if any(self.endings[k]):
                words = [_with_ending(*pair) for pair in zip(words, self.endings[k], strict=True)]
            if words:
                # A blank of `_` marks has a gap typed between any two words, other blanks have none.
                gaps = self.gaps[k] or (" ",) * (len(words) - 1)
                text += words[0] + "".join(map("".join, zip(gaps, words[1:], strict=True))) + following
            else:
                text = _join_over_nothing(text, following)
        return text, tuple(" ".join(words) for words in fills)

    def __str__(self) -> str:
        return self.source

    def _all_lengths(self, lengths: Sequence[int]) -> list[int]:
        """The length of every blank, given those of the blanks of unknown length."""
        unknown = [blank for blank in self.blanks if blank.minimum != blank.maximum]
        if len(lengths) != len(unknown):
            rule = f"one length per blank of unknown length ({len(unknown)})"
            raise ValueError(f"`lengths` must hold {rule}, but holds {len(lengths)}")
        for k, (blank, length) in enumerate(zip(unknown, lengths, strict=True)):
            if not _allows(blank, length):
                raise ValueError(f"`lengths[{k}]` must be {_range(blank)}, but is {length}")
        given = iter(lengths)
        return [blank.minimum if blank.minimum == blank.maximum else next(given) for blank in self.blanks]


def escape(text: str) -> str:
    r"""The template without blanks that reads as `text`: a backslash before every underscore and backslash."""
    return re.sub(r"[_\\]", r"\\\g<0>", text)


def _words_with(ending: str, vocabulary: Vocabulary) -> OneOf:
    """What may fill a blank that ends so."""
    ending = ending.lower()
    words = [token for token, word in enumerate(vocabulary.words) if word.endswith(ending) and word != ending]
    if not words:
        raise ValueError(
            f"a blank that ends in {ending} must be filled by a word that the model knows, but it knows none"
        )
    return OneOf(tuple(words))


def _with_ending(word: str, ending: str) -> str:
    """The word with the ending as it was typed."""
    if not word.endswith(ending.lower()):
        raise ValueError(f"`fills` must hold a word that ends in {ending} here, but hold {word!r}")
    return word[: len(word) - len(ending)] + ending


def _read_mark(text: str, mark: re.Match[str]) -> Gap:
    underscores, bounds = mark["underscores"], mark["range"]
    if underscores == "__":
        raise _error(text, mark, "`__` is no blank; `_` is one word, `___` a blank of unknown length")
    if underscores == "_":
        if bounds is not None:
            raise _error(text, mark, "`_` is one word and takes no range; write `___{2,6}`")
        return Gap(1, 1)
    if mark["ending"] is not None:
        raise _error(text, mark, f"only `_`, one word, can end in {mark['ending']}: write `_{mark['ending']}`")
    if bounds is None:
        return Gap(1, None)
    match = _RANGE.fullmatch(bounds)
    if match is not None and max(len(match["minimum"]), len(match["maximum"] or "")) > _MAX_DIGITS:
        raise _error(text, mark, f"a range must end below {10**_MAX_DIGITS:,}")
    if match is None:
        raise _error(text, mark, "a range is `{2,6}`, `{2,}` or `{3}`")
    minimum = int(match["minimum"])
    if match["comma"] is None:
        maximum: int | None = minimum
    else:
        maximum = None if match["maximum"] is None else int(match["maximum"])
    if maximum is not None and maximum < max(minimum, 1):
        raise _error(text, mark, "the upper end of a range must be at least 1 and at least the lower end")
    return Gap(minimum, maximum)


def _check_left(text: str, mark: re.Match[str], before: str, *, is_first: bool) -> None:
    """Refuse a blank that would make one word with what stands before it, apostrophes included."""
    if ends_in_word(before) or (not before.rstrip("'") and not is_first):
        raise _touch_error(text, mark)


def _check_right(text: str, mark: re.Match[str]) -> None:
    if _WORD_AHEAD.match(text, mark.end()):
        raise _touch_error(text, mark)


def _touch_error(text: str, mark: re.Match[str]) -> ValueError:
    return _error(text, mark, r"a blank must stand apart from words and blanks; a literal underscore is `\_`")


def _error(text: str, mark: re.Match[str], rule: str) -> ValueError:
    start, end = max(0, mark.start() - 15), min(len(text), mark.end() + 15)
    excerpt = "".join(character if character.isprintable() else " " for character in text[start:end])
    excerpt = ("…" if start > 0 else "") + excerpt + ("…" if end < len(text) else "")
    return ValueError(f'template, character {mark.start() + 1}, "{excerpt}": {rule}')


def _allows(blank: Gap, length: int) -> bool:
    return length >= blank.minimum and (blank.maximum is None or length <= blank.maximum)


def _range(blank: Gap) -> str:
    if blank.minimum == blank.maximum:
        return f"exactly {blank.minimum}"
    return f"{blank.minimum} or more" if blank.maximum is None else f"{blank.minimum} to {blank.maximum}"


def _join_over_nothing(before: str, after: str) -> str:
    """Join the text around an empty fill, without the space that would have set the fill apart."""
    if not before.strip() or before.endswith(_OPENING):
        return before + after.lstrip()
    if not after or after[0].isspace() or after.startswith(_CLOSING):
        return before.rstrip() + after
    return before + after
