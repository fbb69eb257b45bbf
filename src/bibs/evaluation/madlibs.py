"""Visual Madlibs (the paper's Table 2): the generating methods, and retrieval by nCCA with or without the boxes.

Bleu is given of the filled sentence and of the blank alone: the paper's magnitudes fit the blank.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bibs.data import Features, Madlib, read_madlibs
from bibs.evaluation.captions import fingerprint_examples, fingerprint_features
from bibs.evaluation.completions import Completion, completing
from bibs.evaluation.methods import (
    LENGTHS,
    Answer,
    Fillers,
    Method,
    PairFiller,
    check_features,
    fingerprint_model,
    load_models,
    parse_methods,
)
from bibs.evaluation.metrics import measure_sentences
from bibs.evaluation.ncca import Retrieval
from bibs.evaluation.outputs import MADLIBS, Finished, write_outputs
from bibs.evaluation.results import compute_results
from bibs.evaluation.runs import Cell, Progress, Run
from bibs.evaluation.tasks import Example, madlibs_examples, split_by_picture
from bibs.models.storage import write_atomically

DIMENSIONS = (16, 64, 256)
REGULARISATIONS = (0.01, 0.1, 1.0)
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

    retrieval: Retrieval
    pictures: Features
    by_box: bool  # the pictures are crops, one a Madlib, and go by its id
    pair: PairFiller
    choice: str  # what was chosen on the validation split

    @classmethod
    def fit(
        cls,
        train: Sequence[Example],
        val: Sequence[Example],
        pictures: Features,
        pair: PairFiller,
        *,
        by_box: bool = False,
    ) -> RetrievalFiller:
        """Learn from the training split; dimensions and regularisation by Bleu-1 of the blanks of `val`."""
        for examples in (train, val):
            _check(pictures, examples, by_box)
        vectors, wanted = _vectors(pictures, train, by_box), [example.blank for example in train]
        aims, targets = _vectors(pictures, val, by_box), [" ".join(example.blank) for example in val]
        tried: list[tuple[float, Retrieval, str]] = []
        for regularisation in REGULARISATIONS:
            widest = Retrieval.fit(vectors, wanted, num_dimensions=max(DIMENSIONS), regularisation=regularisation)
            for num_dimensions in DIMENSIONS:
                retrieval = widest.narrowed(num_dimensions)
                found = [" ".join(answer) for answer in retrieval.nearest(aims)]
                bleu = measure_sentences(found, targets)["Bleu_1"].value
                choice = f"{num_dimensions} dimensions, regularisation {regularisation}, chosen on val"
                tried.append((bleu, retrieval, choice))
        _, retrieval, choice = max(tried, key=lambda each: each[0])
        return cls(retrieval, pictures, by_box, pair, choice)

    def __call__(self, method: Method, examples: Sequence[Example], lengths: str) -> list[Answer]:
        return self.pair.score(examples, self.retrieval.nearest(_vectors(self.pictures, examples, self.by_box)))


def _vectors(pictures: Features, examples: Sequence[Example], by_box: bool) -> NDArray[np.float64]:
    return pictures.rows([example.key if by_box else example.image_id for example in examples]).astype(np.float64)


def _check(pictures: Features, examples: Sequence[Example], by_box: bool) -> None:
    name = "box_features" if by_box else "features"
    if missing := pictures.missing([example.key if by_box else example.image_id for example in examples]):
        raise ValueError(f"`{name}` must hold every picture, but {len(missing)} have none: {missing[0]!r}, ...")


def evaluate_madlibs(
    *,
    data: Path,
    model: Path,
    output: Path,
    features: Features | None = None,
    box_features: Features | None = None,
    images: Path | None = None,
    settings: MadlibsSettings,
    progress: Progress | None = None,
) -> Finished:
    """Fill, retrieve, measure, compare, and write it all to `output`. nCCA needs `features`, its box form the crops."""
    stores = {name: store for name, store in (("ncca", features), ("ncca-box", box_features)) if store is not None}
    methods = parse_methods(settings.methods, num_beams=settings.num_beams, more=tuple(stores))
    madlibs = split_by_picture(read_madlibs(data, type=settings.type))
    cut = madlibs_examples(madlibs, split=settings.split, seed=settings.seed, limit=settings.limit)
    cells = [
        Cell(f"madlibs-{settings.type}", settings.split, None, lengths, cut.examples, cut.skipped)
        for lengths in settings.lengths
    ]
    if features is not None:
        check_features(features, cut.examples)
    pair = PairFiller(*load_models(model), features, settings.num_rounds, settings.seed)
    told = {
        "task": "madlibs",
        **asdict(settings),
        "methods": [method.key for method in methods],
        "data": fingerprint_examples(cells),
        "features": None if features is None else fingerprint_features(features, cells),
        "box_features": box_features is not None,
        "model": fingerprint_model(model),
    }
    run = Run(output, told, Completion)
    wanted = {name: store for name, store in stores.items() if any(method.name == name for method in methods)}
    retrievers = {name: _retriever(name, store, madlibs, pair) for name, store in wanted.items()}
    notes = [f"{name}: {retriever.choice}." for name, retriever in retrievers.items()]
    notes.append(_seen_in_training(madlibs, cut.examples))
    run.work_through(cells, methods, completing(Fillers(pair, retrievers)), progress=progress)
    results = compute_results(run, cells, methods, told, notes=notes, seed=settings.seed, progress=progress)
    finished = Finished(run, tuple(cells), methods, results)
    write_outputs(finished, MADLIBS, images=images)
    return finished


def _retriever(name: str, pictures: Features, madlibs: Sequence[Madlib], pair: PairFiller) -> RetrievalFiller:
    by_box = name == "ncca-box"
    train, val = (madlibs_examples(madlibs, split=split).examples for split in ("train", "val"))
    return RetrievalFiller.fit(train, val, pictures, pair, by_box=by_box)


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
