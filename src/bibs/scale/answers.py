"""Rows to answers, a batch at a time. What is wrong with a row is said in its answer, and is nobody else's business."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from bibs.data import Row
    from bibs.infiller import Completion, Infiller

NOT_ASKED_FOR = ("trace", "words", "start_score", "end_score")
"""Of a completion: what a file of rows does not hold."""


@dataclass(frozen=True)
class ModelChoice:
    """Which model a command asks for; small, so that it can be sent to where the model is loaded."""

    model: Path | None = None
    corpus: Path | None = None
    order: int = 3
    max_words: int = 100
    precision: str = "auto"

    def load(self) -> Infiller:
        from bibs.infiller import Infiller

        if self.corpus is None:
            return Infiller.from_pretrained(self.model, max_words=self.max_words, precision=self.precision)
        from bibs.data.files import read_lines

        lines = (line for _, line in read_lines(self.corpus))
        return Infiller.from_corpus(lines, order=self.order, max_words=self.max_words)


@dataclass(frozen=True)
class Filling:
    """What a worker is told: the model, the options, the picture of rows that have none. `load` makes it work."""

    choice: ModelChoice
    options: dict[str, Any]
    image: Path | None = None
    folder: str = ""  # where relative paths of pictures begin: a worker may stand elsewhere than the command

    def load(self) -> Filler:
        infiller = self.choice.load()
        picture = None if self.image is None else infiller.encode(self.image)
        return Filler(infiller, picture, self.options, self.folder)

    def everywhere(self, precision: str) -> Filling:
        """The same for workers that may stand elsewhere: full paths, and the precision that `auto` has become here."""
        choice = self.choice
        model, corpus, image = (path and path.absolute() for path in (choice.model, choice.corpus, self.image))
        return replace(self, choice=replace(choice, model=model, corpus=corpus, precision=precision), image=image)

    def named(self) -> dict[str, Any]:
        """All that decides the answers, by the names of the command line."""
        from bibs.infiller import PRETRAINED

        choice = self.choice
        return {
            "model": None if choice.corpus else _with_content(choice.model or PRETRAINED),
            "corpus": None if choice.corpus is None else _with_content(choice.corpus),
            "order": choice.order,
            "image": None if self.image is None else _with_content(self.image),
            "max_words": choice.max_words,
            "precision": choice.precision,
            **{"bad_word" if name == "bad_words" else name: value for name, value in self.options.items()},
        }


def _with_content(path: Path) -> str:
    """A file or folder by its name and what it holds: either may change between two runs."""
    content = hashlib.sha256()
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        if file.is_file():
            content.update(file.name.encode() + b"\0" + file.read_bytes())
    return f"{path} ({content.hexdigest()[:12]})"


@dataclass(frozen=True)
class Filler:
    """Answers rows. A model that fails on a batch is asked row by row, and the row at fault has an `error`."""

    infiller: Infiller
    picture: Tensor | None
    options: dict[str, Any]
    folder: str = ""

    def __call__(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an answer says itself what was not found
            return [answer(row, found) for row, found in zip(rows, self._fill(rows), strict=True)]

    def _fill(self, rows: Sequence[Row]) -> list[list[Completion] | ValueError]:
        try:
            return list(fill_rows(self.infiller, rows, self.picture, self.options, folder=self.folder))
        except Exception as error:  # of a model: whatever it is, it must not end the job
            if len(rows) == 1:
                said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                return [ValueError(f"the model failed: {said}")]
            return [found for row in rows for found in self._fill([row])]


def fill_rows(
    infiller: Infiller, rows: Sequence[Row], picture: Tensor | None, options: dict[str, Any], *, folder: str = ""
) -> Iterator[list[Completion] | ValueError]:
    """What was found for each row; a row's own picture and words go before and beside those of the command."""
    read = [row for row in rows if not row.error]
    # The same object where it is the same picture: it is encoded once.
    paths = {row.image: str(Path(folder, row.image)) for row in read if row.image is not None}
    images = [_picture(row, paths, picture) for row in read]
    if any(row.must_include for row in read):
        options = {**options, "must_include": [[*options["must_include"], *row.must_include] for row in read]}
    given = None if all(image is None for image in images) else images
    found = iter(infiller([row.template for row in read], images=given, on_error="return", **options))
    return (ValueError(row.error) if row.error else next(found) for row in rows)


def _picture(row: Row, paths: dict[str, str], picture: Tensor | None) -> Any:
    if row.features is not None:
        import torch

        return torch.tensor(row.features, dtype=torch.float32)
    return picture if row.image is None else paths[row.image]


def answer(row: Row, found: list[Completion] | ValueError) -> dict[str, Any]:
    """What is written of a row: its `id` if it has one, and an `error` where there are no completions."""
    error = error_of(row, found)
    filled = [] if isinstance(found, ValueError) else [asdict(completion) for completion in found]
    for each in filled:
        for name in NOT_ASKED_FOR:
            del each[name]
    named = {} if row.id is None else {"id": row.id}
    return {**named, "template": row.template, "completions": filled, **({"error": error} if error else {})}


def json_line(answer: dict[str, Any], encoding: str = "utf-8") -> str:
    """An answer as one line, for people to read; escaped where `encoding` lacks a character, or has but half of it."""
    line = json.dumps(answer, ensure_ascii=False)
    try:
        line.encode(encoding)
    except UnicodeEncodeError:
        line = json.dumps(answer)
    return line


def error_of(row: Row, found: list[Completion] | ValueError) -> str:
    """What is wrong with a row, by its name; empty where nothing is."""
    if isinstance(found, ValueError):
        # A row has one picture: its place among those that were searched together is nobody's business.
        shown = "`image`" if row.features is None else "`features`"
        return f"{row.name}: " + re.sub(r"`images\[\d+\]`", shown, str(found))
    if not found:
        return (
            f"{row.name}: nothing was found: no fill has a probability above 0 (fewer `--bad-word` or "
            "`--must-include`, or other lengths, may help)"
        )
    return ""
