"""The city, its traffic, and the ways that were found in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.patches import FancyArrowPatch

if TYPE_CHECKING:
    from city import City
    from run import Planner, Problem

INK, GREY, WATER = "#1f2933", "#b8c0c8", "#d6e8f2"
COLOURS = {"forward": "#d55e00", "backward": "#9a5fb5", "bibs": "#0b6e99"}
LABELS = {"forward": "left to right", "backward": "right to left", "bibs": "BiBS"}


def draw(
    planner: Planner,
    problems: Sequence[Problem],
    ways: Mapping[str, Sequence[list[int]]],
    best: Sequence[list[int]],
    path: Path,
) -> None:
    """Two problems in which the one-way searches end with a move that is impossible, or far from the best."""
    city = planner.city
    chosen = sorted(range(len(problems)), key=lambda index: -interest(city, ways, index, len(best[index])))[:2]
    figure, axes = pyplot.subplots(1, 2, figsize=(12.5, 6.6), layout="constrained")
    for axis, index in zip(axes, chosen, strict=True):
        draw_city(axis, city, planner.trips)
        shown = {"Dijkstra, who knows the costs": best[index]} | {LABELS[name]: ways[name][index] for name in LABELS}
        offsets = (0.0, -0.13, 0.13, 0.0)
        for (label, way), offset in zip(shown.items(), offsets, strict=True):
            draw_way(axis, city, way, label, offset)
        for crossing, mark in zip(problems[index], "ABC", strict=True):
            x, y = city.places[crossing]
            axis.plot(x, y, "o", color=INK, markersize=15, zorder=8)
            axis.text(x, y, mark, color="white", ha="center", va="center", fontsize=9, weight="bold", zorder=9)
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.01), ncols=2, frameon=False, fontsize=9)
    figure.suptitle(
        "From A by way of B to C, learnt from trips alone. Dotted: a move that no street allows.", fontsize=11
    )
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def interest(city: City, ways: Mapping[str, Sequence[list[int]]], index: int, length: int) -> float:
    """Few dotted moves are easier to see than many, and long ways show more."""
    broken = [city.invalid_moves(ways[name][index]) for name in ("forward", "backward")]
    fine = bool(ways["bibs"][index]) and not city.invalid_moves(ways["bibs"][index])
    return fine * (10 * sum(number == 1 for number in broken) + min(length, 30) / 10)


def draw_city(axis: Any, city: City, trips: Sequence[Sequence[int]]) -> None:
    traffic = Counter(frozenset(move) for trip in trips for move in pairwise(trip))
    most = max(traffic.values())
    xs, ys = zip(*city.river, strict=True)
    axis.plot(xs, ys, color=WATER, linewidth=22, solid_capstyle="round", zorder=0)
    for here, there in city.costs:
        (x, y), (u, v) = city.places[here], city.places[there]
        if (there, here) not in city.costs:
            arrow = FancyArrowPatch((x, y), (x + 0.6 * (u - x), y + 0.6 * (v - y)), arrowstyle="->", mutation_scale=8)
            arrow.set(color=GREY, linewidth=0.8, zorder=1)
            axis.add_patch(arrow)
        width = 0.6 + 5 * traffic[frozenset((here, there))] / most
        axis.plot([x, u], [y, v], color=GREY, linewidth=width, alpha=0.55, zorder=1, solid_capstyle="round")
    axis.set_aspect("equal")
    axis.axis("off")


def draw_way(axis: Any, city: City, way: Sequence[int], label: str, offset: float) -> None:
    """A little beside the street, so that ways on the same street are all seen."""
    name = next((name for name, text in LABELS.items() if text == label), "")
    colour, width = (COLOURS[name], 2.4) if name else ("#e8c547", 8)
    line = {"color": colour, "linewidth": width, "zorder": 5 if name else 3, "solid_capstyle": "round"}
    axis.plot([], [], label=label, **line)
    for here, there in pairwise(way):
        (x, y), (u, v) = city.places[here], city.places[there]
        style = "-" if (here, there) in city.costs else (0, (1, 1.2))
        axis.plot([x + offset, u + offset], [y + offset, v + offset], linestyle=style, **line)
