"""Tables of rows in files: Parquet and JSON lines. Large ones are cut into shards, which are read and written alone.

The columns of a Parquet file are the fields of a JSON line: `template`, and maybe `id`, `image`, `must_include` and
`features` (see bibs.data.rows). Other columns are left alone. The answers of a shard have the format of its rows.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bibs.data import Row, is_json_lines, read_rows, row_of
from bibs.data.files import DAMAGED, open_bytes
from bibs.scale.answers import json_line

if TYPE_CHECKING:
    from bibs.scale.parquet import ParquetRows

ROWS_AT_ONCE = 256
"""Rows that are searched together."""


@dataclass(frozen=True)
class Shard:
    """So many rows of a file from `first` on; `name` is that of the file with their answers."""

    name: str
    path: Path  # absolute
    called: str  # as the user named the file
    first: int
    rows: int
    offset: int = 0  # bytes before its first row, in a file of lines


class Writer(Protocol):
    def write(self, answers: Sequence[dict[str, Any]]) -> None: ...

    def close(self) -> None: ...


def find_tables(sources: Sequence[Path]) -> list[Path]:
    """Files as named; folders searched through, but for hidden files and those that begin with `_`."""
    found: list[Path] = []
    for source in sources:
        if source.is_dir():
            inside = [path for path in sorted(source.rglob("*")) if is_table(path) and not _is_hidden(path, source)]
            if not inside:
                raise ValueError(f"`--input` must hold .parquet, .jsonl or .ndjson files, but {source} holds none")
            found += inside
        elif not source.exists():
            raise ValueError(f"no such file: {source}")
        elif is_table(source):
            found.append(source)
        else:
            raise ValueError(f"`--input` must be .parquet, .jsonl or .ndjson files or folders, but is {source}")
    seen = set[Path]()
    for path in found:
        if path.resolve() in seen:
            raise ValueError(f"`--input` must name a file once, but names {path} twice")
        seen.add(path.resolve())
    return found


def is_table(path: Path) -> bool:
    return (is_parquet(path) or is_json_lines(path)) and not path.is_dir()


def is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)


def cut(paths: Sequence[Path], shard_rows: int) -> list[Shard]:
    """The shards of all files, in order. A file that cannot be read is said here, before any work is done."""
    shards = []
    for number, path in enumerate(paths):
        starts = _parquet(path).starts(shard_rows) if is_parquet(path) else _line_starts(path, shard_rows)
        for place, (first, rows, offset) in enumerate(starts):
            name = f"part-{number:05d}-{place:05d}"
            shards.append(Shard(name, path.absolute(), str(path), first, rows, offset))
    if not shards:
        raise ValueError(f"`--input` must hold rows, but {paths[0]} holds none")
    return shards


def _line_starts(path: Path, shard_rows: int) -> Iterator[tuple[int, int, int]]:
    """First row, rows and offset of each shard. A packed file is one shard: it can only be read from its beginning."""
    with open_bytes(path) as lines:
        at_once = None if isinstance(lines, gzip.GzipFile) else shard_rows
        first = offset = 0
        try:
            while True:
                rows = size = 0
                for line in islice(lines, at_once):
                    rows, size = rows + 1, size + len(line)
                if not rows:
                    return
                yield first, rows, offset
                first, offset = first + rows, offset + size
        except DAMAGED as error:
            raise ValueError(f"{path} is a damaged gzip file: {error}") from None


def read_shard(shard: Shard) -> Iterator[list[Row]]:
    """The rows of a shard, so many at a time as are searched together."""
    if is_parquet(shard.path):
        yield from (
            [row_of(entry, f"{shard.called}, row {number}") for number, entry in batch]
            for batch in _parquet(shard.path).read(shard.first, shard.rows, ROWS_AT_ONCE)
        )
        return
    with open_bytes(shard.path) as source:
        source.seek(shard.offset)
        arriving = read_rows(source, shard.called, as_json=True, first=shard.first + 1)
        rows = islice(chain.from_iterable(arriving), shard.rows)
        while batch := list(islice(rows, ROWS_AT_ONCE)):
            yield batch


def answers_name(shard: Shard) -> str:
    return shard.name + (".parquet" if is_parquet(shard.path) else ".jsonl")


def open_writer(path: Path, shard: Shard) -> Writer:
    """A writer of the answers of a shard."""
    return _parquet(shard.path).writer(path) if is_parquet(shard.path) else LineWriter(path)


class LineWriter:
    """JSON lines, as `bibs fill --json` prints them."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, answers: Sequence[dict[str, Any]]) -> None:
        for each in answers:
            self._file.write(json_line(each).encode() + b"\n")

    def close(self) -> None:
        self._file.close()


def _parquet(path: Path) -> ParquetRows:
    from bibs.scale.parquet import ParquetRows  # here: JSON lines need no extra

    return ParquetRows(path)
