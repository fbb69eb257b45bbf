"""Completions to look at: one sentence, its picture, and what was put into its blank by each method or after each pass.

The paper's two figures of examples. Fills that are equal are shown once.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bibs.evaluation.tasks import Example
from bibs.vision import load_image

NUM_SAMPLES = 8
"""How many a report shows of one kind."""


@dataclass(frozen=True)
class Line:
    """One way to fill the blank of a sentence, whose it is, and its S."""

    labels: tuple[str, ...]
    fill: str
    score: float


@dataclass(frozen=True)
class Sample:
    """A sentence with its blank filled in several ways."""

    example: Example
    lines: Sequence[Line]
    truth_score: float | None = None  # S of people's own words


@dataclass(frozen=True)
class Gallery:
    """Samples of one kind, how they were chosen, and the label that stands out in them."""

    title: str
    choice: str
    ours: str
    samples: Sequence[Sample]


def merge_equal(lines: Sequence[Line]) -> list[Line]:
    """One line for each distinct fill, in the order in which they first appear."""
    merged: dict[str, Line] = {}
    for line in lines:
        first = merged.setdefault(line.fill, replace(line, labels=()))
        merged[line.fill] = replace(first, labels=(*first.labels, *line.labels))
    return list(merged.values())


def picture_source(filename: str, folder: Path | None) -> str:
    """A small JPEG as a data address; nothing where the folder, or one inside it, has no such picture to read."""
    if folder is None or not filename:
        return ""
    name = Path(filename).name
    candidates = (folder / filename, folder / name, *folder.glob(f"*/{name}"))
    path = next((path for path in candidates if path.is_file()), None)
    try:
        image = load_image(path) if path else None
    except ValueError:  # which a missing Pillow is, too
        image = None
    if image is None:
        return ""
    image.thumbnail((320, 320))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=82)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
