"""Opening data files so that every bad one gives a single clear line."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

# COCO pads its ids to twelve digits, behind a prefix before 2017. No other data set read here does.
_COCO_NAME = re.compile(r"(?:COCO_[a-z]+\d{4}_)?(\d{12})\.[A-Za-z]+")

DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)


def image_id_of(filename: str) -> int | str:
    """The COCO id of a picture named as COCO names its files, else the file name itself (without folders)."""
    name = filename.replace("\\", "/").rsplit("/", 1)[-1]
    match = _COCO_NAME.fullmatch(name)
    return int(match[1]) if match else name


def open_text(path: Path) -> IO[str]:
    """A UTF-8 text file, plain or gzip (told by its first bytes, not by its name)."""
    return io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig")


def open_bytes(path: Path) -> io.BufferedReader | gzip.GzipFile:
    """A file, unpacked where it is gzip."""
    try:
        raw = path.open("rb")
    except FileNotFoundError:
        raise ValueError(f"no such file: {path}") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    with raw:
        packed = raw.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else path.open("rb")


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The non-blank lines of a text file with their numbers, from 1; a file without any is an error."""
    number = 0
    empty = True
    with open_text(path) as file:
        try:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    empty = False
                    yield number, line.strip()
        except UnicodeDecodeError:
            raise ValueError(f"{path} is not UTF-8 text (after line {number})") from None
        except DAMAGED as error:
            raise ValueError(f"{path} is a damaged gzip file (after line {number}): {error}") from None
    if empty:
        raise ValueError(f"{path} is empty")


def read_json(path: Path) -> Any:
    with open_text(path) as file:
        try:
            text = file.read()
        except UnicodeDecodeError:
            raise ValueError(f"{path} is not UTF-8 text") from None
        except DAMAGED as error:
            raise ValueError(f"{path} is a damaged gzip file: {error}") from None
    if not text.strip():
        raise ValueError(f"{path} is empty")
    return parse_json(text, where=str(path))


def parse_json(text: str, *, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ValueError(f"{where} is not JSON that can be read: nested too deeply") from None


def field(entry: Any, name: str, kind: type | tuple[type, ...], *, where: str) -> Any:
    """`entry[name]`, checked: an error says which entry lacks the field or holds the wrong kind of value."""
    if not isinstance(entry, dict):
        raise ValueError(f"{where} must be an object, but is {_described(entry)}")
    if name not in entry:
        raise ValueError(f"{where} has no field `{name}`")
    value = entry[name]
    kinds = kind if isinstance(kind, tuple) else (kind,)
    # JSON's true and false are ints to Python, never to the reader of a data file.
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join(_NAMES[each] for each in kinds)
        raise ValueError(f"{where}: `{name}` must be {wanted}, but is {_described(value)}")
    return value


_NAMES: dict[type, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    list: "a list",
    dict: "an object",
    bool: "true or false",
    type(None): "null",
}


def _described(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 40 else f"{text[:37]}..."
