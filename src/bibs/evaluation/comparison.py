"""The report of an experiment that compares methods: their metrics, what BiBS gains, time, beam widths, examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bibs.evaluation.methods import METHODS, OURS, Method, base_name
from bibs.evaluation.pair import KNOWN
from bibs.evaluation.plots import COLOURS, Curve, Panel, Plot, distinct, draw_bars, draw_curves, draw_points
from bibs.evaluation.report import Report
from bibs.evaluation.results import Results
from bibs.evaluation.runs import Run
from bibs.evaluation.samples import Gallery, Line, make_gallery, merge_equal
from bibs.evaluation.tables import Column, Row, Table, lay_out
from bibs.evaluation.tasks import Cell, share_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELS = {"exact_match": "exact match", "token_accuracy": "token accuracy", "seconds": "CPU seconds"}
FORMS = {"S": ".2f", "seconds": ".1f"}


@dataclass(frozen=True)
class Layout:
    """Which numbers the tables show, and what the report is called."""

    title: str
    main: tuple[str, ...]  # the metrics of the first table, of the comparison and of the plots
    more: tuple[tuple[str, tuple[str, ...]], ...]  # further tables: title and metrics


def comparison_report(
    layout: Layout,
    lead: str,
    results: Results,
    run: Run,
    cells: Sequence[Cell],
    methods: Sequence[Method],
    images: Path | None = None,
) -> Report:
    lengths = distinct(results.rows, "lengths")
    tables: list[Table] = []
    plots: list[Plot] = []
    for name in lengths:
        title = f"{layout.title}, {name} length, 95 % intervals; the best of each column stands out"
        further = (gain_table(results, layout.main, name), length_table(results, name))
        tables += [metric_table(results, title, layout.main, name), *(table for table in further if table)]
        for plot in _plots(results, name, layout.main):
            several = len(lengths) > 1
            full = f"{plot.title} ({name} length)" if several else plot.title
            plots.append(Plot(full, f"{plot.name}-{name}" if several else plot.name, plot.draw))
    more = [
        metric_table(results, f"{title}, {name} length", some, name) for name in lengths for title, some in layout.more
    ]
    galleries = [_gallery(run, cell, methods, images) for cell in cells]
    return Report(layout.title, lead, results, tuple(tables), tuple(plots), tuple(more), tuple(galleries))


def metric_column(name: str, *, sign: str = "") -> Column:
    plain = name.removeprefix("blank_")
    label = ("blank " if plain != name else "") + LABELS.get(plain, plain.replace("Bleu_", "Bleu-"))
    return Column(name, label, sign + FORMS.get(name, ".3f"))


def metric_table(results: Results, title: str, metrics: Sequence[str], lengths: str) -> Table:
    """One row a method, the metrics side by side for every share of words removed."""

    def best(row: Row, rivals: Sequence[Row], name: str) -> bool:
        """Retrieval stands beside the comparison, not in it."""
        values = [each[name] for each in rivals if not each["method"].startswith("ncca") and each[name] is not None]
        if name == "seconds" or row["method"].startswith("ncca") or row[name] is None:
            return False
        return bool(row[name] == max(values) and (len(values) == 1 or row[name] > min(values)))

    rows = [row for row in results.rows if row["lengths"] == lengths]
    return lay_out(title, rows, list(map(metric_column, metrics)), line=results.label_of, best=best)


def gain_rows(results: Results, lengths: str) -> list[Row]:
    """The comparisons as rows: how far BiBS is above each other method, by metric."""
    rows: dict[tuple[int | None, str], Row] = {}
    for each in results.comparisons:
        if each["lengths"] == lengths:
            row = rows.setdefault(
                (each["removed"], each["other"]), {"removed": each["removed"], "method": each["other"]}
            )
            name = each["metric"]
            row |= {name: each["difference"], f"{name}_ci": each["difference_ci"], f"{name}_gain": each["gain"]}
    return list(rows.values())


def _sure(row: Row, name: str) -> bool:
    return bool(row[f"{name}_ci"][0] > 0)


def gain_table(results: Results, metrics: Sequence[str], lengths: str) -> Table | None:
    """How far BiBS is above each other method, on the same sentences; a sure gain stands out."""
    title = f"BiBS minus the others, {lengths} length: difference, gain and 95 % interval; a sure gain stands out"
    columns = [metric_column(name, sign="+") for name in metrics]
    rows = gain_rows(results, lengths)
    return (
        lay_out(title, rows, columns, line=results.label_of, best=lambda row, _, name: _sure(row, name))
        if rows
        else None
    )


def length_table(results: Results, lengths: str) -> Table | None:
    """How far the chosen lengths are off; and the CIDEr and the time, in those of the same method told the length."""
    told = {(row["removed"], row["method"]): row for row in results.rows if row["lengths"] == KNOWN}
    rows = []
    for row in results.rows:
        if row["lengths"] == lengths and "length_errors" in row:
            right, near, far = row["length_errors"]["within"]
            known = told.get((row["removed"], row["method"]), {})
            ratios = {name: row[name] / known[name] for name in ("CIDEr", "seconds") if known.get(name)}
            shares = {"right": right, "near": near, "far": far, "mean": row["length_errors"]["mean"]}
            rows.append({"removed": row["removed"], "method": row["method"], **shares, **ratios})
    columns = [Column("right", "right", ".1%"), Column("near", "within 1", ".1%"), Column("far", "within 2", ".1%")]
    columns += [Column("mean", "mean error", "+.2f"), Column("CIDEr", "CIDEr / known", ".1%")]
    columns += [Column("seconds", "time / known", ".1f")]
    return lay_out(f"Chosen lengths, {lengths} length", rows, columns, line=results.label_of) if rows else None


def _plots(results: Results, lengths: str, metrics: Sequence[str]) -> list[Plot]:
    """Every plot that the results can fill."""
    rows = [row for row in results.rows if row["lengths"] == lengths]
    columns = [metric_column(name) for name in metrics if any(row.get(name) is not None for row in rows)]
    plain, gains = ([row for row in some if "@" not in row["method"]] for some in (rows, gain_rows(results, lengths)))
    ours = [row for row in plain if row["method"] == OURS and "length_errors" in row]
    widths = _widths(rows)
    points = partial(draw_points, line=results.label_of)
    plots = []
    if plain:
        title = f"Every method with {plain[0]['num_beams']} beams, 95 % intervals"
        draw = partial(points, plain, columns, stands_out=lambda row, _: row["method"] == OURS)
        plots.append(Plot(title, "metrics", draw))
    if gains:
        gained = [replace(column, label=f"{column.label} gained by BiBS") for column in columns]
        draw = partial(points, gains, gained, stands_out=_sure, zero=True)
        plots.append(Plot("What BiBS gains, 95 % intervals", "gains", draw))
    if ours:
        plots.append(Plot("How many words the lengths that BiBS chose are off", "lengths", partial(_length_bars, ours)))
    plots.append(Plot("Quality against time", "time", partial(_against_time, rows, widths, columns[0])))
    if widths:
        plots.append(Plot("Quality against beam width", "beams", partial(_against_width, rows, widths, columns[0])))
    return plots


def _length_bars(rows: Sequence[Row]) -> Figure:
    panels = []
    for row in rows:
        errors = row["length_errors"]
        title = f"{errors['within'][1]:.0%} within 1, mean {errors['mean']:+.1f}"
        shares = {int(error): count / row["n"] for error, count in errors["histogram"].items()}
        panels.append((", ".join(filter(None, (share_label(row["removed"]), title))), shares))
    return draw_bars(panels, "words too many")


def _widths(rows: Sequence[Row]) -> dict[str, set[int]]:
    """The beam widths of each method that was run with more than one."""
    widths: dict[str, set[int]] = {}
    for row in rows:
        widths.setdefault(base_name(row["method"]), set()).add(row["num_beams"])
    return {name: found for name, found in widths.items() if len(found) > 1}


def _against_time(rows: Sequence[Row], widths: dict[str, set[int]], column: Column) -> Figure:
    """A point a method; the beam widths of one method are joined, and written beside its points."""

    def curve(name: str, found: Sequence[Row]) -> Curve:
        times = [1000 * row["seconds"] / row["n"] for row in found]
        marks = [str(row["num_beams"]) for row in found] if name in widths else []
        return Curve(times, [row[column.name] for row in found], "", marks=marks)

    timed = [row for row in rows if row["seconds"] > 0]
    return draw_curves(_panels(timed, column, "milliseconds of processor time a sentence", curve), log=10)


def _against_width(rows: Sequence[Row], widths: dict[str, set[int]], column: Column) -> Figure:
    """Every method that was run with several beam widths, with 95 % intervals."""

    def curve(name: str, found: Sequence[Row]) -> Curve:
        band = [row[f"{column.name}_ci"] for row in found]
        return Curve([row["num_beams"] for row in found], [row[column.name] for row in found], "", band=band)

    several = [row for row in rows if base_name(row["method"]) in widths]
    ticks = sorted(set().union(*widths.values()))
    return draw_curves(_panels(several, column, "beams", curve), log=2, x_ticks=ticks)


def _panels(
    rows: Sequence[Row], column: Column, x_label: str, curve: Callable[[str, Sequence[Row]], Curve]
) -> list[Panel]:
    """A panel a share removed, a curve a method, by beam width; a method has one colour in all plots."""
    order = [OURS, *(name for name in METHODS if name != OURS)]
    panels = []
    for share in distinct(rows, "removed"):
        curves = []
        for name in order[::-1]:  # ours last, on top
            found = [row for row in rows if row["removed"] == share and base_name(row["method"]) == name]
            if found:
                found.sort(key=lambda row: int(row["num_beams"]))
                colour, label = COLOURS[order.index(name) % len(COLOURS)], METHODS[name][0]
                curves.append(replace(curve(name, found), colour=colour, label=label, strong=name == OURS))
        title = ", ".join(filter(None, (column.label, share_label(share))))
        panels.append(Panel(title, x_label, tuple(curves)))
    return panels


def _gallery(run: Run, cell: Cell, methods: Sequence[Method], images: Path | None) -> Gallery:
    """The first sentences on which the methods differ: the two that look one way and BiBS, where they were run."""
    shown = [method for method in methods if "@" not in method.key] or list(methods)
    some = [method for method in shown if method.key in ("forward", "backward", OURS)]
    few = some if len(some) > 1 else shown
    lines = []
    for answers in zip(*(run.of(cell, method) for method in shown), strict=True):
        fills = {answer.fill for method, answer in zip(shown, answers, strict=True) if method in few}
        filled = [
            Line((method.label,), answer.fill, answer.score, ours=method.label if method.key == OURS else "")
            for method, answer in zip(shown, answers, strict=True)
        ]
        people = Line(("People",), answers[0].truth, truth=True)
        lines.append(merge_equal([people, *filled]) if len(fills) > 1 or len(few) == 1 else [])
    *names, last = (method.label for method in few)
    differ = f" on which {', '.join(names)} and {last} do not all agree" if names else ""
    score = "The number is S, the joint log probability of the whole sentence."
    choice = f"The first sentences of the random order{differ}. {score}"
    return make_gallery(f"Examples, {cell.label}", choice, cell, lines, images)
