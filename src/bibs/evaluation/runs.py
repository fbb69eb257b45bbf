"""A run that survives a kill: completions are appended as they come, and the next run goes on from there.

The output directory holds `settings.json`, what the run was told, and `completions.jsonl`, one line a completion.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bibs.evaluation.methods import Answer, Filler, Method
from bibs.evaluation.tasks import Example, ImageId
from bibs.models.storage import load_json, save_json

SETTINGS, COMPLETIONS = "settings.json", "completions.jsonl"

SLICE = 256
"""Examples filled between two writes: what a kill can cost."""

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


@dataclass(frozen=True)
class Completion:
    """A line of `completions.jsonl`."""

    cell: str
    method: str
    key: ImageId
    image_id: ImageId
    before: str
    fill: str
    after: str
    truth: str
    score: float
    forward_score: float
    backward_score: float
    rounds: int
    seconds: float  # this one's share of the time its slice took


@dataclass
class Run:
    """The output directory of a run, opened for going on."""

    directory: Path
    completions: dict[tuple[str, str, ImageId], Completion] = field(default_factory=dict)

    @classmethod
    def open(cls, directory: Path, settings: dict[str, Any]) -> Run:
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
        run = cls(directory)
        for completion in _read(directory / COMPLETIONS):
            run.completions[completion.cell, completion.method, completion.key] = completion
        return run

    def append(self, completions: Sequence[Completion]) -> None:
        lines = "".join(json.dumps(asdict(completion), ensure_ascii=False) + "\n" for completion in completions)
        with (self.directory / COMPLETIONS).open("a", encoding="utf-8") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        for completion in completions:
            self.completions[completion.cell, completion.method, completion.key] = completion

    def of(self, cell: Cell, method: Method) -> list[Completion]:
        """In the order of the cell's examples, so that two methods' completions can be paired."""
        return [self.completions[cell.name, method.key, example.key] for example in cell.examples]

    def fill(
        self, cells: Sequence[Cell], methods: Sequence[Method], filler: Filler, *, progress: Progress | None = None
    ) -> None:
        """Fill what is still open of every cell by every method."""
        open_slices = [
            (cell, method, examples)
            for cell in cells
            for method in methods
            for examples in _slices(
                [e for e in cell.examples if (cell.name, method.key, e.key) not in self.completions]
            )
        ]
        total = sum(len(cell.examples) for cell in cells) * len(methods)
        done = total - sum(len(examples) for _, _, examples in open_slices)
        for cell, method, examples in open_slices:
            if progress:
                progress("filling", f"{cell.name} {method.label}", done, total)
            began = time.perf_counter()
            answers = filler(method, examples)
            seconds = (time.perf_counter() - began) / len(examples)
            self.append(
                [_completion(cell, method, e, answer, seconds) for e, answer in zip(examples, answers, strict=True)]
            )
            done += len(examples)
        if progress:
            progress("filling", "", done, total)


def _completion(cell: Cell, method: Method, example: Example, answer: Answer, seconds: float) -> Completion:
    return Completion(
        cell=cell.name,
        method=method.key,
        key=example.key,
        image_id=example.image_id,
        before=" ".join(example.before),
        fill=" ".join(answer.words),
        after=" ".join(example.after),
        truth=" ".join(example.blank),
        score=answer.score,
        forward_score=answer.forward_score,
        backward_score=answer.backward_score,
        rounds=answer.rounds,
        seconds=seconds,
    )


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


def _read(path: Path) -> Iterator[Completion]:
    """The whole lines of the file; half a line at its end, which a kill may leave, is cut off."""
    if not path.exists():
        return
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
    for number, line in enumerate(data[:whole].decode("utf-8").splitlines(), start=1):
        try:
            yield Completion(**json.loads(line))
        except (json.JSONDecodeError, TypeError):
            raise ValueError(f"{path}, line {number} is no completion: {line[:60]!r}") from None
