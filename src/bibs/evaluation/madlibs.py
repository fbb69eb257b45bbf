"""Visual Madlibs (the paper's Table 2): the generating methods, and retrieval by nCCA with or without the boxes.

Bleu is given of the filled sentence and of the blank alone: the paper's magnitudes fit the blank.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bibs.data import Features, Madlib, read_madlibs
from bibs.evaluation.captions import fingerprint_examples, fingerprint_features
from bibs.evaluation.completions import Completing, Completion
from bibs.evaluation.methods import (
    LENGTHS,
    Answer,
    Filler,
    Fillers,
    Method,
    PairFiller,
    fingerprint_model,
    needed_features,
    parse_methods,
)
from bibs.evaluation.metrics import measure_sentences
from bibs.evaluation.nade import NadeFiller
from bibs.evaluation.ncca import Retrieval
from bibs.evaluation.outputs import MADLIBS, Finished, require_extras, write_outputs
from bibs.evaluation.results import compute_results
from bibs.evaluation.runs import Cell, Progress, Run
from bibs.evaluation.tasks import Example, ImageId, Words, madlibs_examples, split_by_picture
from bibs.models.directory import load_models
from bibs.models.storage import write_atomically

DIMENSIONS = (64, 256, 1024)
REGULARISATIONS = (0.1, 1.0)
POWERS = (1.0, 2.0, 4.0)
"""What nCCA may choose from on the validation split."""


@dataclass(frozen=True)
class MadlibsSettings:
    type: int = 12
    split: str = "test"
    lengths: tuple[str, ...] = ("known",)
    methods: str = "all"
    limit: int | None = None
    seed: int = 0
    num_beams: int = 5
    num_rounds: int = 4

    def __post_init__(self) -> None:
        for name in self.lengths or ("",):
            if name not in LENGTHS:
                raise ValueError(f"`lengths` must be among {', '.join(LENGTHS)}, but hold {name!r}")
        if self.num_beams < 1:
            raise ValueError(f"`num_beams` must be at least 1, but is {self.num_beams}")


@dataclass(frozen=True)
class RetrievalFiller:
    """Fills with the training answer nearest to the picture; the pair says what its joint score is."""

    answers: Mapping[ImageId, Words]  # by the key of the example
    pair: PairFiller
    choice: str  # what was chosen on the validation split

    def __call__(self, method: Method, examples: Sequence[Example], lengths: str) -> list[Answer]:
        return self.pair.score(examples, [self.answers[example.key] for example in examples])


@dataclass(frozen=True)
class Pictures:
    """What retrieval sees of an example: its whole picture, or the crop that holds person and object."""

    features: Features
    by_box: bool

    def vectors(self, examples: Sequence[Example]) -> NDArray[np.float64]:  # (n, size)
        keys = [example.key if self.by_box else example.image_id for example in examples]
        if missing := self.features.missing(keys):
            name = "box_features" if self.by_box else "features"
            raise ValueError(f"`{name}` must hold every picture, but {len(missing)} have none: {missing[0]!r}, ...")
        return self.features.rows(keys).astype(np.float64)


def retrieve(
    pictures: Pictures, madlibs: Sequence[Madlib], examples: Sequence[Example], pair: PairFiller
) -> RetrievalFiller:
    """Learn nCCA from the training split; its settings by Bleu-1 of the blanks of val."""
    train, val = (madlibs_examples(madlibs, split=split).examples for split in ("train", "val"))
    vectors, wanted = pictures.vectors(train), [example.blank for example in train]
    aims, targets = pictures.vectors(val), [" ".join(example.blank) for example in val]
    tried: list[tuple[float, Retrieval, str]] = []
    for regularisation, power in product(REGULARISATIONS, POWERS):
        widest = Retrieval.fit(
            vectors, wanted, num_dimensions=max(DIMENSIONS), regularisation=regularisation, power=power
        )
        for num_dimensions in DIMENSIONS:
            retrieval = widest.narrowed(num_dimensions)
            found = [" ".join(answer) for answer in retrieval.nearest(aims)]
            bleu = measure_sentences(found, targets)["Bleu_1"].value
            choice = f"{num_dimensions} dimensions, regularisation {regularisation}, power {power}, chosen on val"
            tried.append((bleu, retrieval, choice))
    _, retrieval, choice = max(tried, key=lambda each: each[0])
    answers = retrieval.nearest(pictures.vectors(examples))
    keys = [example.key for example in examples]
    return RetrievalFiller(dict(zip(keys, answers, strict=True)), pair, choice)


def evaluate_madlibs(
    *,
    data: Path,
    model: Path,
    output: Path,
    features: Features | None = None,
    box_features: Features | None = None,
    nade: Path | None = None,
    images: Path | None = None,
    settings: MadlibsSettings,
    workers: int = 1,
    progress: Progress | None = None,
) -> Finished:
    """Fill, retrieve, measure, compare, and write it all to `output`. nCCA needs `features`, its box form the crops."""
    require_extras()
    stores = {name: store for name, store in (("ncca", features), ("ncca-box", box_features)) if store is not None}
    more = (*(("nade",) if nade else ()), *stores)
    methods = parse_methods(settings.methods, num_beams=settings.num_beams, more=more)
    madlibs = split_by_picture(read_madlibs(data, type=settings.type))
    cut = madlibs_examples(madlibs, split=settings.split, seed=settings.seed, limit=settings.limit)
    cells = [
        Cell(f"madlibs-{settings.type}", settings.split, None, lengths, cut.examples, cut.skipped)
        for lengths in settings.lengths
    ]
    if features is not None:
        features = needed_features(features, cut.examples)
    pair = PairFiller(*load_models(model), features, settings.num_rounds, settings.seed)
    missing = NadeFiller.load(nade, pair) if nade else None
    told = {
        "task": "madlibs",
        **asdict(settings),
        "methods": [method.key for method in methods],
        "data": fingerprint_examples(cells),
        "features": None if features is None else fingerprint_features(features, cells),
        "box_features": box_features is not None,
        "model": fingerprint_model(model),
        "nade": missing.fingerprint() if missing else None,
    }
    run = Run(output, told, Completion)
    wanted = {name: store for name, store in stores.items() if any(method.name == name for method in methods)}
    retrievers = {
        name: retrieve(Pictures(store, name == "ncca-box"), madlibs, cut.examples, pair)
        for name, store in wanted.items()
    }
    notes = [f"{name}: {retriever.choice}." for name, retriever in retrievers.items()]
    notes.append(_seen_in_training(madlibs, cut.examples))
    others: dict[str, Filler] = {**retrievers, **({"nade": missing} if missing else {})}
    run.work_through(cells, methods, Completing(Fillers(pair, others)), workers=workers, progress=progress)
    results = compute_results(run, cells, methods, told, notes=notes, seed=settings.seed, progress=progress)
    finished = Finished(run, tuple(cells), methods, results)
    write_outputs(finished, MADLIBS, images=images)
    return finished


def _seen_in_training(madlibs: Sequence[Madlib], examples: Sequence[Example]) -> str:
    seen = {example.blank for example in madlibs_examples(madlibs, split="train").examples}
    known = sum(example.blank in seen for example in examples)
    return f"{known} of the {len(examples)} answers are also the answer of a Madlib of train."


def write_captions(data: Path, output: Path, *, type: int) -> dict[str, int]:
    """Write Madlibs as whole sentences that `bibs train` reads; how many there are of each split."""
    lines, counts = [], Counter[str]()
    for madlib in split_by_picture(read_madlibs(data, type=type)):
        counts[madlib.split] += 1
        captions = [f"{madlib.left} {answer} {madlib.right}".strip() for answer in madlib.answers]
        entry = {"image_id": madlib.image_id, "split": madlib.split, "captions": captions}
        lines.append(json.dumps(entry, ensure_ascii=False) + "\n")
    write_atomically(output, "".join(lines).encode())
    return dict(counts)
