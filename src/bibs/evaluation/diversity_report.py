"""The diversity experiment as table, plot and page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bibs.evaluation.diversity import Diversity
from bibs.evaluation.plots import ACCENT, COLOURS, MUTED, load_pyplot, save_figure
from bibs.evaluation.report import Section, paragraph, plot_block, write_report
from bibs.evaluation.samples import Line, Sample, find_picture, samples_html, samples_markdown
from bibs.evaluation.tables import Entry, Table, share_label, to_html, to_latex, to_markdown
from bibs.models.storage import save_json, write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Different fills of one blank"
LEAD = (
    "Each blank is filled several times. With a penalty, the fills are searched one after the other, and a word loses "
    "so much for each fill before that holds it. The row with more beams and no penalty costs about as much."
)
COLUMNS = {
    "distinct": ("distinct words", 2),
    "times": ("times", 2),
    "best": ("best S", 2),
    "mean": ("mean S", 2),
    "first_accuracy": ("first fill: words in place", 3),
    "oracle_accuracy": ("nearest fill: words in place", 3),
    "found": ("true words in any fill", 3),
}
NUM_SAMPLES = 6
SAMPLE_CHOICE = "The first sentences of the random order: all fills without a penalty, and with the middle one tried."


def write_diversity(found: Diversity, *, images: Path | None = None) -> None:
    directory = found.run.directory
    save_json(directory / "results.json", found.json())
    table = diversity_table(found)
    samples = {share_label(cell.removed): _samples(found, place, images) for place, cell in enumerate(found.cells)}
    markdown = [f"# {TITLE}\n", *(f"- {note}" for note in found.notes), "", to_markdown(table)]
    for name, few in samples.items():
        markdown += [f"### Fills, {name}\n", SAMPLE_CHOICE + "\n", samples_markdown(few)]
    write_atomically(directory / "table.md", "\n".join(markdown).encode())
    write_atomically(directory / "table.tex", to_latex(table).encode())
    plot = save_figure(lambda: _plot(found), directory / "plots" / "diversity.png")
    sections = [Section("By penalty", (to_html(table), plot_block("Quality against distinct words", plot)))]
    sections += [
        Section(f"Fills, {name}", (paragraph(SAMPLE_CHOICE), samples_html(few))) for name, few in samples.items()
    ]
    write_report(
        directory / "report.html",
        title=TITLE,
        lead=LEAD,
        settings=found.settings,
        notes=found.notes,
        sections=sections,
    )


def diversity_table(found: Diversity) -> Table:
    by_place = {(row["removed"], row["method"]): row for row in found.rows}
    shares = list(dict.fromkeys(row["removed"] for row in found.rows))
    return Table(
        f"{found.settings['num_return_sequences']} fills of each blank, 95 % intervals",
        tuple((share_label(share), tuple(label for label, _ in COLUMNS.values())) for share in shares),
        tuple(
            (method.label, tuple(entry for share in shares for entry in _entries(by_place[share, method.key])))
            for method in found.methods
        ),
        corner="search",
    )


def _entries(row: dict[str, Any]) -> list[Entry]:
    return [
        Entry(f"{row[name]:.{digits}f}", "[{0:.{2}f}, {1:.{2}f}]".format(*row[f"{name}_ci"], digits))
        for name, (_, digits) in COLUMNS.items()
    ]


def _plot(found: Diversity) -> Figure:
    """S and the words in place against distinct words: a line through the penalties, a cross for the wide beam."""
    figure, axes = load_pyplot().subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    lines = {"best": (axes[0], ACCENT), "mean": (axes[0], COLOURS[1])}
    lines |= {"oracle_accuracy": (axes[1], ACCENT), "first_accuracy": (axes[1], COLOURS[1])}
    shares = list(dict.fromkeys(row["removed"] for row in found.rows))
    for place, share in enumerate(shares):
        rows = [row for row in found.rows if row["removed"] == share]
        narrow = [row for row in rows if row["num_beams"] == found.methods[0].num_beams]
        style = ("-", "--", ":", "-.")[place % 4]
        for name, (axis, colour) in lines.items():
            label = COLUMNS[name][0] + (f", r = {share} %" if len(shares) > 1 else "")
            axis.plot(
                [row["distinct"] for row in narrow],
                [row[name] for row in narrow],
                f"o{style}",
                color=colour,
                markersize=4,
                label=label,
            )
            for row in rows:
                if row not in narrow:
                    axis.plot(row["distinct"], row[name], "x", color=colour)
        for axis, name in ((axes[0], "mean"), (axes[1], "oracle_accuracy")):
            for row in narrow:
                axis.annotate(
                    f"{row['penalty']:g}",
                    (row["distinct"], row[name]),
                    textcoords="offset points",
                    xytext=(4, 5),
                    fontsize=7,
                    color=MUTED,
                )
    axes[0].set_title("mean over sentences of S (numbers: the penalty; crosses: no penalty, more beams)")
    axes[1].set_title("share of the true words in their places")
    for axis in axes:
        axis.set_xlabel(f"distinct words in {found.settings['num_return_sequences']} fills")
        axis.legend(frameon=False, loc="best")
    return figure  # type: ignore[no-any-return]


def _samples(found: Diversity, place: int, images: Path | None) -> list[Sample]:
    cell = found.cells[place]
    penalised = [method for method in found.methods if method.penalty]
    shown = [found.methods[0], *penalised[len(penalised) // 2 :][:1]]
    records = [found.run.of(cell, method) for method in shown]
    samples = []
    for number, example in enumerate(cell.examples[:NUM_SAMPLES]):
        lines = [Line(("People",), " ".join(example.blank), None, truth=True)]
        for method, several in zip(shown, (of_method[number] for of_method in records), strict=True):
            for fill, score in zip(several.fills, several.scores, strict=True):
                lines.append(Line((method.label,), fill, score, ours=method.label if method.penalty else ""))
        before, after = " ".join(example.before), " ".join(example.after)
        samples.append(Sample(before, after, tuple(lines), find_picture(images, example.filename)))
    return samples
