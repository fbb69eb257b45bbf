"""The numbers as pictures: one style, points with intervals, and curves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bibs.evaluation.tables import Column, Row
from bibs.evaluation.tasks import share_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, ACCENT, FAINT = "#1f2933", "#7b8794", "#0b6e99", "#e4e7eb"
COLOURS = [ACCENT, "#d55e00", "#009e73", "#7e22ce", "#e0a100", "#cc6699"]
COLOURS += ["#5b4a3f", "#4aa8dd", "#8a8f98", "#111111", "#b91c1c", "#84a510"]

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


def save_plot(plot: Plot, directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{plot.name}.png"
    with load_matplotlib().rc_context(STYLE):
        plot.draw().savefig(path)
    return path


def load_matplotlib() -> Any:
    try:
        return import_module("matplotlib")
    except ImportError:
        raise ValueError('plots need matplotlib: pip install ".[eval]"') from None


def make_panels(num_rows: int, num_columns: int, *, width: float = 4.2, height: float = 3.2) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure  # not pyplot's, which keeps every figure until it is told to close it

    figure = Figure(figsize=(width * num_columns, height * num_rows), layout="constrained")
    return figure, figure.subplots(num_rows, num_columns, squeeze=False)


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
    figure, axes = make_panels(len(shares), len(columns), width=3.4, height=0.5 + 0.23 * len(lines))
    for across, share in zip(axes, shares, strict=True):
        for axis, column in zip(across, columns, strict=True):
            if zero:
                axis.axvline(0, color=INK, linewidth=0.8)
            for row in rows:
                if row["removed"] == share and row.get(column.name) is not None:
                    place, colour = lines.index(line(row)), ACCENT if stands_out(row, column.name) else MUTED
                    axis.plot(row[f"{column.name}_ci"], [place, place], color=colour, linewidth=1.5)
                    axis.plot([row[column.name]], [place], "o", color=colour, markersize=4.5)
            axis.set_yticks(range(len(lines)), lines if axis is across[0] else [""] * len(lines))
            axis.set_ylim(-0.6, len(lines) - 0.4)
            axis.grid(axis="y", visible=False)
            axis.set_title(", ".join(filter(None, (column.label, share_label(share)))))
    return figure


def draw_curve(
    axis: Axes, rows: Sequence[Row], x: str, y: str, *, colour: str, mark: str = "", style: str = "o-", label: str = ""
) -> None:
    """The number `y` of the rows against their `x`, with its interval; their `mark` is written beside the points."""
    xs = [row[x] for row in rows]
    axis.plot(xs, [row[y] for row in rows], style, color=colour, markersize=4.5, linewidth=1.4, label=label)
    if f"{y}_ci" in rows[0]:
        low, high = zip(*(row[f"{y}_ci"] for row in rows), strict=True)
        axis.fill_between(xs, low, high, color=colour, alpha=0.07)
    for row in rows if mark else ():
        place, text = (row[x], row[y]), f"{row[mark]:g}"
        axis.annotate(text, place, (0, 5), textcoords="offset points", ha="center", fontsize=7, color=colour)


def add_legend(figure: Figure) -> None:
    """One legend for all panels, the last curve first."""
    found = [axis.get_legend_handles_labels() for axis in figure.axes]
    handles = {label: handle for some in found for handle, label in zip(*some, strict=True) if label}
    figure.legend(list(handles.values())[::-1], list(handles)[::-1], loc="outside right center", frameon=False)
