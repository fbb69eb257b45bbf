"""Three kinds of plot, which draw whatever rows of results they are given: points with intervals, curves, bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bibs.evaluation.tables import Column, Row
from bibs.evaluation.tasks import share_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, ACCENT, FAINT = "#1f2933", "#7b8794", "#0b6e99", "#e4e7eb"
COLOURS = (ACCENT, "#d55e00", "#009e73", "#7e22ce", "#e0a100", "#cc6699", "#5b4a3f", "#4aa8dd", "#8a8f98", "#111111")

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


@dataclass(frozen=True)
class Plot:
    """A picture of a report: its title, the name of its file, and how it is drawn."""

    title: str
    name: str
    draw: Callable[[], Figure]


@dataclass(frozen=True)
class Curve:
    """Points that are joined. `marks` are written beside them, `band` is shaded around them."""

    xs: Sequence[float]
    ys: Sequence[float]
    colour: str
    label: str = ""
    style: str = "o-"
    marks: Sequence[str] = ()
    band: Sequence[Sequence[float]] = ()  # low, high at each point
    strong: bool = False


@dataclass(frozen=True)
class Panel:
    title: str
    x_label: str
    curves: tuple[Curve, ...]


def save_plot(plot: Plot, directory: Path) -> Path:
    pyplot = load_pyplot()
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{plot.name}.png"
    with pyplot.rc_context(STYLE):
        figure = plot.draw()
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


def distinct(rows: Iterable[Row], name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in rows))


def draw_points(
    rows: Sequence[Row],
    columns: Sequence[Column],
    *,
    line: Callable[[Row], str],
    stands_out: Callable[[Row, str], bool],
    zero: bool = False,
) -> Figure:
    """A point and its interval for each line, one panel a column and share removed; `zero` marks where nothing is."""
    shares, lines = distinct(rows, "removed"), list(dict.fromkeys(map(line, rows)))[::-1]
    figure, axes = _grid(len(shares), len(columns), height=0.5 + 0.23 * len(lines))
    for across, share in zip(axes, shares, strict=True):
        for axis, column in zip(across, columns, strict=True):
            if zero:
                axis.axvline(0, color=INK, linewidth=0.8)
            for row in rows:
                if row["removed"] == share and row.get(column.name) is not None:
                    place = lines.index(line(row))
                    colour = ACCENT if stands_out(row, column.name) else MUTED
                    axis.plot(row[f"{column.name}_ci"], [place, place], color=colour, linewidth=1.5)
                    axis.plot([row[column.name]], [place], "o", color=colour, markersize=4.5)
            axis.set_yticks(range(len(lines)), lines if axis is across[0] else [""] * len(lines))
            axis.set_ylim(-0.6, len(lines) - 0.4)
            axis.grid(axis="y", visible=False)
            axis.set_title(", ".join(filter(None, (column.label, share_label(share)))))
    return figure


def draw_curves(panels: Sequence[Panel], *, log: int = 0, x_ticks: Sequence[float] = ()) -> Figure:
    """Panels side by side with one legend; `log` is the base of the x axis, where it is logarithmic."""
    figure, axes = _grid(1, len(panels), width=4.2, height=3.2)
    handles: dict[str, Any] = {}
    for axis, panel in zip(axes[0], panels, strict=True):
        for curve in panel.curves:
            size, width = (6, 2) if curve.strong else (4.5, 1.2)
            (drawn,) = axis.plot(curve.xs, curve.ys, curve.style, color=curve.colour, markersize=size, linewidth=width)
            if curve.band:
                axis.fill_between(curve.xs, *zip(*curve.band, strict=True), color=curve.colour, alpha=0.1, linewidth=0)
            for mark, *place in zip(curve.marks, curve.xs, curve.ys, strict=False):
                spot = {"textcoords": "offset points", "ha": "center", "fontsize": 7, "color": curve.colour}
                axis.annotate(mark, place, (0, 5), **spot)
            if curve.label:
                handles.setdefault(curve.label, drawn)
        if log:
            axis.set_xscale("log", base=log)
            axis.xaxis.set_major_formatter("{x:g}")
            axis.minorticks_off()
        if x_ticks:
            axis.set_xticks(x_ticks)
        elif log:
            axis.xaxis.get_major_locator().set_params(subs=(1, 2, 5))
        axis.margins(0.08, 0.1)
        axis.set_xlabel(panel.x_label)
        axis.set_title(panel.title)
    figure.legend(list(handles.values())[::-1], list(handles)[::-1], loc="outside right center", frameon=False)
    return figure


def draw_bars(panels: Sequence[tuple[str, dict[int, float]]], x_label: str) -> Figure:
    """The share at each number, one panel for each title; those near zero stand out."""
    figure, axes = _grid(1, len(panels))
    for axis, (title, shares) in zip(axes[0], panels, strict=True):
        axis.bar(list(shares), list(shares.values()), color=[ACCENT if abs(x) <= 1 else MUTED for x in shares])
        axis.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        axis.set_xlabel(x_label)
        axis.set_title(title)
    return figure
