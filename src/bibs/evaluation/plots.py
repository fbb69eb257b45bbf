"""The numbers as pictures: metrics by method, gains of BiBS, quality against time and against beam width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bibs.evaluation.methods import LABELS, OURS
from bibs.evaluation.results import Results, Row
from bibs.evaluation.tables import metric_label, share_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, ACCENT, FAINT = "#1f2933", "#7b8794", "#0b6e99", "#e4e7eb"
COLOURS = (ACCENT, "#d55e00", "#009e73", "#7e22ce", "#e0a100", "#cc6699", "#5b4a3f", "#4aa8dd", "#8a8f98", "#111111")
METHOD_COLOURS = {
    name: COLOURS[place % len(COLOURS)] for place, name in enumerate([OURS, *(name for name in LABELS if name != OURS)])
}
"""One colour a method, the same in every plot; the first is ours."""

STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": FAINT,
    "axes.axisbelow": True,
    "savefig.dpi": 150,
    "savefig.bbox": "tight",
}


def draw_plots(results: Results, directory: Path, metrics: Sequence[str]) -> dict[str, Path]:
    """Every plot that the results can fill, written as PNG; title -> path."""
    kept = [name for name in metrics if any(row.get(name) is not None for row in results.rows)]
    lengths = list(dict.fromkeys(row["lengths"] for row in results.rows))
    drawn: dict[str, Path] = {}
    for name in lengths:
        for title, (stem, draw) in _possible_plots(results, name, kept).items():
            full = title if len(lengths) == 1 else f"{title} ({name} length)"
            path = directory / (f"{stem}.png" if len(lengths) == 1 else f"{stem}-{name}.png")
            drawn[full] = save_figure(draw, path)
    return drawn


def _possible_plots(
    results: Results, lengths: str, metrics: Sequence[str]
) -> dict[str, tuple[str, Callable[[], Figure]]]:
    """Title -> file name and how to draw it."""
    rows = [row for row in results.rows if row["lengths"] == lengths]
    plots: dict[str, tuple[str, Callable[[], Figure]]] = {
        "Every method, with 95 % intervals": ("metrics", lambda: _by_method(results, rows, metrics)),
    }
    if any(each["lengths"] == lengths for each in results.comparisons):
        plots["What BiBS gains, with 95 % intervals"] = ("gains", lambda: _gains(results, lengths, metrics))
    if any(row["method"] == OURS and "length_errors" in row for row in rows):
        plots["How many words the lengths that BiBS chose are off"] = ("lengths", lambda: _length_errors(rows))
    plots["Quality against time"] = ("time", lambda: _against_time(rows, metrics[0]))
    if _widths(rows):
        plots["Quality against beam width"] = ("beams", lambda: _against_width(rows, metrics[0]))
    return plots


def save_figure(draw: Callable[[], Figure], path: Path) -> Path:
    pyplot = load_pyplot()
    with pyplot.rc_context(STYLE):
        figure = draw()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
        pyplot.close(figure)
    return path


def load_pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise ValueError('plots need matplotlib: pip install ".[eval]"') from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _grid(num_rows: int, num_columns: int, *, width: float = 3.4, height: float = 2.4) -> tuple[Figure, Any]:
    figure, axes = load_pyplot().subplots(
        num_rows, num_columns, figsize=(width * num_columns, height * num_rows), squeeze=False, layout="constrained"
    )
    return figure, axes


def _shares(rows: Sequence[Row]) -> list[int | None]:
    return list(dict.fromkeys(row["removed"] for row in rows))


def _colour(method: str) -> str:
    return ACCENT if method == OURS else MUTED


def _by_method(results: Results, rows: Sequence[Row], metrics: Sequence[str]) -> Figure:
    shares = _shares(rows)
    methods = [method for method in results.labels if "@" not in method]
    figure, axes = _grid(len(shares), len(metrics), height=0.5 + 0.23 * len(methods))
    for line, share in zip(axes, shares, strict=True):
        for axis, name in zip(line, metrics, strict=True):
            found = [r for m in reversed(methods) for r in rows if r["removed"] == share and r["method"] == m]
            for place, row in enumerate(found):
                if row[name] is not None:
                    _point(axis, row[name], place, row[f"{name}_ci"], _colour(row["method"]))
            _name_places(axis, [results.labels[row["method"]] for row in found], shown=axis is line[0])
            axis.set_title(_title(name, share))
    return figure


def _gains(results: Results, lengths: str, metrics: Sequence[str]) -> Figure:
    found = [each for each in results.comparisons if each["lengths"] == lengths and "@" not in each["other"]]
    shares = _shares(found)
    others = list(dict.fromkeys(each["other"] for each in found))
    figure, axes = _grid(len(shares), len(metrics), height=0.5 + 0.23 * len(others))
    for line, share in zip(axes, shares, strict=True):
        for axis, name in zip(line, metrics, strict=True):
            here = {e["other"]: e for e in found if e["removed"] == share and e["metric"] == name}
            axis.axvline(0, color=INK, linewidth=0.8)
            for place, other in enumerate(reversed(others)):
                if other in here:
                    sure = here[other]["difference_ci"][0] > 0
                    _point(
                        axis,
                        here[other]["difference"],
                        place,
                        here[other]["difference_ci"],
                        ACCENT if sure else MUTED,
                    )
            _name_places(axis, [results.labels[other] for other in reversed(others)], shown=axis is line[0])
            axis.set_title(f"{metric_label(name)} gained by BiBS" + ("" if share is None else f", r = {share} %"))
    return figure


def _length_errors(rows: Sequence[Row]) -> Figure:
    found = [row for row in rows if row["method"] == OURS]
    figure, axes = _grid(1, len(found))
    for axis, row in zip(axes[0], found, strict=True):
        counts = {int(error): count for error, count in row["length_errors"]["histogram"].items()}
        colours = [ACCENT if abs(error) <= 1 else MUTED for error in counts]
        axis.bar(list(counts), [count / row["n"] for count in counts.values()], color=colours)
        axis.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        axis.set_xlabel("words too many")
        within, mean = row["length_errors"]["within"][1], row["length_errors"]["mean"]
        axis.set_title(
            ", ".join(filter(None, (share_label(row["removed"]), f"{within:.0%} within 1, mean {mean:+.1f}")))
        )
    return figure


def _point(axis: Axes, value: float, place: int, interval: Sequence[float], colour: str) -> None:
    axis.plot(interval, [place, place], color=colour, linewidth=1.5)
    axis.plot([value], [place], "o", color=colour, markersize=4.5)


def _name_places(axis: Axes, names: Sequence[str], *, shown: bool) -> None:
    axis.set_yticks(range(len(names)), names if shown else [""] * len(names))
    axis.set_ylim(-0.6, len(names) - 0.4)
    axis.grid(axis="y", visible=False)


def _against_time(rows: Sequence[Row], metric: str) -> Figure:
    """A point a method; the beam widths of one method are joined, and written beside its points."""
    from matplotlib.ticker import LogLocator, NullLocator

    shares, widths = _shares(rows), _widths(rows)
    figure, axes = _grid(1, len(shares), width=3.8, height=3.2)
    for axis, share in zip(axes[0], shares, strict=True):
        for method, found in _lines(rows, share):
            times = [1000 * row["seconds"] / row["n"] for row in found]
            _line(axis, method, times, found, metric)
            if method in widths:
                for time, row in zip(times, found, strict=True):
                    axis.annotate(
                        str(row["num_beams"]),
                        (time, row[metric]),
                        (0, 5),
                        textcoords="offset points",
                        ha="center",
                        fontsize=7,
                        color=METHOD_COLOURS[method],
                    )
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_locator(NullLocator())
        axis.margins(0.08, 0.1)
        axis.set_xlabel("milliseconds of processor time a sentence")
        axis.set_title(_title(metric, share))
    _legend(figure, axes)
    return figure


def _lines(rows: Sequence[Row], share: int | None) -> list[tuple[str, list[Row]]]:
    """The rows of each method, by beam width; ours comes last, on top."""
    found: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: int(row["num_beams"])):
        if row["removed"] == share and row["seconds"] > 0:
            found.setdefault(_base(row), []).append(row)
    order = list(METHOD_COLOURS)
    return sorted(found.items(), key=lambda each: (each[0] == OURS, order.index(each[0])))


def _line(axis: Axes, method: str, places: Sequence[float], rows: Sequence[Row], metric: str) -> None:
    ours = method == OURS
    axis.plot(
        places,
        [row[metric] for row in rows],
        "o-",
        color=METHOD_COLOURS[method],
        markersize=6 if ours else 4.5,
        linewidth=2 if ours else 1.2,
        label=LABELS[method],
    )


def _legend(figure: Figure, axes: Any) -> None:
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right center", frameon=False)


def _title(metric: str, share: int | None) -> str:
    return metric_label(metric) + ("" if share is None else f", r = {share} %")


def _base(row: Row) -> str:
    return str(row["method"]).partition("@")[0]


def _widths(rows: Sequence[Row]) -> dict[str, list[int]]:
    """The beam widths of each method that was run with more than one."""
    widths: dict[str, set[int]] = {}
    for row in rows:
        widths.setdefault(_base(row), set()).add(row["num_beams"])
    return {method: sorted(found) for method, found in widths.items() if len(found) > 1}


def _against_width(rows: Sequence[Row], metric: str) -> Figure:
    """Every method that was run with several beam widths, with 95 % intervals."""
    from matplotlib.ticker import NullLocator

    shares, widths = _shares(rows), _widths(rows)
    figure, axes = _grid(1, len(shares), width=3.8, height=3.2)
    for axis, share in zip(axes[0], shares, strict=True):
        for method, found in _lines(rows, share):
            if method not in widths:
                continue
            places = [row["num_beams"] for row in found]
            low, high = zip(*(row[f"{metric}_ci"] for row in found), strict=True)
            axis.fill_between(places, low, high, color=METHOD_COLOURS[method], alpha=0.1, linewidth=0)
            _line(axis, method, places, found, metric)
        axis.set_xscale("log", base=2)
        axis.set_xticks(sorted({width for several in widths.values() for width in several}))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter("{x:.0f}")
        axis.set_xlabel("beams")
        axis.set_title(_title(metric, share))
    _legend(figure, axes)
    return figure
