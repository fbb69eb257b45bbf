"""Fill-in-the-blank captioning (the paper's Table 1): every method, every share of words removed, one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import Unpack

from bibs.data import VAL_SHARE, CaptionedImage, hold_out, read_captions
from bibs.evaluation.comparison import comparison_report
from bibs.evaluation.experiment import Finished, How, Settings, fill_cells, finish, open_pair
from bibs.evaluation.methods import NadeSamples, parse_methods
from bibs.evaluation.results import compare_methods
from bibs.evaluation.tasks import Cell, Words, caption_examples, draw_captions, images_of
from bibs.infiller import Infiller

MORE = {
    "The blank alone": ("blank_CIDEr", "blank_Bleu_1", "blank_METEOR", "exact_match", "token_accuracy"),
    "Whole sentence, more metrics": ("Bleu_1", "Bleu_2", "Bleu_3", "S", "seconds"),
}
LEAD = (
    "Words are removed from the middle of a caption, and each method fills them in again, seeing {}what is left. The "
    "caption itself is the one reference."
)


@dataclass(frozen=True)
class CaptionSettings(Settings):
    """What is blanked and how it is filled. `removed` are percentages."""

    removed: tuple[int, ...] = (25, 50, 75)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.removed or len(set(self.removed)) < len(self.removed):
            raise ValueError(f"`removed` must be distinct percentages, at least one, but are {list(self.removed)}")


def evaluate_captions(
    infiller: Infiller,
    data: Path | str,
    *,
    settings: CaptionSettings = CaptionSettings(),
    nade: Path | None = None,
    **how: Unpack[How],
) -> Finished:
    """Blank captions, fill them with the infiller's two models by every method, measure, and write it to `output`.

    `data` is a file of captions (docs/data.md), `nade` a directory that `bibs train --missing` wrote; `How` says what
    else can be told.
    """
    cells, notes = caption_cells(Path(data), settings)
    pair = open_pair(infiller, cells, settings, how)
    more = {"nade": NadeSamples.load(nade, pair.vocabulary)} if nade else {}
    methods = parse_methods(settings.methods, num_beams=settings.num_beams, more=more)
    run = fill_cells("captions", pair, cells, methods, settings, how)
    report = comparison_report(
        run,
        compare_methods(run, notes, how.get("progress")),
        title="Fill-in-the-blank captioning",
        lead=LEAD.format("the picture and " if pair.features else ""),
        main=("CIDEr", "Bleu_4", "METEOR"),
        more=MORE,
    )
    return finish(run, report, how)


def caption_cells(data: Path, settings: CaptionSettings) -> tuple[list[Cell], list[str]]:
    """The blanked captions, and what a reader of the numbers should know of them."""
    images = hold_out(read_captions(data), VAL_SHARE)
    captions = draw_captions(images_of(images, settings.split, data), seed=settings.seed, limit=settings.limit)
    cells = []
    for removed in settings.removed:
        cut = caption_examples(captions, removed=removed)
        cells += [Cell("captions", settings.split, removed, lengths, *cut) for lengths in settings.lengths]
    return cells, [_seen_in_training(images, captions)]


def _seen_in_training(images: Sequence[CaptionedImage], captions: Sequence[tuple[CaptionedImage, Words]]) -> str:
    training = {caption for image in images if image.split == "train" for caption in image.captions}
    if not training:
        return "The data has no training split to look for the captions in."
    seen = sum(words in training for _, words in captions)
    return f"{seen} of the {len(captions)} captions also stand, word for word, in the training split of the data."
