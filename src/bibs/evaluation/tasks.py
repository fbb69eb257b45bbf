"""What is blanked: the paper's fill-in-the-blank captioning, and Visual Madlibs.

A caption of T words loses floor(r T + 1/2) from its middle; of the words that stay, the smaller half stands before the
blank. The paper's example (11 words, r = 50 %) loses 6 and keeps 2 before and 3 after.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from bibs.data import CaptionedImage, Madlib
from bibs.text import tokenize

ImageId = int | str
Words = tuple[str, ...]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Example:
    """A sentence with one blank: what stands before it, what people wrote in it, and what stands after it."""

    key: ImageId  # names the example within its task
    image_id: ImageId
    filename: str
    before: Words
    blank: Words
    after: Words

    def filled(self, fill: Sequence[str]) -> Words:
        return (*self.before, *fill, *self.after)


class Cut(NamedTuple):
    """The examples of one task, and how many sentences could not be one."""

    examples: tuple[Example, ...]
    skipped: int


@dataclass(frozen=True)
class Cell:
    """One set of examples that every method fills: a column of the table."""

    task: str
    split: str
    removed: int | None  # per cent of the words
    lengths: str  # "known", or how unknown lengths are found
    examples: tuple[Example, ...]
    skipped: int = 0

    @property
    def where(self) -> dict[str, Any]:
        return {"task": self.task, "split": self.split, "removed": self.removed, "lengths": self.lengths}

    @property
    def name(self) -> str:
        return "/".join(str(part) for part in self.where.values() if part is not None)

    @property
    def label(self) -> str:
        return ", ".join(filter(None, (share_label(self.removed), f"{self.lengths} length")))


def share_label(removed: int | None) -> str:
    return "" if removed is None else f"r = {removed} %"


def cut_blank(words: Sequence[str], removed: int) -> tuple[Words, Words, Words] | None:
    """Before, blank and after, with `removed` per cent taken out of the middle.

    None where the sentence is too short: nothing to remove, or nothing left on one side.
    """
    if isinstance(removed, bool) or not isinstance(removed, int) or not 1 <= removed <= 99:
        raise ValueError(f"`removed` must be a whole percentage from 1 to 99, but is {removed!r}")
    width = (removed * len(words) + 50) // 100  # floor(r T + 1/2), in whole numbers
    before = (len(words) - width) // 2
    if not width or not before:
        return None
    return tuple(words[:before]), tuple(words[before : before + width]), tuple(words[before + width :])


def images_of(images: Sequence[CaptionedImage], split: str, data: object) -> list[CaptionedImage]:
    wanted = [image for image in images if image.split == split]
    if not wanted:
        raise ValueError(f"{data} has no split {split!r}, only {', '.join(sorted({image.split for image in images}))}")
    return wanted


def draw_captions(
    images: Iterable[CaptionedImage], *, seed: int = 0, limit: int | None = None
) -> list[tuple[CaptionedImage, Words]]:
    """One random caption of each picture.

    A picture's caption depends on the seed and its id alone, never on the other pictures; with a `limit`, the first
    of a random order are taken, so a smaller limit takes a part of what a larger one takes.
    """
    with_captions = [
        replace(image, image_id=f"text {number}") if image.image_id == "" else image
        for number, image in enumerate(images, start=1)
        if image.captions
    ]
    distinct = {image.image_id for image in with_captions}
    if len(distinct) < len(with_captions):
        repeated = len(with_captions) - len(distinct)
        raise ValueError(f"`images` must have distinct ids, but {repeated} of {len(with_captions)} repeat one")
    return [
        (image, image.captions[_number(seed, "caption", image.image_id) % len(image.captions)])
        for image in _first(with_captions, seed, limit, lambda image: image.image_id)
    ]


def caption_examples(captions: Sequence[tuple[CaptionedImage, Words]], *, removed: int) -> Cut:
    """Blank each caption; the too short are left out and counted."""
    examples = []
    for image, words in captions:
        parts = cut_blank(words, removed)
        if parts is not None:
            examples.append(Example(image.image_id, image.image_id, image.filename, *parts))
    if not examples:
        raise ValueError(f"no caption is long enough to lose {removed} % of its words: {len(captions)} tried")
    return Cut(tuple(examples), skipped=len(captions) - len(examples))


def madlibs_examples(madlibs: Sequence[Madlib], *, split: str, seed: int = 0, limit: int | None = None) -> Cut:
    """The Madlibs of one split, each with its first answer as what belongs in the blank.

    Those with no word on one side of the blank, or none in it, are left out and counted.
    """
    given = [madlib for madlib in madlibs if madlib.split == split]
    parted = [(each, [tuple(tokenize(text)) for text in (each.left, each.answers[0], each.right)]) for each in given]
    examples = [Example(each.id, each.image_id, "", *parts) for each, parts in parted if all(parts)]
    if not examples:
        held = ", ".join(sorted({madlib.split for madlib in madlibs} - {split})) or "nothing else"
        raise ValueError(
            f"`split` must hold a Madlib with words around its blank, but {split!r} has none ({held} here)"
        )
    return Cut(tuple(_first(examples, seed, limit, lambda each: each.key)), skipped=len(given) - len(examples))


def split_by_picture(madlibs: Iterable[Madlib]) -> list[Madlib]:
    """Where a file names one split alone, as the official ones do: 80 % of the pictures train, 10 % val, 10 % test.

    All Madlibs of a picture are in one split. A file with splits of its own is left as it is.
    """
    found = list(madlibs)
    if len({madlib.split for madlib in found}) > 1:
        return found
    tenths = ("val", "test", *["train"] * 8)
    return [replace(madlib, split=tenths[_number(0, "split", madlib.image_id) % 10]) for madlib in found]


def _first(items: Sequence[Item], seed: int, limit: int | None, key: Callable[[Item], ImageId]) -> list[Item]:
    """The first of a random order, all without a limit."""
    if limit is not None and limit < 1:
        raise ValueError(f"`limit` must be at least 1, but is {limit}")
    return sorted(items, key=lambda item: (_number(seed, "order", key(item)), str(key(item))))[:limit]


def _number(seed: int, purpose: str, key: ImageId) -> int:
    """A random number that is the same on every machine and for every Python."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{purpose}/{key}".encode()).digest()[:8], "big")
