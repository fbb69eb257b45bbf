"""Three panels: how much is right by length of the gap, by place in the gap, and by what the fills claim.

python examples/dna/measure.py --output results.json && python examples/dna/picture.py results.json dna.png
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from measure import EVERYTHING, add_data, cut_gaps, genomes

from bibs.dna import GapFiller, count_references

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.ticker import ScalarFormatter

COLOURS = {
    "bibs": "#0b6e99",
    "rerank-sum": "#009e73",
    "forward": "#d55e00",
    "backward": "#9a5fb5",
    "anchors": "#7b8794",
}
LABELS = {"bibs": "BiBS", "rerank-sum": "both, re-ranked", "forward": "left to right", "backward": "right to left"}
LABELS |= {"anchors": "copy between anchors"}
BINS = 20


def draw_lengths(axis: Any, rows: list[dict[str, Any]]) -> None:
    for name, label in LABELS.items():
        mine = [row for row in rows if row["method"] == name]
        lengths = [row["length"] for row in mine]
        axis.plot(lengths, [row["identity"] for row in mine], "o-", color=COLOURS[name], label=label, markersize=4)
        axis.fill_between(
            lengths, *zip(*(row["identity_ci"] for row in mine), strict=True), color=COLOURS[name], alpha=0.1
        )
    axis.set(xscale="log", xlabel="letters in the gap", ylabel="share of letters that are right", xticks=lengths)
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.minorticks_off()
    axis.legend(frameon=False, fontsize=8)
    axis.set_title("by length", loc="left")


def draw_places(axis: Any, arguments: argparse.Namespace) -> None:
    """Each one-way search is right near its own side; the further it goes, the less."""
    genome, references = genomes(arguments)
    pair = count_references(references)
    gaps, truths = cut_gaps(genome, arguments.length, arguments.gaps, seed=0)
    for name in ("forward", "backward", "bibs"):
        fill = GapFiller(*pair, replace(EVERYTHING, method=name))
        right = [
            [a == b for a, b in zip(found.letters, truth, strict=True)]
            for found, truth in zip(fill(gaps), truths, strict=True)
        ]
        shares = np.mean(right, axis=0).reshape(BINS, -1).mean(1)
        places = (np.arange(BINS) + 0.5) * arguments.length / BINS
        axis.plot(places, shares, "-", color=COLOURS[name], linewidth=2, label=LABELS[name])
    axis.set(xlabel=f"place in gaps of {arguments.length} letters", ylim=axis.get_ylim())
    axis.set_title("by place", loc="left")


def draw_claims(axis: Any, bins: list[dict[str, float]]) -> None:
    axis.plot([0, 1], [0, 1], color="#b8c0c8", linewidth=1)
    claimed, right = ([each[name] for each in bins] for name in ("claimed", "right"))
    axis.errorbar(claimed, right, [each["margin"] for each in bins], fmt="o", color=COLOURS["bibs"], markersize=5)
    for each in bins:
        axis.annotate(
            f"{each['fills']:,}", (each["claimed"], each["right"]), (6, -9), textcoords="offset points", fontsize=7
        )
    axis.set(xlabel="what fills claim: the probability that all is right", ylabel="share of these that are all right")
    axis.set_title("by claim", loc="left")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data(parser)
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--length", type=int, default=200, help="of the gaps of the second panel")
    parser.add_argument("--gaps", type=int, default=100)
    arguments = parser.parse_args()
    results = json.loads(arguments.results.read_text(encoding="utf-8"))
    with pyplot.rc_context({"axes.spines.top": False, "axes.spines.right": False, "font.size": 9}):
        figure, axes = pyplot.subplots(1, 3, figsize=(12.5, 3.9), layout="constrained")
        draw_lengths(axes[0], results["rows"])
        draw_places(axes[1], arguments)
        draw_claims(axes[2], results["calibration"])
        figure.savefig(arguments.picture, dpi=110)


if __name__ == "__main__":
    main()
