"""What a finished run writes beside its completions: results.json, table.md, table.tex, plots and report.html.

The page stands alone: every picture is inside the file. `report.html.jinja` is its layout.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from bibs.evaluation.plots import Plot, load_matplotlib, save_plot
from bibs.evaluation.results import Results
from bibs.evaluation.samples import Gallery, picture_source, samples_markdown
from bibs.evaluation.tables import Column, Table, lay_out, to_compact_markdown, to_latex, to_markdown
from bibs.models.storage import save_json, write_atomically

WIDEST = 10
"""Columns that stand side by side on a page; of more, each group becomes a table of its own."""

FACTS = {
    "split": "split",
    "type": "type of Madlib",
    "removed": "per cent of the words removed",
    "lengths": "lengths of the blanks",
    "limit": "sentences at most",
    "num_beams": "beams",
    "num_rounds": "rounds",
    "num_return_sequences": "fills of each blank",
    "precision": "precision",
    "seed": "seed",
}
FINGERPRINTS = ("data", "features", "box_features", "model", "nade")
SCORES = {"sum": "S", "max": "the larger of both", "forward": "forward", "backward": "backward", "join": "join"}


@dataclass(frozen=True)
class Report:
    """An experiment as people read it."""

    title: str
    lead: str
    results: Results
    tables: tuple[Table, ...]
    plots: tuple[Plot, ...]
    more: tuple[Table, ...] = ()  # after the plots
    galleries: tuple[Gallery, ...] = ()


def require_extras() -> None:
    """Say what is missing for plots and pages before hours of work, not after."""
    load_matplotlib()
    load_jinja()


def load_jinja() -> Any:
    try:
        import jinja2
    except ImportError:
        raise ValueError('reports need jinja2: pip install ".[eval]"') from None
    return jinja2


def write_outputs(report: Report, directory: Path) -> None:
    save_json(directory / "results.json", report.results.json())
    tables = [*report.tables, *report.more]
    write_atomically(directory / "table.md", _markdown(report, tables).encode())
    write_atomically(directory / "table.tex", "\n".join(map(to_latex, tables)).encode())
    paths = [(plot.title, save_plot(plot, directory / "plots")) for plot in report.plots]
    write_atomically(directory / "report.html", render_page(report, paths).encode())


def _markdown(report: Report, tables: Sequence[Table]) -> str:
    parts = [f"# {report.title}\n", *(f"- {note}" for note in report.results.notes), "", *map(to_markdown, tables)]
    if grouped := [table for table in tables if all(name for name, _ in table.groups)]:
        parts += ["### In short\n", *(f"{table.title}:\n\n{to_compact_markdown(table)}" for table in grouped)]
    for each in report.galleries:
        parts += [f"### {each.title}\n", each.choice + "\n", samples_markdown(each.samples)]
    return "\n".join(parts)


def render_page(report: Report, plots: Sequence[tuple[str, Path]] = ()) -> str:
    jinja2 = load_jinja()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    settings = report.results.settings
    page: str = environment.get_template("report.html.jinja").render(
        report=report,
        plots=[(title, base64.b64encode(path.read_bytes()).decode()) for title, path in plots],
        facts=[(label, shown_value(settings[name])) for name, label in FACTS.items() if settings.get(name) is not None],
        fingerprints=[(name, settings[name]) for name in FINGERPRINTS if isinstance(settings.get(name), str)],
        prior=_prior_table(settings.get("length_prior")),
        parts=lambda table: [table] if len(table.columns) <= WIDEST else table.split(),
        picture_source=picture_source,
    )
    return page


def shown_value(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _prior_table(prior: Mapping[str, Any] | None) -> Table | None:
    if prior is None:
        return None
    title = "How fills of different lengths compare: what is added to a score"
    rows = [{"score": label, **prior[name]} for name, label in SCORES.items()]
    columns = [Column("word", "a word more", ".2f")]
    columns += [Column("sentence", "times log P of the sentence's length", ".2f")]
    return lay_out(title, rows, columns, line=itemgetter("score"), group=lambda row: "", corner="score", note="")
