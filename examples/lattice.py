"""A picture of one pass of the search: what it holds at each slot, and what the far side told it.

    python examples/lattice.py                      writes docs/images/one-pass.svg
    python examples/lattice.py pass.png "a _ _ wave"

The template has one run of `_`. Needs matplotlib (the extra `bibs[eval]`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bibs import Infiller, Vocabulary
from bibs.search import TracedPass

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "one-pass.svg"
TEMPLATE = "a man on _ _ _ _ _ how to ski"
BLUE, ORANGE, GREY = "#2456a6", "#b8590c", "#767676"
HEIGHT = {"forward": 1.0, "backward": -1.0}  # of the middle of each lattice
ROW = 0.62  # between two partial fills of a frontier


def draw_search(infiller: Infiller, template: str, *, num_beams: int = 3) -> Figure:
    """The plain first pass from the right, and the pass from the left that hears it."""
    (best,) = infiller(template, num_beams=num_beams, start="backward", trace=True)
    heard, told = best.trace[:2]
    left, right = template[: template.index("_")], template[template.rindex("_") + 1 :]
    slots = len(told.frontiers)
    figure = Figure(figsize=(1.45 * (slots + 2), 4.4), layout="constrained")
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_xlim(-0.7, slots + 1.7)
    first = len(infiller.vocabulary.encode(left.split())) + 1  # of the slots in a whole sequence
    for traced, colour, root, context in ((told, BLUE, 0, left), (heard, ORANGE, slots + 1, right)):
        top = traced.tokens[first : first + slots]
        draw_lattice(axes, traced, infiller.vocabulary, top=top, colour=colour)
        write_word(axes, root, HEIGHT[traced.direction], context.strip() or "(end)", colour, bold=True)
    for slot in range(1, slots + 1):
        arrow = {"arrowstyle": "-|>", "color": GREY, "linestyle": ":", "shrinkA": 2, "shrinkB": 2}
        axes.annotate("", (slot, 0.16 - 0.1), (slot + 0.8, -0.16 - 0.1), arrowprops=arrow)
    axes.text(-0.6, 1.95, "pass from the left", color=BLUE, weight="bold", va="center")
    axes.text(slots + 1.6, -1.95, "pass from the right", color=ORANGE, weight="bold", va="center", ha="right")
    axes.text(-0.6, 0, "messages: for each token,\nthe most it can come to there", color=GREY, va="center", size=8)
    axes.set_ylim(-2.1, 2.1)
    return figure


def draw_lattice(axes: Axes, traced: TracedPass, vocabulary: Vocabulary, *, top: tuple[int, ...], colour: str) -> None:
    """Every partial fill that the pass held, each joined to the one that it extends; its best sentence is bold."""
    slots, forward = len(traced.frontiers), traced.direction == "forward"
    best = top if forward else top[::-1]
    middle = HEIGHT[traced.direction]
    places: dict[tuple[int, ...], tuple[float, float]] = {(): (0 if forward else slots + 1, middle)}
    frontiers = [[fill for fill, _ in frontier] for frontier in traced.frontiers[1:]]
    for read, fills in enumerate([*frontiers, [best]], start=1):
        for row, fill in enumerate(fills):
            x = read if forward else slots + 1 - read
            y = middle + ROW * ((len(fills) - 1) / 2 - row)
            places[tuple(fill)] = (x, y)
            bold = tuple(fill) == best[:read]
            draw_edge(axes, places[tuple(fill[:-1])], (x, y), colour, bold=bold)
            write_word(axes, x, y, vocabulary.decode([fill[-1]])[0], colour, bold=bold)


def draw_edge(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, *, bold: bool = False
) -> None:
    width, opacity = (2.2, 0.9) if bold else (0.9, 0.4)
    axes.plot(*zip(start, end, strict=True), color=colour, lw=width, alpha=opacity, zorder=1, solid_capstyle="round")


def write_word(axes: Axes, x: float, y: float, word: str, colour: str, *, bold: bool = False) -> None:
    box = {"boxstyle": "round,pad=0.28", "facecolor": "white", "edgecolor": colour, "linewidth": 1.6 if bold else 0.7}
    weight = "bold" if bold else "normal"
    axes.text(x, y, word, ha="center", va="center", size=9, color=colour, weight=weight, bbox=box, zorder=2)


if __name__ == "__main__":
    target, template = (Path(sys.argv[1]), sys.argv[2]) if len(sys.argv) == 3 else (PICTURE, TEMPLATE)
    figure = draw_search(Infiller.from_pretrained(precision="float32"), template)
    figure.savefig(target, metadata={"Date": None} if target.suffix == ".svg" else None, facecolor="white", dpi=110)
