"""Benchmark 4: how time grows as beams, blank width, vocabulary and examples double, with fitted exponents."""

from __future__ import annotations

import math
from functools import partial

from problems import lstm_pair, random_templates
from timing import interleaved

from bibs import bidirectional_beam_search

BASE = {"B": 5, "W": 4, "V": 2_500, "N": 16}
POINTS = 4


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """The slope of the line through (log size, log seconds)."""
    xs, ys = [math.log(size) for size in sizes], [math.log(value) for value in seconds]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return slope / sum((x - x_mean) ** 2 for x in xs)


def run() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name in BASE:
        sizes = [BASE[name] * 2**power for power in range(POINTS)]
        contenders = {}
        for size in sizes:
            at = {**BASE, name: size}
            forward, backward = lstm_pair(256, at["V"])
            contenders[str(size)] = partial(
                bidirectional_beam_search,
                forward,
                backward,
                random_templates(at["N"], at["W"], at["V"]),
                num_beams=at["B"],
                num_rounds=1,
                lookup=False,  # the same work at every size: how soon beams converge is not what is measured
                batch_size=at["N"],
            )
        seconds = interleaved(contenders, repeats=3)
        times = [seconds[str(size)] for size in sizes]
        rows.append(
            {
                "doubling": f"{name} = {sizes[0]} ... {sizes[-1]}",
                "time, relative": ", ".join(f"{value / times[0]:.2f}" for value in times),
                "fitted exponent": round(exponent(sizes, times), 2),
            }
        )
    return rows
