"""Completions to look at: one sentence, its picture, and what was put into its blank by each method or after each pass.

The paper's two figures of examples. Fills that are equal are shown once.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bibs.evaluation.tasks import Cell

NUM_SAMPLES = 8


@dataclass(frozen=True)
class Line:
    """One way to fill the blank of a sentence, whose it is, and its S."""

    labels: tuple[str, ...]
    fill: str
    score: float | None = None
    truth: bool = False  # people's own
    ours: str = ""  # the label that is to be picked out


@dataclass(frozen=True)
class Sample:
    """A sentence with its blank filled in several ways, people's first, and its picture where there is one."""

    before: str
    after: str
    lines: tuple[Line, ...]
    picture: Path | None = None

    def is_right(self, line: Line) -> bool:
        """Whether someone else's fill is people's own."""
        return not line.truth and any(other.truth and other.fill == line.fill for other in self.lines)


@dataclass(frozen=True)
class Gallery:
    """Samples of one kind, and how they were chosen."""

    title: str
    choice: str
    samples: tuple[Sample, ...]


def make_gallery(title: str, choice: str, cell: Cell, lines: Sequence[Sequence[Line]], images: Path | None) -> Gallery:
    """The first examples of a cell that have lines to show."""
    shown = [(example, some) for example, some in zip(cell.examples, lines, strict=True) if some][:NUM_SAMPLES]
    samples = [
        Sample(" ".join(example.before), " ".join(example.after), tuple(some), find_picture(images, example.filename))
        for example, some in shown
    ]
    return Gallery(title, choice, tuple(samples))


def merge_equal(lines: Sequence[Line]) -> tuple[Line, ...]:
    """One line for each distinct fill, in the order in which they first appear; people's own stays by itself."""
    merged: dict[tuple[bool, str], Line] = {}
    for line in lines:
        key = line.truth, line.fill
        before = merged.get(key)
        merged[key] = (
            replace(before, labels=(*before.labels, *line.labels), ours=line.ours or before.ours) if before else line
        )
    return tuple(merged.values())


def samples_markdown(samples: Sequence[Sample]) -> str:
    parts = []
    for sample in samples:
        lines = ["| | | S |", "|---|---|---|"]
        for line in sample.lines:
            score = "" if line.score is None else f"{line.score:.1f}"
            lines.append(f"| {', '.join(line.labels)} | {sample.before} **{line.fill}** {sample.after} | {score} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def find_picture(folder: Path | None, filename: str) -> Path | None:
    """The picture in the folder, or in one of the folders inside it."""
    if folder is None or not filename:
        return None
    name = Path(filename).name
    candidates = (folder / filename, folder / name, *folder.glob(f"*/{name}"))
    return next((path for path in candidates if path.is_file()), None)


def picture_source(path: Path | None) -> str:
    """A small JPEG as a data address; nothing where the picture cannot be read."""
    if path is None:
        return ""
    try:
        from PIL import Image
    except ImportError:
        return ""
    try:
        with Image.open(path) as image:
            image.thumbnail((320, 320))
            buffer = io.BytesIO()
            image.convert("RGB").save(buffer, "JPEG", quality=82)
    except OSError:
        return ""
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
