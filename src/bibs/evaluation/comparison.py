"""The report of an experiment that compares methods: their metrics, what BiBS gains, time, beam widths, examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bibs.evaluation.methods import METHODS, OURS, base_name
from bibs.evaluation.pair import KNOWN
from bibs.evaluation.plots import (
    ACCENT,
    COLOURS,
    MUTED,
    Plot,
    add_legend,
    distinct,
    draw_curve,
    draw_points,
    make_panels,
)
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


def comparison_report(layout: Layout, lead: str, results: Results, run: Run, images: Path | None = None) -> Report:
    lengths = distinct(results.rows, "lengths")
    tables: list[Table] = []
    more: list[Table] = []
    plots: list[Plot] = []
    for name in lengths:
        title = f"{layout.title}, {name} length"
        further = (gain_table(results, layout.main, name), length_table(results, name))
        tables += [metric_table(results, title, layout.main, name), *(table for table in further if table.rows)]
        more += [metric_table(results, f"{title}, {name} length", some, name) for title, some in layout.more]
        found = _plots(results, name, layout.main)
        plots += found if len(lengths) == 1 else [_of_length(plot, name) for plot in found]
    galleries = tuple(_gallery(run, cell, images) for cell in run.cells)
    return Report(layout.title, lead, results, tuple(tables), tuple(plots), tuple(more), galleries)


def _of_length(plot: Plot, name: str) -> Plot:
    return replace(plot, title=f"{plot.title} ({name} length)", name=f"{plot.name}-{name}")


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
    note = "95 % intervals; the best of each column stands out"
    return lay_out(title, rows, list(map(metric_column, metrics)), line=results.label_of, best=best, note=note)


def gain_rows(results: Results, lengths: str) -> list[Row]:
    """The comparisons as rows: how far BiBS is above each other method, by metric."""
    rows: dict[tuple[int | None, str], Row] = {}
    for each in results.comparisons:
        if each["lengths"] == lengths:
            row = rows.setdefault((each["removed"], each["other"]), {"removed": each["removed"]})
            numbers = {"": each["difference"], "_ci": each["difference_ci"], "_gain": each["gain"]}
            row |= {"method": each["other"], **{each["metric"] + suffix: value for suffix, value in numbers.items()}}
    return list(rows.values())


def _sure(row: Row, name: str) -> bool:
    return bool(row[f"{name}_ci"][0] > 0)


def gain_table(results: Results, metrics: Sequence[str], lengths: str) -> Table:
    """How far BiBS is above each other method, on the same sentences; a sure gain stands out."""
    title, note = (
        f"BiBS minus the others, {lengths} length",
        "difference, gain and 95 % interval; a sure gain stands out",
    )
    columns = [metric_column(name, sign="+") for name in metrics]
    rows, best = gain_rows(results, lengths), lambda row, _, name: _sure(row, name)
    return lay_out(title, rows, columns, line=results.label_of, best=best, note=note)


def length_table(results: Results, lengths: str) -> Table:
    """How far the chosen lengths are off; and the CIDEr and the time, in those of the same method told the length."""
    told = {(row["removed"], row["method"]): row for row in results.rows if row["lengths"] == KNOWN}
    rows = []
    for row in results.rows:
        if row["lengths"] == lengths and "length_errors" in row:
            errors = dict(zip(("right", "near", "far"), row["length_errors"]["within"], strict=True))
            known = told.get((row["removed"], row["method"]), {})
            ratios = {name: row[name] / known[name] for name in ("CIDEr", "seconds") if known.get(name)}
            where = {"removed": row["removed"], "method": row["method"], "mean": row["length_errors"]["mean"]}
            rows.append({**where, **errors, **ratios})
    columns = [Column("right", "right", ".1%"), Column("near", "within 1", ".1%"), Column("far", "within 2", ".1%")]
    columns += [Column("mean", "mean error", "+.2f"), Column("CIDEr", "CIDEr / known", ".1%")]
    columns += [Column("seconds", "time / known", ".1f")]
    return lay_out(f"Chosen lengths, {lengths} length", rows, columns, line=results.label_of, note="")


def _plots(results: Results, lengths: str, metrics: Sequence[str]) -> list[Plot]:
    """Every plot that the results can fill."""
    rows = [{**row, "ms": 1000 * row["seconds"] / row["n"]} for row in results.rows if row["lengths"] == lengths]
    columns = [metric_column(name) for name in metrics if any(row.get(name) is not None for row in rows)]
    plain, gains = ([row for row in some if "@" not in row["method"]] for some in (rows, gain_rows(results, lengths)))
    ours = [row for row in plain if row["method"] == OURS and "length_errors" in row]
    several = [row for row in rows if len({each["num_beams"] for each in rows if _same_method(each, row)}) > 1]
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
    timed = [row for row in rows if row["ms"] > 0]
    draw = partial(_draw_curves, timed, columns[0], "ms", "milliseconds of processor time a sentence")
    plots.append(Plot("Quality against time", "time", draw))
    if several:
        draw = partial(_draw_curves, several, columns[0], "num_beams", "beams")
        plots.append(Plot("Quality against beam width, 95 % intervals", "beams", draw))
    return plots


def _same_method(row: Row, other: Row) -> bool:
    return base_name(row["method"]) == base_name(other["method"])


def _length_bars(rows: Sequence[Row]) -> Figure:
    figure, axes = make_panels(1, len(rows), width=3.4, height=2.4)
    for axis, row in zip(axes[0], rows, strict=True):
        errors = row["length_errors"]
        shares = {int(error): count / row["n"] for error, count in errors["histogram"].items()}
        axis.bar(list(shares), list(shares.values()), color=[ACCENT if abs(x) <= 1 else MUTED for x in shares])
        axis.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        title = f"{errors['within'][1]:.0%} within 1, mean {errors['mean']:+.1f}"
        axis.set(xlabel="words too many", title=", ".join(filter(None, (share_label(row["removed"]), title))))
    return figure


def _draw_curves(rows: Sequence[Row], column: Column, x: str, x_label: str) -> Figure:
    """A curve a method, by beam width, which is written beside its points; a method has one colour in all plots."""
    order, shares = [OURS, *(name for name in METHODS if name != OURS)], distinct(rows, "removed")
    figure, axes = make_panels(1, len(shares))
    for axis, share in zip(axes[0], shares, strict=True):
        for place, name in reversed(list(enumerate(order))):  # ours last, on top
            found = [row for row in rows if row["removed"] == share and base_name(row["method"]) == name]
            found.sort(key=lambda row: int(row["num_beams"]))
            if found:
                colour, mark = COLOURS[place % len(COLOURS)], "num_beams" if len(found) > 1 else ""
                draw_curve(axis, found, x, column.name, colour=colour, mark=mark, label=METHODS[name][0])
        axis.set(xscale="log", xlabel=x_label, title=", ".join(filter(None, (column.label, share_label(share)))))
        axis.xaxis.get_major_locator().set_params(subs=(1, 2, 5))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.minorticks_off()
    add_legend(figure)
    return figure


def _gallery(run: Run, cell: Cell, images: Path | None) -> Gallery:
    """The first sentences on which the methods differ: the two that look one way and BiBS, where they were run."""
    shown = [method for method in run.methods if "@" not in method.key] or run.methods
    some = [method for method in shown if method.key in ("forward", "backward", OURS)]
    few = some if len(some) > 1 else shown
    lines = []
    for answers in zip(*(run.of(cell, method) for method in shown), strict=True):
        filled = [
            Line((method.label,), answer.fill, answer.score, ours=method.label if method.key == OURS else "")
            for method, answer in zip(shown, answers, strict=True)
        ]
        people = Line(("People",), answers[0].truth, truth=True)
        fills = {answer.fill for method, answer in zip(shown, answers, strict=True) if method in few}
        lines.append(merge_equal([people, *filled]) if len(fills) > 1 or len(few) == 1 else [])
    *names, last = (method.label for method in few)
    differ = f" on which {', '.join(names)} and {last} do not all agree" if names else ""
    score = "The number is S, the joint log probability of the whole sentence."
    choice = f"The first sentences of the random order{differ}. {score}"
    return make_gallery(f"Examples, {cell.label}", choice, cell, lines, images)
