"""Templates to fill, as rows: a line of text each, or an object with what belongs to one template.

    {"template": "a _ on a mat", "id": 7, "image": "cat.jpg", "must_include": ["cat"]}

Only `template` is needed; null is as good as nothing, and other fields are left alone. What is wrong with a row is kept
in it: one bad row never ends a stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
    error: str = ""  # what is wrong, where it cannot even be read


def is_json_lines(path: Path) -> bool:
    return any(path.name.lower().removesuffix(".gz").endswith(suffix) for suffix in (".jsonl", ".ndjson"))


def count_lines(path: Path) -> int:
    with open_bytes(path) as source:
        lines, last = 0, b"\n"
        while chunk := source.read(BYTES_AT_ONCE):
            lines, last = lines + chunk.count(b"\n"), chunk[-1:]
        return lines + (last != b"\n")


def read_rows(source: IO[bytes], name: str, *, as_json: bool) -> Iterator[list[Row]]:
    """The rows of a stream, as many at a time as one read of it gives: one that has arrived never waits."""
    number = 0
    for lines in _arriving_lines(source, name):
        rows = []
        for line in lines:
            number += 1
            rows.append(_read_line(line, f"{name}, line {number}", as_json=as_json))
        yield rows


def row_of(entry: Any, name: str) -> Row:
    """The row that an object holds (of JSON lines, or of a table)."""
    template = entry.get("template", "") if isinstance(entry, dict) else ""
    template = template if isinstance(template, str) else ""
    try:
        if not field(entry, "template", str, where="it").strip():
            raise ValueError("it: `template` must hold a word or a blank, but is empty")
        given = {key: value for key, value in entry.items() if value is not None}
        row_id = field(given, "id", (str, int, float), where="it") if "id" in given else None
        image = field(given, "image", str, where="it") if "image" in given else None
        if image == "":
            raise ValueError("it: `image` must be a path or null, but is empty")
        words = field(given, "must_include", list, where="it") if "must_include" in given else []
        for word in words:
            if not isinstance(word, str):
                raise ValueError(f"it: `must_include` must hold strings, but holds {word!r:.60}")
    except ValueError as error:
        return Row(name, template, error=str(error))
    return Row(name, template, row_id, image, tuple(words))


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
