"""What a finished run writes beside its completions: results.json, table.md, table.tex, plots and report.html."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bibs.evaluation.completions import Completion
from bibs.evaluation.methods import LABELS, OURS, Method
from bibs.evaluation.metrics import load_scorer
from bibs.evaluation.plots import draw_plots, load_pyplot
from bibs.evaluation.report import Section, paragraph, plot_block, write_report
from bibs.evaluation.results import Results
from bibs.evaluation.runs import Cell, Run
from bibs.evaluation.samples import Line, Sample, find_picture, merge_equal, samples_html, samples_markdown
from bibs.evaluation.tables import (
    Table,
    comparison_table,
    length_table,
    metric_table,
    share_label,
    to_compact_markdown,
    to_html,
    to_latex,
    to_markdown,
)
from bibs.models.storage import save_json, write_atomically

RESULTS, TABLE_MD, TABLE_TEX, REPORT = "results.json", "table.md", "table.tex", "report.html"

NUM_SAMPLES = 8
SAMPLE_CHOICE = (
    "The first sentences of the random order on which URNN-f, URNN-b and BiBS do not all agree. The number is S, the "
    "joint log probability of the whole sentence."
)


@dataclass(frozen=True)
class Finished:
    """A whole run: its numbers, and what they were computed from."""

    run: Run[Completion]
    cells: tuple[Cell, ...]
    methods: tuple[Method, ...]
    results: Results


@dataclass(frozen=True)
class Layout:
    """Which numbers the tables show, and what the report is called."""

    title: str
    lead: str
    main: tuple[str, ...]  # the metrics of the first table, of the comparison and of the plots
    more: tuple[tuple[str, tuple[str, ...]], ...]  # further tables: title and metrics


CAPTIONS = Layout(
    title="Fill-in-the-blank captioning",
    lead="Words are removed from the middle of a caption, and each method fills them in again, seeing the picture and "
    "what is left. The caption itself is the one reference.",
    main=("CIDEr", "Bleu_4", "METEOR"),
    more=(
        ("The blank alone", ("blank_CIDEr", "blank_Bleu_1", "blank_METEOR", "exact_match", "token_accuracy")),
        ("Whole sentence, more metrics", ("Bleu_1", "Bleu_2", "Bleu_3", "S", "seconds")),
    ),
)

MADLIBS = Layout(
    title="Visual Madlibs",
    lead="Each method fills the blank of a sentence about the picture; the answer that people gave is the one "
    "reference. nCCA retrieves an answer of the training set instead of generating one.",
    main=("Bleu_1", "Bleu_2", "blank_Bleu_1", "blank_Bleu_2"),
    more=(("More metrics", ("CIDEr", "METEOR", "exact_match", "token_accuracy", "S", "seconds")),),
)


def require_extras() -> None:
    """Say what is missing for tables and plots before hours of work, not after."""
    load_pyplot()
    load_scorer("cider.cider", "Cider")


def write_outputs(finished: Finished, layout: Layout, *, images: Path | None = None) -> None:
    directory, results = finished.run.directory, finished.results
    save_json(directory / RESULTS, results.json())
    tables = _tables(results, layout)
    samples = {cell: _samples(finished, cell, images) for cell in finished.cells}
    markdown = [f"# {layout.title}\n", *(f"- {note}" for note in results.notes), ""]
    markdown += [to_markdown(table) for table in tables]
    markdown.append("### In short\n")
    markdown += [f"{table.title}:\n\n{to_compact_markdown(table)}" for table in tables]
    for cell, found in samples.items():
        markdown += [f"### Examples, {_cell_label(cell)}\n", SAMPLE_CHOICE + "\n", samples_markdown(found)]
    write_atomically(directory / TABLE_MD, "\n".join(markdown).encode())
    write_atomically(directory / TABLE_TEX, "\n".join(map(to_latex, tables)).encode())
    plots = draw_plots(results, directory / "plots", layout.main)
    sections = [
        Section("Results", tuple(map(to_html, tables[: len(tables) - len(layout.more)]))),
        Section("Plots", tuple(plot_block(title, path) for title, path in plots.items())),
        Section("More numbers", tuple(map(to_html, tables[len(tables) - len(layout.more) :]))),
    ]
    sections += [
        Section(f"Examples, {_cell_label(cell)}", (paragraph(SAMPLE_CHOICE), samples_html(found)))
        for cell, found in samples.items()
        if found
    ]
    write_report(
        directory / REPORT,
        title=layout.title,
        lead=layout.lead,
        settings=results.settings,
        notes=results.notes,
        sections=sections,
    )


def _tables(results: Results, layout: Layout) -> list[Table]:
    """The main table and the comparison of every kind of length, then all that is more."""
    lengths = list(dict.fromkeys(row["lengths"] for row in results.rows))
    tables: list[Table] = []
    for name in lengths:
        tables.append(metric_table(results, f"{layout.title}, {name} length, 95 % intervals", layout.main, name))
        further = (comparison_table(results, layout.main, name), length_table(results, name))
        tables += [table for table in further if table]
    return tables + [
        metric_table(results, f"{title}, {lengths[0]} length", names, lengths[0]) for title, names in layout.more
    ]


def _samples(finished: Finished, cell: Cell, images: Path | None) -> list[Sample]:
    shown = [method for method in finished.methods if "@" not in method.key]
    few = [method for method in shown if method.name in ("forward", "backward", OURS)] or shown
    answers = {method: finished.run.of(cell, method) for method in shown}
    samples = []
    for place, example in enumerate(cell.examples):
        if len(few) > 1 and len({answers[method][place].fill for method in few}) == 1:
            continue
        lines = [Line(("People",), " ".join(example.blank), truth=True)]
        for method in shown:
            answer, label = answers[method][place], LABELS[method.name]
            lines.append(Line((label,), answer.fill, answer.score, ours=label if method.name == OURS else ""))
        picture = find_picture(images, example.filename)
        samples.append(Sample(" ".join(example.before), " ".join(example.after), merge_equal(lines), picture))
        if len(samples) == NUM_SAMPLES:
            break
    return samples


def _cell_label(cell: Cell) -> str:
    return ", ".join(filter(None, (share_label(cell.removed), f"{cell.lengths} length")))
