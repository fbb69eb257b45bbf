"""Rows from and answers to Parquet. Needs the extra `bibs[parquet]`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bibs.vision import MissingExtraError

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise MissingExtraError(
        f'Parquet needs the package `pyarrow`, which could not be imported ({error}): pip install ".[parquet]"'
    ) from None

COLUMNS = ("id", "template", "image", "must_include", "features")
ROWS_IN_A_GROUP = 1 << 16
COMPLETION = pa.struct(
    {
        "text": pa.string(),
        "tokens": pa.list_(pa.int32()),
        "spans": pa.list_(pa.string()),
        **dict.fromkeys(("score", "ranking_score", "forward_score", "backward_score"), pa.float64()),
        "rounds": pa.int32(),
    }
)


class ParquetRows:
    """The columns of a Parquet file that belong to rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._errors():
            self._file = pq.ParquetFile(path)
        schema = self._file.schema_arrow
        self.columns = [name for name in COLUMNS if name in schema.names]
        if "template" not in self.columns:
            named = ", ".join(schema.names[:8]) + (", ..." if len(schema.names) > 8 else "")
            raise ValueError(f"{path} must have a column `template`, but has {named or 'none'}")
        kind = schema.field("template").type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)):
            raise ValueError(f"{path}: the column `template` must hold strings, but holds {kind}")
        self._id = schema.field("id").type if "id" in self.columns else None

    def starts(self, shard_rows: int) -> Iterator[tuple[int, int, int]]:
        """First row, rows and 0 of each shard."""
        total = self._file.metadata.num_rows
        for first in range(0, total, shard_rows):
            yield first, min(shard_rows, total - first), 0

    def read(self, first: int, count: int, at_once: int) -> Iterator[list[tuple[int, dict[str, Any]]]]:
        """The number, from 1, and the fields of each row from `first` on. Row groups before it are not read."""
        groups: list[int] = []
        begin = place = 0
        for group in range(self._file.num_row_groups):
            end = place + self._file.metadata.row_group(group).num_rows
            if place < first + count and end > first:
                begin = place if not groups else begin
                groups.append(group)
            place = end
        waiting: list[tuple[int, dict[str, Any]]] = []
        number = begin
        with self._errors():
            for batch in self._file.iter_batches(at_once, groups, self.columns, use_threads=False):
                here, number = number, number + len(batch)
                skipped = max(0, first - here)
                kept = batch.slice(skipped, max(0, first + count - here - skipped)).to_pylist()
                waiting += enumerate(kept, start=here + skipped + 1)
                while len(waiting) >= at_once:
                    yield waiting[:at_once]
                    del waiting[:at_once]
                if number >= first + count:
                    break
        if waiting:
            yield waiting

    def writer(self, path: Path) -> ParquetWriter:
        named = {} if self._id is None else {"id": self._id}
        return ParquetWriter(path, pa.schema({**named, "template": pa.string(), **ANSWER}))

    def _errors(self) -> _Errors:
        return _Errors(self.path)


ANSWER = {"completions": pa.list_(COMPLETION), "error": pa.string()}


class _Errors:
    """What pyarrow says of a file that is none, in one line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (pa.ArrowException, OSError, UnicodeDecodeError)):
            said = " ".join(str(error).split())[:200]
            raise ValueError(f"{self._path} cannot be read as Parquet: {said}") from None


class ParquetWriter:
    """Answers, in groups of rows that are neither tiny nor held in memory for long."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema, self._rows = schema, 0
        self._waiting: list[pa.RecordBatch] = []
        self._file = pq.ParquetWriter(path, schema)

    def write(self, answers: Sequence[dict[str, Any]]) -> None:
        self._waiting.append(pa.RecordBatch.from_pylist(list(answers), schema=self._schema))
        self._rows += len(answers)
        if self._rows >= ROWS_IN_A_GROUP:
            self._flush()

    def close(self) -> None:
        try:
            if self._waiting:
                self._flush()
        finally:
            self._file.close()

    def _flush(self) -> None:
        self._file.write_table(pa.Table.from_batches(self._waiting, schema=self._schema))
        self._waiting, self._rows = [], 0
