"""How different the several fills of one blank are, and what that costs: distinct words against quality, by penalty.

The same blanks are filled M times each without a penalty, with every penalty, and without one but with M times the
beams, which costs about as much as the M searches of a diverse one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bibs.data import Features
from bibs.evaluation.bootstrap import draw_resamples, estimate
from bibs.evaluation.captions import CaptionSettings, caption_cells, fingerprint_examples, fingerprint_features
from bibs.evaluation.methods import OURS, Method, PairFiller, fingerprint_model, needed_features
from bibs.evaluation.metrics import Measure, mean_measure, ratio_measure
from bibs.evaluation.runs import Cell, Progress, Run
from bibs.evaluation.tasks import Example, ImageId
from bibs.methods import fill_templates
from bibs.models.directory import load_models

MEASURES = ("distinct", "times", "best", "mean", "first_accuracy", "oracle_accuracy", "found")
"""Distinct words in the M blanks of a sentence, and how many times those without a penalty; S of the best fill and of
the mean; the share of the true words at their places in the first fill and in the nearest of all; the share of the true
words that stand in any fill."""


@dataclass(frozen=True)
class Diverse(Method):
    """BiBS with a diversity penalty."""

    penalty: float = 0.0

    @property
    def key(self) -> str:
        return super().key + (f"+{self.penalty:g}" if self.penalty else "")

    @property
    def label(self) -> str:
        return f"penalty {self.penalty:g}" + ("" if self.plain else f", B = {self.num_beams}")


@dataclass(frozen=True)
class Several:
    """All fills of one blank, best first."""

    cell: str
    method: str
    key: ImageId
    before: str
    after: str
    truth: str
    fills: list[str]
    scores: list[float]
    seconds: float

    @property
    def distinct(self) -> int:
        return len({word for fill in self.fills for word in fill.split()})

    @property
    def accuracies(self) -> list[float]:
        """The share of the true words that each fill has in their places."""
        truth = self.truth.split()
        return [sum(a == b for a, b in zip(fill.split(), truth, strict=True)) / len(truth) for fill in self.fills]

    @property
    def found(self) -> float:
        truth = set(self.truth.split())
        return len(truth & {word for fill in self.fills for word in fill.split()}) / len(truth)


@dataclass(frozen=True)
class Diversity:
    run: Run[Several]
    cells: tuple[Cell, ...]
    methods: tuple[Diverse, ...]
    settings: dict[str, Any]
    rows: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]

    def json(self) -> dict[str, Any]:
        return {"settings": self.settings, "notes": list(self.notes), "rows": list(self.rows)}


def evaluate_diversity(
    *,
    data: Path,
    model: Path,
    output: Path,
    penalties: Sequence[float],
    num_return_sequences: int = 5,
    features: Features | None = None,
    settings: CaptionSettings,
    workers: int = 1,
    progress: Progress | None = None,
) -> Diversity:
    """Fill every blank several times, with each penalty. `settings.methods` is not looked at: this is BiBS."""
    if not penalties or len(set(penalties)) < len(penalties) or min(penalties) < 0:
        raise ValueError(f"`penalties` must be distinct numbers of at least 0, but are {list(penalties)}")
    if num_return_sequences < 2:
        raise ValueError(f"`num_return_sequences` must be at least 2, but is {num_return_sequences}")
    cells, notes = caption_cells(data, settings)
    if features is not None:
        features = needed_features(features, [example for cell in cells for example in cell.examples])
    forward, backward, vocabulary = load_models(model)
    wide = Diverse(OURS, settings.num_beams * num_return_sequences, plain=False)
    plain, *rest = (Diverse(OURS, settings.num_beams, penalty=penalty) for penalty in sorted({0.0, *penalties}))
    methods = (plain, wide, *rest)
    told = {
        **asdict(settings),
        "task": "diversity",
        "methods": [method.key for method in methods],
        "num_return_sequences": num_return_sequences,
        "data": fingerprint_examples(cells),
        "features": None if features is None else fingerprint_features(features, cells),
        "model": fingerprint_model(model),
    }
    run = Run(output, told, Several)
    filler = PairFiller(forward, backward, vocabulary, features, settings.num_rounds, settings.seed)
    run.work_through(cells, methods, FillingSeveral(filler, num_return_sequences), workers=workers, progress=progress)
    rows = [row for cell in cells for row in diversity_rows(cell, run, methods, settings.seed)]
    return Diversity(run, tuple(cells), methods, told, tuple(rows), tuple(notes))


@dataclass(frozen=True)
class FillingSeveral:
    """Work that fills each blank of a slice several times."""

    filler: PairFiller
    num_return_sequences: int

    def __call__(self, cell: Cell, method: Method, examples: Sequence[Example]) -> list[Several]:
        assert isinstance(method, Diverse)
        began = time.process_time()
        found = fill_templates(
            self.filler.forward,
            self.filler.backward,
            self.filler.templates(examples),
            method=method.name,
            conditions=self.filler.conditions(examples),
            banned=self.filler.banned,
            num_beams=method.num_beams,
            num_rounds=self.filler.num_rounds,
            num_return_sequences=self.num_return_sequences,
            diversity_penalty=method.penalty,
        )
        seconds = (time.process_time() - began) / len(examples)
        return [
            Several(
                cell=cell.name,
                method=method.key,
                key=example.key,
                before=" ".join(example.before),
                after=" ".join(example.after),
                truth=" ".join(example.blank),
                fills=[" ".join(self.filler.words_in_blank(example, fill.tokens)) for fill in fills],
                scores=[fill.score for fill in fills],
                seconds=seconds,
            )
            for example, fills in zip(examples, found, strict=True)
        ]


def diversity_rows(cell: Cell, run: Run[Several], methods: Sequence[Diverse], seed: int = 0) -> list[dict[str, Any]]:
    """One row a penalty, each number with its 95 % interval. The first method is the one without a penalty."""
    weights = draw_resamples(len(cell.examples), seed=seed)
    plain = [several.distinct for several in run.of(cell, methods[0])]
    rows = []
    for method in methods:
        records = run.of(cell, method)
        row: dict[str, Any] = {
            "task": "diversity",
            "split": cell.split,
            "removed": cell.removed,
            "method": method.key,
            "penalty": method.penalty,
            "num_beams": method.num_beams,
            "n": len(records),
        }
        for name, measure in _measures(records, plain).items():
            found = estimate(measure, weights)
            row |= {name: found.value, f"{name}_ci": list(found.interval)}
        rows.append({**row, "seconds": sum(several.seconds for several in records)})
    return rows


def _measures(records: Sequence[Several], plain: Sequence[int]) -> dict[str, Measure]:
    distinct = [several.distinct for several in records]
    return {
        "distinct": mean_measure(distinct),
        "times": ratio_measure(distinct, plain),
        "best": mean_measure([max(several.scores) for several in records]),
        "mean": mean_measure([sum(several.scores) / len(several.scores) for several in records]),
        "first_accuracy": mean_measure([several.accuracies[0] for several in records]),
        "oracle_accuracy": mean_measure([max(several.accuracies) for several in records]),
        "found": mean_measure([several.found for several in records]),
    }
