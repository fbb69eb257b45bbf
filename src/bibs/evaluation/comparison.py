"""The report of an experiment that compares methods: their metrics, what BiBS gains, time, beam widths, examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from bibs.evaluation.methods import METHODS, OURS, base_name
from bibs.evaluation.pair import KNOWN
from bibs.evaluation.plots import ACCENT, COLOURS, MUTED, Plot, distinct, draw_curve, plot_points
from bibs.evaluation.report import Report
from bibs.evaluation.results import Results
from bibs.evaluation.runs import Run
from bibs.evaluation.samples import Gallery, Line, Sample, merge_equal
from bibs.evaluation.tables import Column, Label, Row, Table, lay_out
from bibs.evaluation.tasks import Cell, share_label

LABELS = {"exact_match": "exact match", "token_accuracy": "token accuracy", "seconds": "CPU seconds"}
FORMS = {"S": ".2f", "seconds": ".1f"}


def comparison_report(
    run: Run,
    results: Results,
    *,
    title: str,
    lead: str,
    main: Sequence[str],
    more: Mapping[str, Sequence[str]],
) -> Report:
    """`main` are the metrics of the first table, of the comparison and of the plots, `more` those of further tables."""
    line, lengths = results.label_of, distinct(results.rows, "lengths")
    tables: list[Table] = []
    further: list[Table] = []
    plots: list[Plot] = []
    for name in lengths:
        rows = [row for row in results.rows if row["lengths"] == name]
        gains = gain_rows([each for each in results.comparisons if each["lengths"] == name])
        tables.append(metric_table(f"{title}, {name} length", rows, main, line))
        if gains:
            tables.append(gain_table(f"BiBS minus the others, {name} length", gains, main, line))
        if name != KNOWN:
            tables.append(length_table(f"Chosen lengths, {name} length", rows, results.rows, line))
        further += [metric_table(f"{label}, {name} length", rows, some, line) for label, some in more.items()]
        found = _plots(rows, gains, main, line)
        if len(lengths) > 1:
            found = [replace(each, title=f"{each.title} ({name} length)", name=f"{each.name}-{name}") for each in found]
        plots += found
    galleries = tuple(_gallery(run, cell) for cell in run.cells)
    return Report(title, lead, results, tuple(tables), tuple(plots), tuple(further), galleries)


def metric_column(name: str, *, sign: str = "") -> Column:
    plain = name.removeprefix("blank_")
    label = ("blank " if plain != name else "") + LABELS.get(plain, plain.replace("Bleu_", "Bleu-"))
    return Column(name, label, sign + FORMS.get(name, ".3f"))


def metric_table(title: str, rows: Sequence[Row], metrics: Sequence[str], line: Label) -> Table:
    """One row a method, the metrics side by side for every share of words removed."""

    def best(row: Row, rivals: Sequence[Row], name: str) -> bool:
        """Retrieval stands beside the comparison, not in it."""
        values = [each[name] for each in rivals if not each["method"].startswith("ncca") and each[name] is not None]
        if name == "seconds" or row["method"].startswith("ncca") or row[name] is None:
            return False
        return bool(row[name] == max(values) and (len(values) == 1 or row[name] > min(values)))

    note = "95 % intervals; the best of each column stands out"
    return lay_out(title, rows, list(map(metric_column, metrics)), line=line, best=best, note=note)


def gain_rows(comparisons: Sequence[Row]) -> list[Row]:
    """The comparisons as rows: how far BiBS is above each other method, by metric."""
    rows: dict[tuple[int | None, str], Row] = {}
    for each in comparisons:
        row = rows.setdefault((each["removed"], each["other"]), {"removed": each["removed"], "method": each["other"]})
        numbers = {"": each["difference"], "_ci": each["difference_ci"], "_gain": each["gain"]}
        row |= {each["metric"] + suffix: value for suffix, value in numbers.items()}
    return list(rows.values())


def gain_table(title: str, gains: Sequence[Row], metrics: Sequence[str], line: Label) -> Table:
    """How far BiBS is above each other method, on the same sentences; a sure gain stands out."""
    columns = [metric_column(name, sign="+") for name in metrics]
    note = "difference, gain and 95 % interval; a sure gain stands out"
    return lay_out(title, gains, columns, line=line, best=lambda row, _, name: _is_sure(row, name), note=note)


def length_table(title: str, rows: Sequence[Row], all_rows: Sequence[Row], line: Label) -> Table:
    """How far the chosen lengths are off; and the CIDEr and the time, in those of the same method told the length."""
    told = {(row["removed"], row["method"]): row for row in all_rows if row["lengths"] == KNOWN}
    shown = []
    for row in rows:
        right, near, far = row["length_errors"]["within"]
        errors = {"right": right, "near": near, "far": far, "mean": row["length_errors"]["mean"]}
        known = told.get((row["removed"], row["method"]), {})
        ratios = {name: row[name] / known[name] for name in ("CIDEr", "seconds") if known.get(name)}
        shown.append({"removed": row["removed"], "method": row["method"], **errors, **ratios})
    columns = [Column("right", "right", ".1%"), Column("near", "within 1", ".1%"), Column("far", "within 2", ".1%")]
    columns += [Column("mean", "mean error", "+.2f"), Column("CIDEr", "CIDEr / known", ".1%")]
    columns += [Column("seconds", "time / known", ".1f")]
    return lay_out(title, shown, columns, line=line, note="")


def _plots(rows: Sequence[Row], gains: Sequence[Row], metrics: Sequence[str], line: Label) -> list[Plot]:
    """Every plot that the results can fill."""
    columns = [metric_column(name) for name in metrics if any(row.get(name) is not None for row in rows)]
    plain, gained = ([row for row in some if "@" not in row["method"]] for some in (rows, gains))
    plots = []
    if plain:
        title = f"Every method with {plain[0]['num_beams']} beams, 95 % intervals"
        plots.append(plot_points(title, "metrics", plain, columns, line=line, stands_out=_is_ours))
    if gained:
        title, by_bibs = (
            "What BiBS gains, 95 % intervals",
            [replace(c, label=f"{c.label} gained by BiBS") for c in columns],
        )
        plots.append(plot_points(title, "gains", gained, by_bibs, line=line, stands_out=_is_sure, zero=True))
    if ours := [row for row in plain if row["method"] == OURS and "length_errors" in row]:
        title, draw = "How many words the lengths that BiBS chose are off", partial(_length_bars, ours)
        plots.append(Plot(title, "lengths", draw, panels=(1, len(ours)), size=(3.4, 2.4)))
    timed = [{**row, "ms": 1000 * row["seconds"] / row["n"]} for row in rows if row["seconds"] > 0]
    x_label = "milliseconds of processor time a sentence"
    plots.append(_plot_curves("Quality against time", "time", timed, columns[0], "ms", x_label))
    widths = Counter(name for name, _ in {(base_name(row["method"]), row["num_beams"]) for row in rows})
    if several := [row for row in rows if widths[base_name(row["method"])] > 1]:
        title = "Quality against beam width, 95 % intervals"
        plots.append(_plot_curves(title, "beams", several, columns[0], "num_beams", "beams"))
    return plots


def _is_ours(row: Row, name: str) -> bool:
    return bool(row["method"] == OURS)


def _is_sure(row: Row, name: str) -> bool:
    return bool(row[f"{name}_ci"][0] > 0)


def _length_bars(rows: Sequence[Row], axes: Any) -> None:
    for axis, row in zip(axes[0], rows, strict=True):
        errors = row["length_errors"]
        shares = {int(error): count / row["n"] for error, count in errors["histogram"].items()}
        axis.bar(list(shares), list(shares.values()), color=[ACCENT if abs(x) <= 1 else MUTED for x in shares])
        axis.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        title = f"{errors['within'][1]:.0%} within 1, mean {errors['mean']:+.1f}"
        axis.set(xlabel="words too many", title=", ".join(filter(None, (share_label(row["removed"]), title))))


def _plot_curves(title: str, name: str, rows: Sequence[Row], column: Column, x: str, x_label: str) -> Plot:
    """A curve a method, by beam width, which is written beside its points; a method has one colour in all plots."""
    order, shares = [OURS, *(name for name in METHODS if name != OURS)], distinct(rows, "removed")

    def draw(axes: Any) -> None:
        for axis, share in zip(axes[0], shares, strict=True):
            for place, method in reversed(list(enumerate(order))):  # ours last, on top
                found = [row for row in rows if row["removed"] == share and base_name(row["method"]) == method]
                found.sort(key=lambda row: int(row["num_beams"]))
                if found:
                    colour, mark = COLOURS[place % len(COLOURS)], "num_beams" if len(found) > 1 else ""
                    draw_curve(axis, found, x, column.name, colour=colour, mark=mark, label=METHODS[method][0])
            axis.set(xscale="log", xlabel=x_label, title=", ".join(filter(None, (column.label, share_label(share)))))
            axis.xaxis.get_major_locator().set_params(subs=(1, 2, 5))
            axis.xaxis.set_major_formatter("{x:g}")
            axis.minorticks_off()

    return Plot(title, name, draw, panels=(1, len(shares)), size=(4.2, 3.2))


def _gallery(run: Run, cell: Cell) -> Gallery:
    """The first sentences on which the methods differ: the two that look one way and BiBS, where they were run."""
    shown = [method for method in run.methods if "@" not in method.key] or run.methods
    some = [method for method in shown if method.key in ("forward", "backward", OURS)]
    few = [method.label for method in (some if len(some) > 1 else shown)]
    samples = []
    for example, *answers in zip(cell.examples, *(run.of(cell, method) for method in shown), strict=True):
        lines = [Line((method.label,), each.fill, each.score) for method, each in zip(shown, answers, strict=True)]
        if len(few) == 1 or len({line.fill for line in lines if line.labels[0] in few}) > 1:
            samples.append(Sample(example, merge_equal(lines)))
    *names, last = few
    differ = f" on which {', '.join(names)} and {last} do not all agree" if names else ""
    score = "The number is S, the joint log probability of the whole sentence."
    choice = f"The first sentences of the random order{differ}. {score}"
    return Gallery(f"Examples, {cell.label}", choice, run.labels.get(OURS, ""), samples)
