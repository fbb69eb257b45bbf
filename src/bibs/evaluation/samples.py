"""Completions to look at: one sentence, its picture, and what was put into its blank by each method or after each pass.

The paper's two figures of examples, as HTML and as Markdown. Fills that are equal are shown once.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path


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


def samples_html(samples: Sequence[Sample]) -> str:
    return f'<div class="examples">{"".join(map(_sample, samples))}</div>'


def _sample(sample: Sample) -> str:
    picture = picture_source(sample.picture)
    shown = f'<img alt="" src="{picture}">' if picture else ""
    rows = "".join(_row(sample, line) for line in sample.lines)
    return f'<div class="example">{shown}<table><tbody>{rows}</tbody></table></div>'


def _row(sample: Sample, line: Line) -> str:
    right = not line.truth and any(other.truth and other.fill == line.fill for other in sample.lines)
    marks = {"truth": line.truth, "ours": bool(line.ours), "right": right}
    names = " ".join(name for name, true in marks.items() if true)
    labels = "<br>".join(
        f"<b>{html.escape(label)}</b>" if label == line.ours else html.escape(label) for label in line.labels
    )
    score = "" if line.score is None else f"{line.score:.1f}"
    return (
        f'<tr class="{names}"><th>{labels}</th><td>{html.escape(sample.before)} '
        f"<u>{html.escape(line.fill)}</u> {html.escape(sample.after)}</td><td>{score}</td></tr>"
    )


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
