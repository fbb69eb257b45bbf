"""Captioned pictures from the layouts in use: Karpathy's JSON and plain text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bibs.data.files import field, image_id_of, read_json, read_lines
from bibs.text import tokenize

SPLITS = ("train", "val", "test")

# Karpathy moved 30,504 pictures of COCO's val to training and called them `restval`.
_SPLIT_NAMES = {"restval": "train", "valid": "val", "validation": "val", "dev": "val"}


@dataclass(frozen=True)
class CaptionedImage:
    """A picture and what people said of it. Text without a picture has `image_id` and `filename` "" ."""

    image_id: int | str
    filename: str
    split: str
    captions: tuple[tuple[str, ...], ...]


def read_captions(path: str | Path) -> Iterator[CaptionedImage]:
    path = Path(path)
    if path.suffix == ".json":
        return _karpathy(path, read_json(path))
    return _plain_text(path)


def _karpathy(path: Path, data: Any) -> Iterator[CaptionedImage]:
    for index, entry in enumerate(field(data, "images", list, where=str(path))):
        where = f"{path}: images[{index}]"
        filename = field(entry, "filename", str, where=where)
        split = field(entry, "split", str, where=where)
        sentences = field(entry, "sentences", list, where=where)
        captions = [
            _sentence(sentence, where=f"{where}.sentences[{k}]") for k, sentence in enumerate(sentences)
        ]
        yield CaptionedImage(
            image_id=field(entry, "cocoid", int, where=where) if "cocoid" in entry else image_id_of(filename),
            filename=filename,
            split=_SPLIT_NAMES.get(split, split),
            captions=tuple(captions),
        )


def _sentence(sentence: Any, *, where: str) -> tuple[str, ...]:
    # One tokeniser for every source, so that a model may be trained on several of them: `tokens` are taken
    # only where `raw` is absent.
    if isinstance(sentence, dict) and "raw" not in sentence and "tokens" in sentence:
        return tuple(str(token) for token in field(sentence, "tokens", list, where=where))
    return tuple(tokenize(field(sentence, "raw", str, where=where)))


def _plain_text(path: Path) -> Iterator[CaptionedImage]:
    for _, line in read_lines(path):
        yield CaptionedImage(image_id="", filename="", split="train", captions=(tuple(tokenize(line)),))
