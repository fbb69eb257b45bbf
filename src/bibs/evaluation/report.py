"""One HTML page that stands alone: tables, plots and examples, with every picture inside the file."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bibs.models.storage import write_atomically

STYLE = """
:root { color-scheme: light; --ink: #1f2933; --muted: #616e7c; --accent: #0b6e99; --line: #e4e7eb; --soft: #f7f9fb; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 92rem; padding: 2.5rem 1.5rem 5rem; color: var(--ink); background: #fff;
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
figure img { max-width: min(100%, 72rem); height: auto; }
table { border-collapse: collapse; font-size: .84rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .45rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
thead th { color: var(--muted); font-weight: 600; } thead th[colspan] { text-align: center; }
tbody th, thead tr:last-child th:first-child { text-align: left; font-weight: 500; }
td small { display: block; color: var(--muted); font-size: .7rem; font-weight: 400; }
td.best { color: var(--accent); font-weight: 700; background: var(--soft); }
.examples { display: grid; grid-template-columns: repeat(auto-fill, minmax(36rem, 1fr)); gap: 1rem; }
.example { display: flex; gap: 1.1rem; padding: 1rem; border: 1px solid var(--line); border-radius: .6rem; }
.example img { width: 11rem; height: 11rem; object-fit: cover; border-radius: .4rem; flex: none; }
.example table { font-size: .9rem; flex: 1; align-self: flex-start; }
.example tr + tr > * { border-top: 1px solid var(--line); }
.example th, .example td { text-align: left; white-space: normal; vertical-align: baseline; border: 0;
  padding: .28rem 0; }
.example th { color: var(--muted); font-size: .78rem; font-weight: 500; line-height: 1.35; padding-right: .9rem;
  white-space: nowrap; }
.example td { color: var(--muted); }
.example td:last-child { text-align: right; padding-left: .8rem; font-size: .78rem; white-space: nowrap; }
.example u { color: var(--ink); font-weight: 600; text-decoration-color: var(--line); text-decoration-thickness: 2px;
  text-underline-offset: 3px; }
.example th b, .example tr.ours u { color: var(--accent); font-weight: 700; }
.example tr.ours u { text-decoration-color: var(--accent); }
.example tr.truth u { text-decoration-color: var(--ink); }
.example tr.right u::after { content: " \\2713"; color: #15803d; display: inline-block; padding-left: .25em; }
@media (max-width: 44rem) { .examples { grid-template-columns: 1fr; } .example { flex-direction: column; } }
"""


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


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
