"""The convergence experiment as table, plot and page, with the paper's figure of completions by pass."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bibs.evaluation.convergence import Convergence, Trace
from bibs.evaluation.plots import COLOURS, load_pyplot, save_figure
from bibs.evaluation.report import Section, paragraph, plot_block, write_report
from bibs.evaluation.samples import Line, Sample, find_picture, samples_html, samples_markdown
from bibs.evaluation.tables import Entry, Table, share_label, to_html, to_latex, to_markdown
from bibs.models.storage import save_json, write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "How fast Bidirectional Beam Search settles"
LEAD = (
    "A first, plain pass runs right to left; then passes alternate, each steered by the last. The joint log "
    "probability is the mean over both models and all words, the sentence end included."
)
NUM_SAMPLES = 6
SAMPLE_CHOICE = (
    "The first sentences of the random order whose top fill changed at least twice. Init is a plain search from right "
    "to left; the number is S, the joint log probability of the whole sentence."
)


def write_convergence(found: Convergence, *, images: Path | None = None) -> None:
    directory = found.run.directory
    save_json(directory / "results.json", found.json())
    tables = [pass_table(found), answer_table(found)]
    samples = {share_label(cell.removed): _samples(found, place, images) for place, cell in enumerate(found.cells)}
    markdown = [f"# {TITLE}\n", *(f"- {note}" for note in found.notes), "", *map(to_markdown, tables)]
    for name, few in samples.items():
        markdown += [f"### Completions by pass, {name}\n", SAMPLE_CHOICE + "\n", samples_markdown(few)]
    write_atomically(directory / "table.md", "\n".join(markdown).encode())
    write_atomically(directory / "table.tex", "\n".join(map(to_latex, tables)).encode())
    plot = save_figure(lambda: _plot(found), directory / "plots" / "convergence.png")
    sections = [
        Section("By pass", (to_html(tables[0]), plot_block("Joint log probability and settled share by pass", plot))),
        Section("What was returned", (to_html(tables[1]),)),
    ]
    sections += [
        Section(f"Completions by pass, {name}", (paragraph(SAMPLE_CHOICE), samples_html(few)))
        for name, few in samples.items()
        if few
    ]
    write_report(
        directory / "report.html",
        title=TITLE,
        lead=LEAD,
        settings=found.settings,
        notes=found.notes,
        sections=sections,
    )


def pass_table(found: Convergence) -> Table:
    columns = ("top fill", "best so far", "settled")
    shares = list(dict.fromkeys(row["removed"] for row in found.rows))
    by_place = {(row["removed"], row["pass"]): row for row in found.rows}
    body = []
    for number in sorted({row["pass"] for row in found.rows}):
        entries = [entry for share in shares for entry in _entries(by_place[share, number])]
        body.append((_pass_name(number), tuple(entries)))
    return Table(
        "Mean joint log probability and share of settled examples after each pass, 95 % intervals",
        tuple((share_label(share), columns) for share in shares),
        tuple(body),
        corner="pass",
    )


def _entries(row: dict[str, Any]) -> list[Entry]:
    joints = [
        Entry(f"{row[name]:.3f}", f"[{row[f'{name}_ci'][0]:.3f}, {row[f'{name}_ci'][1]:.3f}]")
        for name in ("top", "best")
    ]
    return [*joints, Entry(f"{row['settled']:.1%}")]


def answer_table(found: Convergence) -> Table:
    columns = ("joint of the answer", "joint of people's words", "people's words score higher", "rounds")
    body = []
    for each in found.answers:
        truth = "n/a" if each["truth_joint"] is None else f"{each['truth_joint']:.3f}"
        above = "n/a" if each["truth_above"] is None else f"{each['truth_above']:.1%}"
        cells = (f"{each['joint']:.3f}", truth, above, f"{each['rounds_to_settle']:.2f}")
        body.append((share_label(each["removed"]), tuple(Entry(text) for text in cells)))
    title = "The best of all passes; people's words, where all are in the vocabulary; rounds until settled or stopped"
    return Table(title, (("", columns),), tuple(body), corner="")


def _pass_name(number: int) -> str:
    return "Init" if number == 0 else f"pass {number} {'→' if number % 2 else '←'}"


def _plot(found: Convergence) -> Figure:
    figure, (left, right) = load_pyplot().subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    shares = list(dict.fromkeys(row["removed"] for row in found.rows))
    for colour, share in zip(COLOURS, shares, strict=False):
        rows = [row for row in found.rows if row["removed"] == share]
        numbers = [row["pass"] for row in rows]
        left.plot(numbers, [row["best"] for row in rows], "o-", color=colour, markersize=4, label=f"r = {share} %")
        left.plot(numbers, [row["top"] for row in rows], "--", color=colour, linewidth=1)
        right.plot(numbers, [100 * row["settled"] for row in rows], "o-", color=colour, markersize=4)
    left.set_title("mean joint log probability: best so far (line), top of the pass (dashes)")
    right.set_title("settled examples, per cent")
    right.set_ylim(0, 102)
    for axis in (left, right):
        axis.set_xlabel("pass (0 is the plain first one; two make a round)")
        axis.set_xticks(sorted({row["pass"] for row in found.rows}))
    left.legend(frameon=False, loc="lower right")
    return figure  # type: ignore[no-any-return]


def _samples(found: Convergence, place: int, images: Path | None) -> list[Sample]:
    cell = found.cells[place]
    samples = []
    for example, trace in zip(cell.examples, found.run.of(cell, found.method), strict=True):
        if _changes(trace) < 2:
            continue
        lines = [Line(("People",), trace.truth, trace.truth_score if trace.truth_known else None, truth=True)]
        lines += _steps(trace)
        lines.append(Line(("Answer",), trace.answer, trace.score, ours="Answer"))
        samples.append(Sample(trace.before, trace.after, tuple(lines), find_picture(images, example.filename)))
        if len(samples) == NUM_SAMPLES:
            break
    return samples


def _steps(trace: Trace) -> list[Line]:
    """Each different top fill, in the order in which they came, with the passes that ended with it."""
    passes: dict[str, list[int]] = {}
    for number, fill in enumerate(trace.fills):
        passes.setdefault(fill, []).append(number)
    return [Line((_passes_name(numbers),), fill, trace.scores[numbers[0]]) for fill, numbers in passes.items()]


def _passes_name(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return _pass_name(numbers[0])
    first = "Init" if numbers[0] == 0 else f"pass {numbers[0]}"
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{first} to {numbers[-1]}"
    return ", ".join([first, *map(str, numbers[1:])])


def _changes(trace: Trace) -> int:
    return sum(a != b for a, b in zip(trace.fills, trace.fills[1:], strict=False))
