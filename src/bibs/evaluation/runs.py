"""A run that survives a kill: completions are appended as they come, and the next run goes on from there.

The output directory holds `settings.json`, what the run was told, and `completions.jsonl`, one line a completion.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from bibs.evaluation.methods import Method
from bibs.evaluation.pair import Answer, Pair
from bibs.evaluation.processes import do_slices
from bibs.evaluation.tasks import Cell, Example, ImageId
from bibs.models.storage import load_json, save_json

SETTINGS, COMPLETIONS = "settings.json", "completions.jsonl"

SLICE = 128
"""Examples filled between two writes: what a kill can cost each worker."""

Progress = Callable[[str, str, int, int], None]
"""Told the stage, what is being done in it, how much is done, and how much there is in all."""


@dataclass(frozen=True, kw_only=True)
class Completion(Answer):
    """A filled blank as it is kept on disk."""

    cell: str
    method: str
    key: ImageId
    image_id: ImageId
    before: str
    after: str
    truth: str
    seconds: float  # this one's share of the processor time of its slice: other work on the machine does not count


def complete(pair: Pair, cell: Cell, method: Method, examples: Sequence[Example]) -> list[Completion]:
    """Fill a slice of a cell's examples by a method, and note how much processor time that took."""
    began = time.process_time()
    answers = method.fill(pair, examples, method.num_beams, cell.lengths)
    seconds = (time.process_time() - began) / len(examples)
    return [
        Completion(
            cell=cell.name,
            method=method.key,
            key=example.key,
            image_id=example.image_id,
            before=" ".join(example.before),
            after=" ".join(example.after),
            truth=" ".join(example.blank),
            seconds=seconds,
            **vars(answer),
        )
        for example, answer in zip(examples, answers, strict=True)
    ]


class Run:
    """Cells, the methods that fill them, and the output directory, opened for going on."""

    def __init__(
        self, directory: Path, settings: dict[str, Any], cells: Sequence[Cell] = (), methods: Sequence[Method] = ()
    ) -> None:
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
        self.directory, self.settings, self.cells, self.methods = directory, settings, cells, methods
        self.completions: dict[tuple[str, str, ImageId], Completion] = {}
        self._note(_read(directory / COMPLETIONS))

    @property
    def labels(self) -> dict[str, str]:
        return {method.key: method.label for method in self.methods}

    def of(self, cell: Cell, method: Method) -> list[Completion]:
        """In the order of the cell's examples, so that two methods' completions can be paired."""
        return [self.completions[cell.name, method.key, example.key] for example in cell.examples]

    def fill(self, pair: Pair, *, workers: int = 1, progress: Progress | None = None) -> None:
        """Fill what is still open of every cell by every method, in as many processes as there are `workers`."""
        if workers < 1:
            raise ValueError(f"`workers` must be at least 1, but is {workers}")
        slices: list[tuple[Cell, Method, list[Example]]] = []
        for cell, method in product(self.cells, self.methods):
            left = [each for each in cell.examples if (cell.name, method.key, each.key) not in self.completions]
            # Blanks and contexts of like length share a slice, so that a search wastes little on padding.
            left.sort(key=lambda each: (-len(each.blank), len(each.before), len(each.after)))
            bare = replace(cell, examples=())
            slices += [(bare, method, left[begin : begin + SLICE]) for begin in range(0, len(left), SLICE)]
        # Slow and fast methods, long and short blanks in turn: so the time left can be told from the time taken.
        slices.sort(key=lambda each: zlib.crc32(f"{each[0].name} {each[1].key} {each[2][0].key}".encode()))
        total = sum(len(cell.examples) for cell in self.cells) * len(self.methods)
        done = total - sum(len(examples) for _, _, examples in slices)
        show = progress or (lambda *_: None)
        show("filling", "", done, total)
        for _, completions in do_slices(partial(complete, pair), slices, min(workers, len(slices))):
            self._append(completions)
            done += len(completions)
            show("filling", "", done, total)

    def _append(self, completions: Sequence[Completion]) -> None:
        lines = "".join(json.dumps(asdict(each), ensure_ascii=False) + "\n" for each in completions)
        with (self.directory / COMPLETIONS).open("a", encoding="utf-8") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        self._note(completions)

    def _note(self, completions: Iterable[Completion]) -> None:
        self.completions |= {(each.cell, each.method, each.key): each for each in completions}


def _compare(old: dict[str, Any], new: dict[str, Any], directory: Path) -> None:
    for name in (*old, *new):
        if old.get(name) != new.get(name):
            raise ValueError(
                f"the run in {directory} cannot go on with other settings: `{name}` was "
                f"{json.dumps(old.get(name))}, but is {json.dumps(new.get(name))}"
            )


def _read(path: Path) -> Iterator[Completion]:
    """The whole lines of the file; half a line at its end, which a kill may leave, is cut off."""
    if not path.exists():
        return
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
    for number, line in enumerate(data[:whole].decode("utf-8").split("\n")[:-1], start=1):
        try:
            yield Completion(**json.loads(line))
        except (json.JSONDecodeError, TypeError):
            raise ValueError(f"{path}, line {number} is no completion: {line[:60]!r}") from None
