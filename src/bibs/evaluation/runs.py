"""A run that survives a kill: records are appended as they come, and the next run goes on from there.

The output directory holds `settings.json`, what the run was told, and `completions.jsonl`, one line a record.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from bibs.evaluation.methods import Method
from bibs.evaluation.processes import do_slices
from bibs.evaluation.tasks import Example, ImageId
from bibs.models.storage import load_json, save_json

SETTINGS, COMPLETIONS = "settings.json", "completions.jsonl"

SLICE = 128
"""Examples filled between two writes: what a kill can cost each worker."""

Progress = Callable[[str, str, int, int], None]
"""Told the stage, what is being done in it, how much is done, and how much there is in all."""


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
    def name(self) -> str:
        return "/".join(str(part) for part in (self.task, self.split, self.removed, self.lengths) if part is not None)


class Record(Protocol):
    """What became of one example: a frozen dataclass of plain values, a line of `completions.jsonl`."""

    @property
    def cell(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def key(self) -> ImageId: ...


R = TypeVar("R", bound=Record)

Work = Callable[[Cell, Method, Sequence[Example]], list[R]]
"""Fills a slice of a cell's examples by a method."""


class Run(Generic[R]):
    """The output directory of a run, opened for going on."""

    def __init__(self, directory: Path, settings: dict[str, Any], kind: type[R]) -> None:
        """Begin a run, or go on with one of the same settings. A directory that holds anything else is refused."""
        settings = json.loads(json.dumps(settings))  # as they will be read back
        if directory.exists() and not directory.is_dir():
            raise ValueError(f"`output` must be a directory, but {directory} is a file")
        if (directory / SETTINGS).exists():
            _compare(load_json(directory / SETTINGS), settings, directory)
        elif directory.exists() and any(not path.name.startswith(".") for path in directory.iterdir()):
            raise ValueError(f"`output` must be new, empty or an earlier run, but {directory} holds other things")
        else:
            directory.mkdir(parents=True, exist_ok=True)
            save_json(directory / SETTINGS, settings)
        self.directory = directory
        self.records: dict[tuple[str, str, ImageId], R] = {}
        self._note(_read(directory / COMPLETIONS, kind))

    def append(self, records: Sequence[R]) -> None:
        lines = "".join(json.dumps(_plain(record), ensure_ascii=False) + "\n" for record in records)
        with (self.directory / COMPLETIONS).open("a", encoding="utf-8") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        self._note(records)

    def of(self, cell: Cell, method: Method) -> list[R]:
        """In the order of the cell's examples, so that two methods' records can be paired."""
        return [self.records[cell.name, method.key, example.key] for example in cell.examples]

    def work_through(
        self,
        cells: Sequence[Cell],
        methods: Sequence[Method],
        work: Work[R],
        *,
        workers: int = 1,
        progress: Progress | None = None,
    ) -> None:
        """Do what is still open of every cell by every method, in as many processes as there are `workers`."""
        if workers < 1:
            raise ValueError(f"`workers` must be at least 1, but is {workers}")
        open_slices = [
            (replace(cell, examples=()), method, examples)
            for cell in cells
            for method in methods
            for examples in _slices([e for e in cell.examples if (cell.name, method.key, e.key) not in self.records])
        ]
        # Slow and fast methods, long and short blanks in turn: so the time left can be told from the time taken.
        open_slices.sort(key=lambda each: zlib.crc32(f"{each[0].name} {each[1].key} {each[2][0].key}".encode()))
        total = sum(len(cell.examples) for cell in cells) * len(methods)
        done = total - sum(len(examples) for _, _, examples in open_slices)
        if progress:
            progress("filling", "", done, total)
        for records in do_slices(work, open_slices, min(workers, len(open_slices))):
            self.append(records)
            done += len(records)
            if progress:
                progress("filling", "", done, total)

    def _note(self, records: Iterable[R]) -> None:
        self.records |= {(record.cell, record.method, record.key): record for record in records}


def _slices(examples: Sequence[Example]) -> Iterator[list[Example]]:
    # Blanks and contexts of like length share a slice, so that a search wastes little on padding.
    ordered = sorted(examples, key=lambda e: (-len(e.blank), len(e.before), len(e.after)))
    for begin in range(0, len(ordered), SLICE):
        yield ordered[begin : begin + SLICE]


def _compare(old: dict[str, Any], new: dict[str, Any], directory: Path) -> None:
    for name in (*old, *new):
        if old.get(name) != new.get(name):
            raise ValueError(
                f"the run in {directory} cannot go on with other settings: `{name}` was "
                f"{json.dumps(old.get(name))}, but is {json.dumps(new.get(name))}"
            )


def _plain(record: Record) -> dict[str, Any]:
    return asdict(record)  # type: ignore[call-overload, no-any-return]


def _read(path: Path, kind: type[R]) -> Iterator[R]:
    """The whole lines of the file; half a line at its end, which a kill may leave, is cut off."""
    if not path.exists():
        return
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
    for number, line in enumerate(data[:whole].decode("utf-8").split("\n")[:-1], start=1):
        try:
            yield kind(**json.loads(line))
        except (json.JSONDecodeError, TypeError):
            raise ValueError(f"{path}, line {number} is no completion: {line[:60]!r}") from None
