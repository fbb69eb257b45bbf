"""One HTML page that stands alone: tables, plots and examples, with every picture inside the file."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bibs.evaluation.methods import OURS
from bibs.models.storage import write_atomically

STYLE = """
:root { color-scheme: light; --ink: #1f2933; --muted: #616e7c; --accent: #0b6e99; --line: #e4e7eb; --soft: #f7f9fb; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 84rem; padding: 2.5rem 1.5rem 5rem; color: var(--ink); background: #fff;
  font: 16px/1.55 system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; letter-spacing: -.01em; }
h2 { font-size: 1.25rem; margin: 3rem 0 1rem; padding-top: 1rem; border-top: 1px solid var(--line); }
p { max-width: 48rem; margin: .5rem 0; }
.lead { color: var(--muted); font-size: 1.05rem; }
ul.notes { color: var(--muted); padding-left: 1.1rem; max-width: 60rem; }
dl.settings { display: flex; flex-wrap: wrap; gap: .4rem 1.6rem; margin: 1rem 0; font-size: .9rem; }
dl.settings div { display: flex; gap: .45rem; }
dl.settings dt { color: var(--muted); } dl.settings dd { margin: 0; font-variant-numeric: tabular-nums; }
figure { margin: 1.2rem 0 2rem; overflow-x: auto; }
figcaption { font-weight: 600; margin-bottom: .5rem; }
figure img { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .55rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
thead th { color: var(--muted); font-weight: 600; } thead th[colspan] { text-align: center; }
tbody th, thead tr:last-child th:first-child { text-align: left; font-weight: 500; }
td small { display: block; color: var(--muted); font-size: .7rem; font-weight: 400; }
td.best { color: var(--accent); font-weight: 700; background: var(--soft); }
.examples { display: grid; grid-template-columns: repeat(auto-fill, minmax(34rem, 1fr)); gap: 1rem; }
.example { display: flex; gap: 1rem; padding: .9rem; border: 1px solid var(--line); border-radius: .6rem; }
.example img { width: 8.5rem; height: 8.5rem; object-fit: cover; border-radius: .4rem; flex: none; }
.example table { font-size: .88rem; }
.example td { text-align: left; white-space: normal; border: 0; padding: .12rem 0; }
.example td:first-child { color: var(--muted); padding-right: .8rem; white-space: nowrap; vertical-align: top; }
.example u { text-decoration-color: var(--line); text-decoration-thickness: 2px; text-underline-offset: 3px; }
.example tr.truth u, .example tr.ours u { text-decoration-color: var(--accent); font-weight: 600; }
@media (max-width: 40rem) { .examples { grid-template-columns: 1fr; } .example { flex-direction: column; } }
"""


@dataclass(frozen=True)
class Line:
    """One way to fill the blank of an example."""

    label: str
    fill: str
    kind: str = ""  # "truth", "ours" or nothing


@dataclass(frozen=True)
class Sample:
    """A sentence with its blank filled in several ways, and its picture where there is one."""

    before: str
    after: str
    lines: tuple[Line, ...]
    picture: Path | None = None


@dataclass(frozen=True)
class Section:
    heading: str
    blocks: tuple[str, ...]  # HTML


def write_report(
    path: Path,
    *,
    title: str,
    lead: str,
    settings: Mapping[str, object],
    notes: Sequence[str],
    sections: Iterable[Section],
) -> None:
    facts = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(_shown(value))}</dd></div>"
        for name, value in settings.items()
        if value is not None
    )
    listed = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    body = "".join(f"<h2>{html.escape(part.heading)}</h2>{''.join(part.blocks)}" for part in sections)
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head><body>'
        f'<h1>{html.escape(title)}</h1><p class="lead">{html.escape(lead)}</p><dl class="settings">{facts}</dl>'
        f'<ul class="notes">{listed}</ul>{body}</body></html>'
    )
    write_atomically(path, page.encode())


def paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def plot_block(title: str, path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    alternative = html.escape(title, quote=True)
    return (
        f"<figure><figcaption>{html.escape(title)}</figcaption>"
        f'<img alt="{alternative}" src="data:image/png;base64,{data}"></figure>'
    )


def samples_block(samples: Sequence[Sample]) -> str:
    return f'<div class="examples">{"".join(map(_sample, samples))}</div>'


def _sample(sample: Sample) -> str:
    picture = picture_source(sample.picture)
    shown = f'<img alt="" src="{picture}">' if picture else ""
    rows = "".join(
        f'<tr class="{line.kind}"><td>{html.escape(line.label)}</td><td>{html.escape(sample.before)} '
        f"<u>{html.escape(line.fill)}</u> {html.escape(sample.after)}</td></tr>"
        for line in sample.lines
    )
    return f'<div class="example">{shown}<table><tbody>{rows}</tbody></table></div>'


def samples_markdown(samples: Sequence[Sample]) -> str:
    parts = []
    for sample in samples:
        lines = ["| | |", "|---|---|"]
        lines += [f"| {line.label} | {sample.before} **{line.fill}** {sample.after} |" for line in sample.lines]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def line_kind(method: str) -> str:
    return "ours" if method == OURS else ""


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


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
