"""The numbers as pictures: points with intervals, and curves. `plots.mplstyle` is their style."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bibs.evaluation.tables import Column, Label, Row
from bibs.evaluation.tasks import share_label

INK, MUTED, ACCENT = "#1f2933", "#7b8794", "#0b6e99"  # the first two also in plots.mplstyle
COLOURS = [ACCENT, "#d55e00", "#009e73", "#7e22ce", "#e0a100", "#cc6699"]
COLOURS += ["#5b4a3f", "#4aa8dd", "#8a8f98", "#111111", "#b91c1c", "#84a510"]


@dataclass(frozen=True)
class Plot:
    """A picture of a report: its title, the name of its file, and panels (rows, columns) that `draw` fills."""

    title: str
    name: str
    draw: Callable[[Any], None]  # told the axes, an array of the form `panels`
    panels: tuple[int, int] = (1, 2)
    size: tuple[float, float] = (5, 3.2)  # of a panel, in inches

    def file(self, directory: Path) -> Path:
        return directory / "plots" / f"{self.name}.png"

    def save(self, directory: Path) -> None:
        """Draw it, with one legend for all panels, the last curve first."""
        import matplotlib
        from matplotlib.figure import Figure  # not pyplot's, which keeps every figure until it is told to close it

        self.file(directory).parent.mkdir(exist_ok=True)
        with matplotlib.rc_context(fname=Path(__file__).with_name("plots.mplstyle")):
            (rows, columns), (width, height) = self.panels, self.size
            figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
            self.draw(figure.subplots(rows, columns, squeeze=False))
            found = [axis.get_legend_handles_labels() for axis in figure.axes]
            handles = {label: handle for some in found for handle, label in zip(*some, strict=True)}
            if handles:
                last_first = list(handles.values())[::-1], list(handles)[::-1]
                figure.legend(*last_first, loc="outside right center", frameon=False)
            figure.savefig(self.file(directory))


def distinct(rows: Iterable[Row], name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in rows))


def plot_points(
    title: str,
    name: str,
    rows: Sequence[Row],
    columns: Sequence[Column],
    *,
    line: Label,
    stands_out: Callable[[Row, str], bool],
    zero: bool = False,
) -> Plot:
    """A point and its interval for each line, one panel a column and share removed; `zero` marks where nothing is."""
    shares, lines = distinct(rows, "removed"), list(dict.fromkeys(map(line, rows)))[::-1]

    def draw(axes: Any) -> None:
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

    return Plot(title, name, draw, panels=(len(shares), len(columns)), size=(3.4, 0.5 + 0.23 * len(lines)))


def draw_curve(
    axis: Any, rows: Sequence[Row], x: str, y: str, *, colour: str, mark: str = "", style: str = "o-", label: str = ""
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
