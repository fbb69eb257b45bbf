"""Fill-in-the-blank captioning (the paper's Table 1): every method, every share of words removed, one command."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bibs.data import CaptionedImage, Features, read_captions
from bibs.evaluation.completions import Completing, Completion
from bibs.evaluation.methods import (
    LENGTHS,
    Fillers,
    Method,
    PairFiller,
    fingerprint_model,
    needed_features,
    parse_methods,
)
from bibs.evaluation.nade import NadeFiller
from bibs.evaluation.outputs import CAPTIONS, Finished, require_extras, write_outputs
from bibs.evaluation.results import compute_results
from bibs.evaluation.runs import Cell, Progress, Run
from bibs.evaluation.tasks import Example, Words, caption_examples, draw_captions
from bibs.models.directory import load_length_prior, load_models


@dataclass(frozen=True)
class CaptionSettings:
    """What is blanked and how it is filled. `removed` are percentages; `methods` as `parse_methods` reads them."""

    split: str = "test"
    removed: tuple[int, ...] = (25, 50, 75)
    lengths: tuple[str, ...] = ("known",)
    methods: str = "all"
    limit: int | None = None
    seed: int = 0
    num_beams: int = 5
    num_rounds: int = 4

    def __post_init__(self) -> None:
        if not self.removed or len(set(self.removed)) < len(self.removed):
            raise ValueError(f"`removed` must be distinct percentages, at least one, but are {list(self.removed)}")
        for name in self.lengths or ("",):
            if name not in LENGTHS:
                raise ValueError(f"`lengths` must be among {', '.join(LENGTHS)}, but hold {name!r}")
        if self.num_beams < 1:
            raise ValueError(f"`num_beams` must be at least 1, but is {self.num_beams}")
        if self.num_rounds < 0:
            raise ValueError(f"`num_rounds` must be at least 0, but is {self.num_rounds}")

    def parsed_methods(self, more: Sequence[str] = ()) -> tuple[Method, ...]:
        """`more` can be had besides the searches."""
        return parse_methods(self.methods, num_beams=self.num_beams, more=more)


def evaluate_captions(
    *,
    data: Path,
    model: Path,
    output: Path,
    features: Features | None = None,
    nade: Path | None = None,
    images: Path | None = None,
    settings: CaptionSettings,
    workers: int = 1,
    progress: Progress | None = None,
) -> Finished:
    """Fill, measure, compare, and write it all to `output`.

    What an earlier, interrupted run of the same settings filled is not filled again.
    """
    require_extras()
    methods = settings.parsed_methods(("nade",) if nade else ())
    cells, notes = caption_cells(data, settings)
    if features is not None:
        features = needed_features(features, [example for cell in cells for example in cell.examples])
    forward, backward, vocabulary = load_models(model)
    prior = load_length_prior(model)
    pair = PairFiller(forward, backward, vocabulary, features, settings.num_rounds, settings.seed, prior)
    missing = NadeFiller.load(nade, pair) if nade else None
    told = {
        "task": "captions",
        **asdict(settings),
        "methods": [method.key for method in methods],
        "data": fingerprint_examples(cells),
        "features": None if features is None else fingerprint_features(features, cells),
        "model": fingerprint_model(model),
        "nade": missing.fingerprint() if missing else None,
        "length_prior": asdict(prior) if "unknown" in settings.lengths else None,
    }
    run = Run(output, told, Completion)
    filler = Fillers(pair, {"nade": missing} if missing else {})
    run.work_through(cells, methods, Completing(filler), workers=workers, progress=progress)
    results = compute_results(run, cells, methods, told, notes=notes, seed=settings.seed, progress=progress)
    finished = Finished(run, tuple(cells), methods, results)
    write_outputs(finished, CAPTIONS, images=images)
    return finished


def caption_cells(data: Path, settings: CaptionSettings) -> tuple[list[Cell], list[str]]:
    """The blanked captions, and what a reader of the numbers should know of them."""
    images = list(read_captions(data))
    wanted = [image for image in images if image.split == settings.split]
    if not wanted:
        held = ", ".join(sorted({image.split for image in images}))
        raise ValueError(f"{data} has no split {settings.split!r}, only {held}")
    captions = draw_captions(wanted, seed=settings.seed, limit=settings.limit)
    cells = []
    for removed in settings.removed:
        cut = caption_examples(captions, removed=removed)
        cells += [
            Cell("captions", settings.split, removed, lengths, cut.examples, cut.skipped)
            for lengths in settings.lengths
        ]
    return cells, [_seen_in_training(images, captions)]


def _seen_in_training(images: Sequence[CaptionedImage], captions: Sequence[tuple[CaptionedImage, Words]]) -> str:
    training = {caption for image in images if image.split == "train" for caption in image.captions}
    if not training:
        return "The data has no training split to look for the captions in."
    seen = sum(words in training for _, words in captions)
    return f"{seen} of the {len(captions)} captions also stand, word for word, in the training split of the data."


def fingerprint_examples(cells: Sequence[Cell]) -> str:
    digest = hashlib.sha256()
    for cell in cells:
        digest.update(repr((cell.name, cell.examples)).encode())
    return digest.hexdigest()[:16]


def fingerprint_features(features: Features, cells: Sequence[Cell]) -> str:
    examples: dict[Any, Example] = {example.image_id: example for cell in cells for example in cell.examples}
    return hashlib.sha256(features.rows(list(examples)).tobytes()).hexdigest()[:16]
