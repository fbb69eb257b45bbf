"""Captioned pictures from the layouts in use: Karpathy's JSON, COCO's own JSON, JSON lines and plain text.

Every caption goes through the one tokeniser of `bibs.text`, whatever its source, so that a model may be
trained on several sources. A caption without a single word is left out.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bibs.data.files import field, image_id_of, parse_json, read_json, read_lines
from bibs.text import tokenize

# Karpathy moved 30,504 pictures of COCO's val to training and called them `restval`.
_SPLITS = {"train": "train", "restval": "train", "val": "val", "validation": "val", "test": "test"}


VAL_SHARE = 0.05
"""Of the data, held out to validate on where there is no split `val`."""


@dataclass(frozen=True)
class CaptionedImage:
    """A picture and what people said of it; without a picture, `image_id` and `filename` are empty."""

    image_id: int | str
    filename: str
    split: str
    captions: tuple[tuple[str, ...], ...]


def read_captions(
    path: str | Path, *, split: str | None = None, assume_split: str | None = None
) -> Iterator[CaptionedImage]:
    """Read a file of captions; the layout is told from the file itself.

    `split` keeps one split only, and a file without it is an error. `assume_split` is the split of everything
    in a file that names none: without it, COCO's JSON is split by its file name and all else is "train".
    """
    path = Path(path)
    for option, value in (("split", split), ("assume_split", assume_split)):
        if value is not None and value not in _SPLITS.values():
            raise ValueError(f"`{option}` must be train, val or test, but is {value!r}")
    if not path.exists():
        raise ValueError(f"no such file: {path}")
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    suffix = suffixes[-1] if suffixes else ""
    if suffix == ".json":
        images = _json(path, read_json(path), assume_split)
    elif suffix in (".jsonl", ".ndjson"):
        images = _json_lines(path, assume_split or "train")
    else:
        images = _plain_text(path, assume_split or "train")
    return images if split is None else _only(images, split, path)


def hold_out(images: Iterable[CaptionedImage], share: float) -> list[CaptionedImage]:
    """Where none is in the split `val`, a share of those in `train` is put there, by a hash of the picture or the line.

    So it is the same share in every command, and a line or a picture that stands there twice is in one split.
    """
    images = list(images)
    if any(image.split == "val" for image in images):
        return images
    return [
        replace(image, split="val") if image.split == "train" and _place(image) < share else image for image in images
    ]


def _place(image: CaptionedImage) -> float:
    """A number from 0 to 1 that is the same on every machine."""
    key = repr(image.captions if image.image_id == "" else image.image_id)
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64


def _only(images: Iterable[CaptionedImage], split: str, path: Path) -> Iterator[CaptionedImage]:
    counts: Counter[str] = Counter()
    for image in images:
        counts[image.split] += 1
        if image.split == split:
            yield image
    if not counts[split]:
        others = ", ".join(f"{name} ({count})" for name, count in counts.items()) or "nothing"
        raise ValueError(f"{path} has no split {split!r}; it holds {others}")


def _json(path: Path, data: Any, assume_split: str | None) -> Iterator[CaptionedImage]:
    if isinstance(data, list) and data:
        return (_simple(entry, assume_split or "train", where=f"{path}[{k}]") for k, entry in enumerate(data))
    if isinstance(data, dict) and "annotations" in data:
        return _coco(path, data, assume_split or _split_in_name(path.name))
    if isinstance(data, dict) and "images" in data:
        return _karpathy(path, data)
    raise ValueError(
        f"{path} is in no known layout: it must hold `images` (Karpathy), `images` and `annotations` (COCO), "
        "or a non-empty list of objects with `caption` or `captions`"
    )


def _karpathy(path: Path, data: Any) -> Iterator[CaptionedImage]:
    for index, entry in enumerate(_entries(data, "images", path)):
        where = f"{path}: images[{index}]"
        filename = field(entry, "filename", str, where=where)
        sentences = field(entry, "sentences", list, where=where)
        yield CaptionedImage(
            image_id=field(entry, "cocoid", int, where=where) if "cocoid" in entry else image_id_of(filename),
            filename=filename,
            split=_split(field(entry, "split", str, where=where), where=where),
            captions=_with_words(
                _sentence(sentence, where=f"{where}.sentences[{k}]") for k, sentence in enumerate(sentences)
            ),
        )


def _sentence(sentence: Any, *, where: str) -> tuple[str, ...]:
    if isinstance(sentence, dict) and "raw" not in sentence and "tokens" in sentence:
        tokens = field(sentence, "tokens", list, where=where)
        return tuple(tokenize(" ".join(map(str, tokens))))
    return tuple(tokenize(field(sentence, "raw", str, where=where)))


def _coco(path: Path, data: Any, split: str) -> Iterator[CaptionedImage]:
    filenames: dict[int | str, str] = {}
    for index, entry in enumerate(_entries(data, "images", path)):
        where = f"{path}: images[{index}]"
        filenames[field(entry, "id", (int, str), where=where)] = field(entry, "file_name", str, where=where)
    captions: dict[int | str, list[tuple[str, ...]]] = {}
    for index, entry in enumerate(_entries(data, "annotations", path)):
        where = f"{path}: annotations[{index}]"
        image_id = field(entry, "image_id", (int, str), where=where)
        if image_id not in filenames:
            raise ValueError(f"{where}: `image_id` must be among `images`, but is {image_id!r}")
        caption = tuple(tokenize(field(entry, "caption", str, where=where)))
        captions.setdefault(image_id, []).append(caption)
    for image_id, filename in filenames.items():
        if image_id in captions:
            yield CaptionedImage(image_id, filename, split, _with_words(captions[image_id]))


def _json_lines(path: Path, assume_split: str) -> Iterator[CaptionedImage]:
    for number, line in read_lines(path):
        where = f"{path}, line {number}"
        yield _simple(parse_json(line, where=where), assume_split, where=where)


def _simple(entry: Any, assume_split: str, *, where: str) -> CaptionedImage:
    """`{"captions": [...]}` or `{"caption": "..."}`; `image`, `image_id` and `split` where known."""
    if isinstance(entry, dict) and "captions" in entry:
        captions = field(entry, "captions", list, where=where)
        for caption in captions:
            if not isinstance(caption, str):
                raise ValueError(f"{where}: `captions` must be a list of strings, but holds {caption!r:.40}")
    elif isinstance(entry, dict) and "caption" not in entry:
        raise ValueError(f"{where} has no field `captions` (a list) or `caption` (a string)")
    else:
        captions = [field(entry, "caption", str, where=where)]
    filename = field(entry, "image", str, where=where) if "image" in entry else ""
    has_id = "image_id" in entry
    return CaptionedImage(
        image_id=field(entry, "image_id", (int, str), where=where) if has_id else image_id_of(filename),
        filename=filename,
        split=_split(field(entry, "split", str, where=where), where=where) if "split" in entry else assume_split,
        captions=_with_words(tuple(tokenize(caption)) for caption in captions),
    )


def _plain_text(path: Path, split: str) -> Iterator[CaptionedImage]:
    for _, line in read_lines(path):
        if words := tuple(tokenize(line)):
            yield CaptionedImage(image_id="", filename="", split=split, captions=(words,))


def _entries(data: Any, name: str, path: Path) -> list[Any]:
    entries: list[Any] = field(data, name, list, where=str(path))
    if not entries:
        raise ValueError(f"{path}: `{name}` is empty")
    return entries


def _with_words(captions: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    return tuple(caption for caption in captions if caption)


def _split(name: str, *, where: str) -> str:
    if name not in _SPLITS:
        raise ValueError(f"{where}: `split` must be one of {', '.join(_SPLITS)}, but is {name!r}")
    return _SPLITS[name]


def _split_in_name(filename: str) -> str:
    return next((split for split in ("train", "val", "test") if split in filename.lower()), "train")
