"""From completions to numbers: one row a method and cell, each metric with its 95 % interval, and BiBS against all.

{"rows": [{"task", "split", "removed", "lengths", "method", "n", metric, metric_ci, ..., "seconds",
            "length_errors" (where lengths are not known)}],
 "comparisons": [{..., "metric", "method", "other", "difference", "difference_ci", "gain"}]}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import numpy as np

from bibs.evaluation.bootstrap import NUM_RESAMPLES, Floats, draw_resamples, estimate, estimate_difference
from bibs.evaluation.completions import Completion
from bibs.evaluation.length_errors import LengthErrors
from bibs.evaluation.meteor import Meteor, NoMeteorError
from bibs.evaluation.methods import KNOWN, LABELS, OURS, Method
from bibs.evaluation.metrics import METRICS, Measure, measure
from bibs.evaluation.runs import Cell, Progress, Run

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Results:
    """What `results.json` holds. A metric that could not be had is None."""

    settings: dict[str, Any]
    rows: tuple[Row, ...]
    comparisons: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)  # method -> its name in tables

    def json(self) -> dict[str, Any]:
        return {
            "settings": self.settings,
            "notes": list(self.notes),
            "labels": self.labels,
            "rows": list(self.rows),
            "comparisons": list(self.comparisons),
        }


def compute_results(
    run: Run[Completion],
    cells: Sequence[Cell],
    methods: Sequence[Method],
    settings: dict[str, Any],
    *,
    metrics: Sequence[str] = METRICS,
    notes: Sequence[str] = (),
    seed: int = 0,
    num_resamples: int = NUM_RESAMPLES,
    progress: Progress | None = None,
) -> Results:
    rows: list[Row] = []
    comparisons: list[Row] = []
    notes = [*notes, *(_skipped(cell) for cell in cells if cell.skipped)]
    try:
        meteor = Meteor() if "METEOR" in metrics else None
    except NoMeteorError as error:
        meteor = None
        notes.append(f"METEOR could not be computed: {error}.")
    try:
        for cell in cells:
            weights = draw_resamples(len(cell.examples), num_resamples=num_resamples, seed=seed)
            measures: dict[str, dict[str, Measure]] = {}
            for method in methods:
                if progress:
                    progress("measuring", f"{cell.name} {method.label}", len(rows), len(cells) * len(methods))
                measures[method.key] = _measure(run, cell, method, meteor)
                rows.append(_row(run, cell, method, measures[method.key], weights, metrics))
            comparisons += _compare(cell, measures, weights, metrics)
    finally:
        if meteor is not None:
            meteor.close()
    if progress:
        progress("measuring", "", len(rows), len(rows))
    notes += equal_time_notes(rows)
    return Results(settings, tuple(rows), tuple(comparisons), tuple(notes), {m.key: m.label for m in methods})


def _measure(run: Run[Completion], cell: Cell, method: Method, meteor: Meteor | None) -> dict[str, Measure]:
    completions = run.of(cell, method)
    fills = [completion.fill.split() for completion in completions]
    return measure(cell.examples, fills, [completion.score for completion in completions], meteor=meteor)


def _row(
    run: Run[Completion],
    cell: Cell,
    method: Method,
    measures: dict[str, Measure],
    weights: Floats,
    metrics: Sequence[str],
) -> Row:
    row: Row = {**_where(cell), "method": method.key, "num_beams": method.num_beams, "n": len(cell.examples)}
    for name in metrics:
        found = estimate(measures[name], weights) if name in measures else None
        row[name] = None if found is None else found.value
        row[f"{name}_ci"] = None if found is None else list(found.interval)
    completions = run.of(cell, method)
    row["seconds"] = sum(completion.seconds for completion in completions)
    if cell.lengths != KNOWN:
        chosen, true = ([len(text.split()) for text in texts] for texts in _texts(completions))
        row["length_errors"] = asdict(LengthErrors.of(chosen, true))
    return row


def _texts(completions: Sequence[Completion]) -> tuple[list[str], list[str]]:
    """What was filled in, and what people wrote."""
    return [each.fill for each in completions], [each.truth for each in completions]


def _compare(cell: Cell, measures: dict[str, dict[str, Measure]], weights: Floats, metrics: Sequence[str]) -> list[Row]:
    """BiBS against every other method, on the same sentences."""
    if OURS not in measures:
        return []
    comparisons = []
    for other, theirs in measures.items():
        for name in metrics if other != OURS else ():
            if name in theirs and name in measures[OURS]:
                found = estimate_difference(measures[OURS][name], theirs[name], weights)
                comparisons.append(
                    {
                        **_where(cell),
                        "metric": name,
                        "method": OURS,
                        "other": other,
                        "difference": found.value,
                        "difference_ci": list(found.interval),
                        "gain": found.value / abs(theirs[name].value) if theirs[name].value else None,
                    }
                )
    return comparisons


def equal_time_notes(rows: Sequence[Row]) -> list[str]:
    """At what beam width each method that was run with several takes the time of BiBS, all cells together."""
    seconds: dict[str, dict[int, float]] = {}  # method -> beam width -> seconds
    for row in rows:
        widths = seconds.setdefault(row["method"].partition("@")[0], {})
        widths[row["num_beams"]] = widths.get(row["num_beams"], 0.0) + row["seconds"]
    ours = sum(row["seconds"] for row in rows if row["method"] == OURS)
    notes = []
    for name, widths in seconds.items():
        times = [widths[width] for width in sorted(widths)]
        if name == OURS or len(widths) < 2 or not times[0] <= ours <= times[-1]:
            continue
        width = float(np.exp(np.interp(np.log(ours), np.log(times), np.log(sorted(widths)))))
        notes.append(f"{LABELS[name]} takes the processor time of BiBS ({ours:.0f} s) with about {width:.1f} beams.")
    return notes


def _where(cell: Cell) -> Row:
    return {"task": cell.task, "split": cell.split, "removed": cell.removed, "lengths": cell.lengths}


def _skipped(cell: Cell) -> str:
    return f"{cell.name}: {cell.skipped} of {cell.skipped + len(cell.examples)} skipped, too short to blank."
