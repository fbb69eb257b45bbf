"""From completions to numbers: one row a method and cell, each metric with its 95 % interval, and BiBS against all.

{"rows": [{"task", "split", "removed", "lengths", "method", "n", metric, metric_ci, ..., "seconds",
            "length_errors" (where lengths are not known)}],
 "comparisons": [{..., "metric", "method", "other", "difference", "difference_ci", "gain"}]}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, product
from typing import Any

import numpy as np

from bibs.evaluation.bootstrap import Floats, Measure, draw_resamples, estimate_each
from bibs.evaluation.meteor import NoMeteorError, count_matches
from bibs.evaluation.methods import METHODS, OURS, base_name
from bibs.evaluation.metrics import METRICS, measure, pair_up
from bibs.evaluation.pair import KNOWN
from bibs.evaluation.runs import Progress, Run
from bibs.evaluation.tables import Row
from bibs.evaluation.tasks import Cell, share_label

LEAST_BASE = 1e-3
"""A gain over less than this says nothing: coco-caption's Bleu is never quite 0."""


@dataclass(frozen=True)
class Results:
    """What `results.json` holds. A metric that could not be had is None."""

    settings: dict[str, Any]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)  # method -> its name in tables
    more: dict[str, tuple[Row, ...]] = field(default_factory=dict)  # what else an experiment finds

    @property
    def comparisons(self) -> tuple[Row, ...]:
        return self.more.get("comparisons", ())

    def label_of(self, row: Row) -> str:
        return self.labels[row["method"]]

    def json(self) -> dict[str, Any]:
        notes, labels = list(self.notes), self.labels
        return {"settings": self.settings, "notes": notes, "labels": labels, "rows": list(self.rows), **self.more}


@dataclass(frozen=True)
class LengthErrors:
    """How far chosen lengths are from the true ones, in words: of chosen - true."""

    n: int
    within: tuple[float, float, float]  # share of blanks that are at most 0, 1, 2 words off
    mean: float
    histogram: dict[str, int]  # error -> blanks; the errors are text, as JSON wants them

    @staticmethod
    def of(chosen: Sequence[int], true: Sequence[int]) -> LengthErrors:
        errors = [a - b for a, b in zip(chosen, true, strict=True)]
        right, near, far = (sum(abs(error) <= most for error in errors) / len(errors) for most in range(3))
        counts = Counter(errors)
        histogram = {str(error): counts[error] for error in range(min(errors), max(errors) + 1)}
        return LengthErrors(len(errors), (right, near, far), sum(errors) / len(errors), histogram)


def compare_methods(run: Run, notes: Sequence[str], progress: Progress | None = None) -> Results:
    """Every metric of every method, and how far BiBS is above the others on the same sentences."""
    rows: list[Row] = []
    comparisons: list[Row] = []
    notes = [*notes, *dict.fromkeys(_skipped(cell) for cell in run.cells if cell.skipped)]
    show = progress or (lambda *_: None)
    total = len(run.cells) * len(run.methods)
    show("measuring", "METEOR", 0, total)
    meteor = None
    try:
        meteor = count_matches(
            pair
            for cell, method in product(run.cells, run.methods)
            for pair in chain(*pair_up(cell.examples, [each.fill for each in run.of(cell, method)]))
        )
    except NoMeteorError as error:
        notes.append(f"METEOR could not be computed: {error}.")
    for cell in run.cells:
        weights = draw_resamples(len(cell.examples), seed=run.settings["seed"])
        measures: dict[str, dict[str, Measure]] = {}
        for method in run.methods:
            show("measuring", f"{cell.label}, {method.label}", len(rows), total)
            found = run.of(cell, method)
            fills, scores = [each.fill for each in found], [each.score for each in found]
            measures[method.key] = measure(cell.examples, fills, scores, meteor)
            row = {**cell.where, "method": method.key, "num_beams": method.num_beams, "n": len(found)}
            row |= estimate_each(measures[method.key], weights, METRICS)
            row["seconds"] = sum(each.seconds for each in found)
            if cell.lengths != KNOWN:
                lengths = [(len(each.fill.split()), len(each.truth.split())) for each in found]
                row["length_errors"] = asdict(LengthErrors.of(*zip(*lengths, strict=True)))
            rows.append(row)
        comparisons += _compare(cell, measures, weights)
    show("measuring", "", len(rows), len(rows))
    notes += equal_time_notes(rows)
    return Results(run.settings, tuple(rows), tuple(notes), run.labels, {"comparisons": tuple(comparisons)})


def _compare(cell: Cell, measures: dict[str, dict[str, Measure]], weights: Floats) -> list[Row]:
    """BiBS against every other method, on the same sentences."""
    ours = measures.get(OURS, {})
    comparisons = []
    for other, theirs in measures.items():
        for name in ours if other != OURS else ():
            found = estimate_each({"difference": ours[name] - theirs[name]}, weights)
            base = abs(theirs[name].value)
            gain = found["difference"] / base if base > LEAST_BASE else None
            comparisons.append({**cell.where, "metric": name, "method": OURS, "other": other, **found, "gain": gain})
    return comparisons


def equal_time_notes(rows: Sequence[Row]) -> list[str]:
    """At what beam width each method that was run with several takes the time of BiBS, all cells together."""
    seconds: dict[str, Counter[int]] = {}  # method -> beam width -> seconds
    for row in rows:
        seconds.setdefault(base_name(row["method"]), Counter())[row["num_beams"]] += row["seconds"]
    ours = sum(row["seconds"] for row in rows if row["method"] == OURS)
    notes = []
    for name, widths in seconds.items():
        times = [widths[width] for width in sorted(widths)]
        if name == OURS or len(widths) < 2 or not times[0] <= ours <= times[-1]:
            continue
        width = float(np.exp(np.interp(np.log(ours), np.log(times), np.log(sorted(widths)))))
        notes.append(
            f"{METHODS[name][0]} takes the processor time of BiBS ({ours:.0f} s) with about {width:.1f} beams."
        )
    return notes


def _skipped(cell: Cell) -> str:
    counts = f"{cell.skipped} of {cell.skipped + len(cell.examples)} skipped, too short to blank."
    return ": ".join(filter(None, (share_label(cell.removed), counts)))
