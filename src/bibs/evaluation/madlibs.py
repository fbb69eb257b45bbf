"""Visual Madlibs (the paper's Table 2): the generating methods, and retrieval by nCCA with or without the boxes.

Bleu is given of the filled sentence and of the blank alone: the paper's magnitudes fit the blank.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Unpack

from bibs.data import Features, Madlib, read_madlibs
from bibs.evaluation.comparison import comparison_report
from bibs.evaluation.experiment import Finished, How, Settings, fill_cells, finish, open_pair
from bibs.evaluation.methods import Filler, NadeSamples, base_name, parse_methods
from bibs.evaluation.metrics import measure_sentences
from bibs.evaluation.pair import Answer, Pair
from bibs.evaluation.results import compare_methods
from bibs.evaluation.tasks import Cell, Example, ImageId, Words, madlibs_examples, split_by_picture
from bibs.infiller import Infiller
from bibs.models.ncca import BagOfWords, JointSpace
from bibs.models.storage import write_atomically

DIMENSIONS = (64, 256, 1024)
REGULARISATIONS = (0.1, 1.0)
POWERS = (1.0, 2.0, 4.0)
"""What nCCA may choose from on the validation split."""

LEAD = "Each method fills the blank of a sentence about the picture; the answer that people gave is the one reference."
RETRIEVAL = " nCCA retrieves an answer of the training set instead of generating one."


@dataclass(frozen=True)
class MadlibsSettings(Settings):
    type: int = 12


@dataclass(frozen=True)
class Retrieval:
    """Fills with the training answer nearest to the picture; the pair says what its joint score is."""

    answers: Mapping[ImageId, Words]  # by the key of the example
    choice: str  # what was chosen on the validation split

    def __call__(self, pair: Pair, examples: Sequence[Example], num_beams: int, lengths: str) -> list[Answer]:
        return pair.score(examples, [self.answers[example.key] for example in examples])


def retrieve(
    features: Features, madlibs: Sequence[Madlib], examples: Sequence[Example], *, by_box: bool = False
) -> Retrieval:
    """Learn nCCA from the training split; its settings by Bleu-1 of the blanks of val.

    `features` are those of whole pictures, or by Madlib of the crops that hold person and object.
    """

    def look(some: Sequence[Example]) -> NDArray[np.float64]:  # (n, size)
        keys = [example.key if by_box else example.image_id for example in some]
        features.require(keys, "box_features" if by_box else "features")
        return features.rows(keys).astype(np.float64)

    train, val = (madlibs_examples(madlibs, split=split).examples for split in ("train", "val"))
    given = [example.blank for example in train]
    answers, bag = list(dict.fromkeys(given)), BagOfWords.of(given)
    seen, said, texts = look(train), bag.vectors(given), bag.vectors(answers)
    aims, targets = look(val), [" ".join(example.blank) for example in val]
    tried: list[tuple[float, JointSpace, str]] = []
    for regularisation, power in product(REGULARISATIONS, POWERS):
        widest = JointSpace.fit(seen, said, num_dimensions=max(DIMENSIONS), regularisation=regularisation, power=power)
        for num_dimensions in DIMENSIONS:
            space = widest.narrowed(num_dimensions)
            found = [" ".join(answers[place]) for place in space.nearest(aims, texts)]
            bleu = measure_sentences(list(zip(found, targets, strict=True)))["Bleu_1"].value
            choice = f"{num_dimensions} dimensions, regularisation {regularisation}, power {power}, chosen on val"
            tried.append((bleu, space, choice))
    _, space, choice = max(tried, key=lambda each: each[0])
    places = space.nearest(look(examples), texts)
    return Retrieval({example.key: answers[place] for example, place in zip(examples, places, strict=True)}, choice)


def evaluate_madlibs(
    infiller: Infiller,
    data: Path | str,
    *,
    settings: MadlibsSettings = MadlibsSettings(),
    box_features: Features | None = None,
    nade: Path | None = None,
    **how: Unpack[How],
) -> Finished:
    """Fill, retrieve, measure, compare, and write it all to `output`. nCCA needs `features`, its box form the crops."""
    madlibs = split_by_picture(read_madlibs(data, type=settings.type))
    cut = madlibs_examples(madlibs, split=settings.split, seed=settings.seed, limit=settings.limit)
    task = f"madlibs-{settings.type}"
    cells = [Cell(task, settings.split, None, lengths, *cut) for lengths in settings.lengths]
    pair = open_pair(infiller, cells, settings, how)
    more: dict[str, Filler] = {"nade": NadeSamples.load(nade, pair.vocabulary)} if nade else {}
    stores = {"ncca": how.get("features"), "ncca-box": box_features}
    more |= {name: Retrieval({}, "") for name, store in stores.items() if store}  # to know which are wanted
    parse = partial(parse_methods, settings.methods, num_beams=settings.num_beams)
    wanted = {base_name(method.key) for method in parse(more=more)}
    notes = []
    for name, store in stores.items():
        if store and name in wanted:
            more[name] = learnt = retrieve(store, madlibs, cut.examples, by_box=name == "ncca-box")
            notes.append(f"{name}: {learnt.choice}.")
    lead = LEAD + (RETRIEVAL if notes else "")
    notes.append(_seen_in_training(madlibs, cut.examples))
    run = fill_cells("madlibs", pair, cells, parse(more=more), settings, how)
    report = comparison_report(
        run,
        compare_methods(run, notes, how.get("progress")),
        title="Visual Madlibs",
        lead=lead,
        main=("Bleu_1", "Bleu_2", "blank_Bleu_1", "blank_Bleu_2"),
        more={"More metrics": ("CIDEr", "METEOR", "exact_match", "token_accuracy", "S", "seconds")},
    )
    return finish(run, report, how)


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
