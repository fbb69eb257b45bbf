"""Templates to fill, as rows: a line of text each, or an object with what belongs to one template.

    {"template": "a _ on a mat", "id": 7, "image": "cat.jpg", "must_include": ["cat"]}

Only `template` is needed; null is as good as nothing, and other fields are left alone. `features` may hold the vector
of a picture in place of `image`. What is wrong with a row is kept in it: one bad row never ends a stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from gzip import GzipFile
from pathlib import Path
from typing import IO, Any

from bibs.data.files import DAMAGED, field, open_bytes, parse_json

BYTES_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Row:
    """A template with what belongs to it, and the name by which an error calls it."""

    name: str
    template: str
    id: str | int | float | None = None
    image: str | None = None  # a path
    must_include: tuple[str, ...] = ()
    features: tuple[float, ...] | None = None  # the vector of a picture, in place of `image`
    error: str = ""  # what is wrong, where it cannot even be read


def is_json_lines(path: Path) -> bool:
    return any(path.name.lower().removesuffix(".gz").endswith(suffix) for suffix in (".jsonl", ".ndjson"))


def count_lines(path: Path) -> int:
    with open_bytes(path) as source:
        lines, last = 0, b"\n"
        while chunk := source.read(BYTES_AT_ONCE):
            lines, last = lines + chunk.count(b"\n"), chunk[-1:]
        return lines + (last != b"\n")


def read_rows(source: IO[bytes] | GzipFile, name: str, *, as_json: bool, first: int = 1) -> Iterator[list[Row]]:
    """The rows of a stream, as many at a time as one read of it gives: one that has arrived never waits.

    `first` is the number of the line at which the stream stands.
    """
    number = first - 1
    for lines in _arriving_lines(source, name):
        rows = []
        for line in lines:
            number += 1
            rows.append(_read_line(line, f"{name}, line {number}", as_json=as_json))
        yield rows


def row_of(entry: Any, name: str) -> Row:
    """The row that an object holds (of JSON lines, or of a table). A bad one keeps its `id`, if that is good."""
    given = {key: value for key, value in entry.items() if value is not None} if isinstance(entry, dict) else {}
    template, row_id = given.get("template", ""), None
    try:
        if "id" in given:
            row_id = field(given, "id", (str, int, float), where="it")
        if not field(entry, "template", str, where="it").strip():
            raise ValueError("it: `template` must hold a word or a blank, but is empty")
        image = field(given, "image", str, where="it") if "image" in given else None
        if image == "":
            raise ValueError("it: `image` must be a path or null, but is empty")
        words = _list_of(given, "must_include", str, "strings")
        features = _list_of(given, "features", (int, float), "numbers") if "features" in given else None
        if image is not None and features is not None:
            raise ValueError("it: `image` and `features` exclude each other, but both are given")
    except ValueError as error:
        return Row(name, template if isinstance(template, str) else "", row_id, error=str(error))
    return Row(name, template, row_id, image, words, features)


def _list_of(given: dict[str, Any], name: str, kind: type | tuple[type, ...], called: str) -> tuple[Any, ...]:
    values = field(given, name, list, where="it") if name in given else []
    for value in values:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"it: `{name}` must hold {called}, but holds {value!r:.60}")
    return tuple(values)


def _read_line(line: bytes, name: str, *, as_json: bool) -> Row:
    text = line.decode("utf-8-sig", errors="replace").rstrip("\r")
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return Row(name, text, error="it is not UTF-8 text")
    if not as_json or not text.strip():
        return Row(name, text)
    try:
        return row_of(parse_json(text, where="it"), name)
    except ValueError as error:
        return Row(name, text, error=str(error))


def _arriving_lines(source: Any, name: str) -> Iterator[list[bytes]]:
    """The lines of a stream. The parts of a long one are joined once, when its end has come."""
    parts: list[bytes] = []
    try:
        while chunk := source.read1(BYTES_AT_ONCE):
            *lines, rest = chunk.split(b"\n")
            if lines:
                lines[0] = b"".join([*parts, lines[0]])
                parts = []
                yield lines
            parts.append(rest)
    except DAMAGED as error:
        raise ValueError(f"{name} is a damaged gzip file: {error}") from None
    if last := b"".join(parts):
        yield [last]
