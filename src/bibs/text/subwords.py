"""Templates for models that read sub-words: where words begin among tokens, and where fixed text is cut.

Which tokens begin a word is told by the tokenizer's own marks: `Ġ` (byte-level BPE) or `▁` (metaspace) before the first
piece of a word, `##` (WordPiece) before the others. A word is then what stands between white space, its punctuation
included; WordPiece, which forgets white space, has a word of its own for each punctuation mark.

Fixed text is cut at the blanks and each part is tokenised as it would be behind a word. A blank stands apart from
letters and digits, and tokenizers join nothing across that edge, so the parts have the tokens that they would have in
the whole text: no token reaches into a blank, and none has to be healed. The space before a blank belongs to its first
token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bibs.search import Gap
from bibs.text.template import Template

MARKS = ("Ġ", "▁", "##")

STAND_INS = ("x", "0")
"""What may stand for the fill before fixed text, to tokenise that as it would be behind it."""


class SubwordBlank(NamedTuple):
    """A run of missing words in a row of tokens."""

    gap: Gap  # words
    joined: bool  # to what stands before it, without a space, so that no token with a mark begins it


Parts = list[SubwordBlank | list[int]]
"""Blanks, and the tokens of the fixed text around them, from left to right."""


@dataclass(frozen=True)
class SubwordTemplate:
    """A template as a model of sub-words reads it: START and END included."""

    template: Template
    parts: Parts
    owners: tuple[int | None, ...]  # the blank of the template to which each part belongs; None: fixed text

    @property
    def blanks(self) -> list[SubwordBlank]:
        return [part for part in self.parts if isinstance(part, SubwordBlank)]

    def row(self, extra_tokens: int) -> list[int | Gap]:
        """Token ids, and a gap of tokens at each blank."""
        row: list[int | Gap] = []
        for part in self.parts:
            if isinstance(part, SubwordBlank):
                most = part.gap.maximum
                row.append(Gap(part.gap.minimum, None if most is None else most + extra_tokens))
            else:
                row += part
        return row

    def cut(self, tokens: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
        """The tokens of each blank of the template, endings included, out of a filled row."""
        fills: list[list[int]] = [[] for _ in self.template.blanks]
        given, place = iter(lengths), 0
        for part, owner in zip(self.parts, self.owners, strict=True):
            length = next(given) if isinstance(part, SubwordBlank) else len(part)
            if owner is not None:
                fills[owner] += tokens[place : place + length]
            place += length
        return fills


class SubwordTokenizer:
    """A fast tokenizer of transformers, with what bibs has to know of its tokens."""

    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        if not getattr(tokenizer, "is_fast", False):
            name = type(tokenizer).__name__
            raise ValueError(f"`tokenizer` must be a fast one, which knows where its tokens stand, but is a {name}")
        if len(tokenizer) > vocab_size:
            raise ValueError(
                f"`tokenizer` must have no more tokens than the models ({vocab_size}), but has {len(tokenizer)}"
            )
        self.tokenizer = tokenizer
        pieces: list[str] = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        self.mark = next((mark for mark in MARKS if any(piece.startswith(mark) for piece in pieces)), None)
        if self.mark is None:
            raise ValueError(
                f"`tokenizer` must mark where words begin, with {', '.join(MARKS)}, but no token is marked"
            )
        begins_marked = self.mark != "##"
        missing = vocab_size - len(pieces)
        self.begins = [piece.startswith(self.mark) == begins_marked for piece in pieces] + [False] * missing
        self.start, self.end = _ends(tokenizer)
        special = {self.start, self.end, *tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
        # White space, or some of it between letters, would make other words than were counted.
        self.banned = tuple(
            token
            for token in range(vocab_size)
            if token in special or token >= len(pieces) or len(self.decode([token])) != 1
        )
        # A tokenizer may put no space before a text: then a blank at its beginning begins without a mark too.
        self.marks_first = not begins_marked or pieces[self._read(STAND_INS[0])[0][0]].startswith(self.mark)

    def read(self, template: Template) -> SubwordTemplate:
        """The template in tokens; what the tokenizer cannot read is a ValueError of one line."""
        parts: Parts = [[self.start]]
        owners: list[int | None] = [None]
        before = ""  # the fixed text that came last
        for owner, part in _texts_and_blanks(template):
            is_first = len(parts) == 1
            if isinstance(part, str):
                before = part or before
                if not part.strip():
                    continue
                parts.append(self.encode(part, first=is_first))
            else:
                if isinstance(parts[-1], SubwordBlank):
                    raise ValueError("blanks must have a word between them for models of sub-words, but two have none")
                if part.minimum < 1:
                    raise ValueError(
                        "a blank must have one word at least for models of sub-words, but one may have none"
                    )
                parts.append(SubwordBlank(part, self._joined(before, first=is_first)))
            owners.append(owner)
        return SubwordTemplate(template, [*parts, [self.end]], (*owners, None))

    def encode(self, text: str, *, first: bool) -> list[int]:
        """The tokens of fixed text, at the beginning or behind a blank."""
        unknown = self.tokenizer.unk_token_id
        for word in text.split():
            if unknown is not None and any(token == unknown for token, _ in self._read(word)):
                raise ValueError(f"a template must hold words that `tokenizer` can read, but holds {word!r}")
        if first:
            return [token for token, _ in self._read(text.strip())]
        text = f" {text.strip()}" if text[0].isspace() else text.rstrip()
        for stand_in in STAND_INS:
            read = self._read(stand_in + text)
            if not any(start < len(stand_in) < end for _, (start, end) in read):
                return [token for token, (_, end) in read if end > len(stand_in)]
        raise ValueError(f"fixed text must not share a token with a blank, but {text[:20]!r} does with `tokenizer`")

    def decode(self, tokens: Sequence[int]) -> list[str]:
        """The words of a filled blank."""
        text: str = self.tokenizer.decode(list(tokens), clean_up_tokenization_spaces=False)
        return text.split()

    def _joined(self, before: str, *, first: bool) -> bool:
        if self.mark == "##":
            return False
        return not self.marks_first if first else not before[-1].isspace()

    def _read(self, text: str) -> list[tuple[int, tuple[int, int]]]:
        """Each token with its place in the text."""
        read = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return list(zip(read.input_ids, read.offset_mapping, strict=True))


def _texts_and_blanks(template: Template) -> Iterator[tuple[int | None, str | Gap]]:
    """Fixed text and blanks in turn, each with the blank it belongs to; `_'s` is a word with fixed text behind it."""
    for number, (blank, endings) in enumerate(zip(template.blanks, template.endings, strict=True)):
        yield None, template.literals[number]
        if not any(endings):
            yield number, blank
            continue
        missing = 0
        for ending in endings:
            missing += 1
            if ending:
                yield number, Gap(missing, missing)
                yield number, ending
                yield number, " "
                missing = 0
        if missing:
            yield number, Gap(missing, missing)
    yield None, template.literals[-1]


def _ends(tokenizer: Any) -> tuple[int, int]:
    """START and END: what the tokenizer calls so, or the one of them that it has."""
    names = ("bos_token_id", "cls_token_id", "eos_token_id", "sep_token_id")
    bos, cls, eos, sep = (getattr(tokenizer, name, None) for name in names)
    start = next((token for token in (bos, cls, eos) if token is not None), None)
    end = next((token for token in (eos, sep, bos) if token is not None), None)
    if start is None or end is None:
        raise ValueError("`tokenizer` must have a token for the end of a text, bos or eos, but has neither")
    return start, end
