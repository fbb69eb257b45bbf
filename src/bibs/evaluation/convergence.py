"""How fast Bidirectional Beam Search settles: the joint log probability and the share of settled examples by pass.

The joint is S / (2 (T + 1)), the mean over both models and over the T words and the sentence end, after the first,
plain pass (the paper's "Init") and after every pass that follows; the paper gives -2.47 and -2.11 after one round.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bibs.data import Features
from bibs.evaluation.bootstrap import draw_resamples, estimate
from bibs.evaluation.captions import CaptionSettings, caption_cells, fingerprint_examples, fingerprint_features
from bibs.evaluation.methods import OURS, Method, PairFiller, fingerprint_model, needed_features
from bibs.evaluation.metrics import mean_measure
from bibs.evaluation.runs import Cell, Progress, Run
from bibs.evaluation.tasks import Example, ImageId
from bibs.models.directory import load_models
from bibs.search import Fill, TracedPass


@dataclass(frozen=True)
class Trace:
    """One example, pass by pass; a search that settled has no further passes."""

    cell: str
    method: str
    key: ImageId
    before: str
    after: str
    truth: str
    fills: list[str]  # the top fill of each pass
    scores: list[float]  # its S
    settled: bool  # the last pass found what the one before it in its direction had found
    answer: str
    score: float  # S of the answer: the best fill of any beam of any pass
    truth_score: float
    truth_known: bool  # every word of the truth is in the vocabulary
    seconds: float

    @property
    def scale(self) -> float:
        """2 (T + 1): what makes the scores of sentences of several lengths comparable."""
        return 2 * (len(f"{self.before} {self.truth} {self.after}".split()) + 1)


@dataclass(frozen=True)
class Convergence:
    run: Run[Trace]
    cells: tuple[Cell, ...]
    method: Method
    settings: dict[str, Any]
    rows: tuple[dict[str, Any], ...]
    answers: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]

    def json(self) -> dict[str, Any]:
        return {
            "settings": self.settings,
            "notes": list(self.notes),
            "rows": list(self.rows),
            "answers": list(self.answers),
        }


def evaluate_convergence(
    *,
    data: Path,
    model: Path,
    output: Path,
    features: Features | None = None,
    settings: CaptionSettings,
    workers: int = 1,
    progress: Progress | None = None,
) -> Convergence:
    """Search with a trace and follow every pass. `settings.methods` is not looked at: only BiBS has passes."""
    cells, notes = caption_cells(data, settings)
    if features is not None:
        features = needed_features(features, [example for cell in cells for example in cell.examples])
    forward, backward, vocabulary = load_models(model)
    method = Method(OURS, settings.num_beams)
    told = {
        **asdict(settings),
        "task": "convergence",
        "methods": [method.key],
        "data": fingerprint_examples(cells),
        "features": None if features is None else fingerprint_features(features, cells),
        "model": fingerprint_model(model),
    }
    run = Run(output, told, Trace)
    filler = PairFiller(forward, backward, vocabulary, features, settings.num_rounds, settings.seed, start="backward")
    run.work_through(cells, [method], Tracing(filler), workers=workers, progress=progress)
    num_passes = 2 * settings.num_rounds + 1
    rows = [row for cell in cells for row in pass_rows(cell, run.of(cell, method), num_passes, settings.seed)]
    answers = [_answers(cell, run.of(cell, method)) for cell in cells]
    return Convergence(run, tuple(cells), method, told, tuple(rows), tuple(answers), tuple(notes))


@dataclass(frozen=True)
class Tracing:
    """Work that searches a slice with a trace."""

    filler: PairFiller

    def __call__(self, cell: Cell, method: Method, examples: Sequence[Example]) -> list[Trace]:
        began = time.process_time()
        found = self.filler.search(method, examples, trace=True)
        seconds = (time.process_time() - began) / len(examples)
        truths = self.filler.score(examples, [example.blank for example in examples])
        return [
            _trace(self.filler, cell, method, example, fills[0], truth.score, seconds)
            for example, fills, truth in zip(examples, found, truths, strict=True)
        ]


def _trace(
    filler: PairFiller, cell: Cell, method: Method, example: Example, fill: Fill, truth_score: float, seconds: float
) -> Trace:
    return Trace(
        cell=cell.name,
        method=method.key,
        key=example.key,
        before=" ".join(example.before),
        after=" ".join(example.after),
        truth=" ".join(example.blank),
        fills=[" ".join(filler.words_in_blank(example, each.tokens)) for each in fill.trace],
        scores=[each.score for each in fill.trace],
        settled=_settled(fill.trace),
        answer=" ".join(filler.words_in_blank(example, fill.tokens)),
        score=fill.score,
        truth_score=truth_score,
        truth_known=all(word in filler.vocabulary for word in example.blank),
        seconds=seconds,
    )


def _settled(passes: Sequence[TracedPass]) -> bool:
    if len(passes) < 3:
        return False
    last, before = ([[tokens for tokens, _ in slot] for slot in each.frontiers] for each in (passes[-1], passes[-3]))
    return last == before and passes[-1].tokens == passes[-3].tokens


def pass_rows(cell: Cell, traces: Sequence[Trace], num_passes: int, seed: int = 0) -> list[dict[str, Any]]:
    """After each pass: the mean joint of its top fill, of the best top fill so far, and the share that has settled."""
    weights = draw_resamples(len(traces), seed=seed)
    tops = np.array([_held(trace.scores, num_passes) for trace in traces])  # (n, passes)
    tops /= np.array([trace.scale for trace in traces])[:, None]
    best = np.maximum.accumulate(tops, axis=1)
    rows = []
    for number in range(num_passes):
        settled = [trace.settled and len(trace.scores) <= number + 1 for trace in traces]
        row: dict[str, Any] = {
            "task": "convergence",
            "split": cell.split,
            "removed": cell.removed,
            "lengths": cell.lengths,
            "method": OURS,
            "n": len(traces),
            "pass": number,
            "rounds": number / 2,
        }
        for name, values in (("top", tops[:, number]), ("best", best[:, number]), ("settled", settled)):
            found = estimate(mean_measure(np.asarray(values, dtype=np.float64)), weights)
            row |= {name: found.value, f"{name}_ci": list(found.interval)}
        rows.append(row)
    return rows


def _held(scores: Sequence[float], num_passes: int) -> list[float]:
    return [scores[min(number, len(scores) - 1)] for number in range(num_passes)]


def _answers(cell: Cell, traces: Sequence[Trace]) -> dict[str, Any]:
    """What was returned in the end, and how often people's own words would have scored higher: the search's misses."""
    known = [trace for trace in traces if trace.truth_known]
    missed = [trace for trace in known if trace.truth_score > trace.score + 1e-3]
    return {
        "removed": cell.removed,
        "n": len(traces),
        "joint": float(np.mean([trace.score / trace.scale for trace in traces])),
        "truth_joint": float(np.mean([trace.truth_score / trace.scale for trace in known])) if known else None,
        "truth_above": len(missed) / len(known) if known else None,
        "rounds_to_settle": float(np.mean([(len(trace.scores) - 1) / 2 for trace in traces])),
        "seconds": sum(trace.seconds for trace in traces),
    }
