"""`bibs calibrate`: fit a model pair's length prior on blanks whose length is known.

Captions are blanked as in the experiments, all shares of words removed together, since whoever fills a blank does not
know what share is missing. First the join scores of the plain beams at every length are fitted; then, at the lengths
that look best by them, the scores that the methods rank by. Never on the test split.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

import torch

from bibs.data import VAL_SHARE, CaptionedImage, Features, hold_out, read_captions
from bibs.evaluation.length_errors import LengthErrors
from bibs.evaluation.length_fit import Observation, fit_prior
from bibs.evaluation.methods import Method, PairFiller, needed_features
from bibs.evaluation.processes import do_slices
from bibs.evaluation.runs import Progress
from bibs.evaluation.tasks import Example, caption_examples, cut_blank, draw_captions
from bibs.lengths import SCORE_KINDS, LengthPrior, LengthSettings, ScoreKind, join_scores
from bibs.models.directory import lengths_file, load_models, save_length_prior
from bibs.models.storage import make_directory
from bibs.search import Fill

CANDIDATES = 10
"""Lengths of each blank at which the methods are run. Leaving true ones out would bias the fit, so they are many."""

SLICE = 32

Blank = tuple[int, Example]
"""The percentage removed, and the example."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class CalibrationSettings:
    split: str = "val"
    removed: tuple[int, ...] = (25, 50, 75)
    limit: int | None = 300
    seed: int = 0
    num_beams: int = 5
    num_rounds: int = 4

    def __post_init__(self) -> None:
        if self.split == "test":
            raise ValueError("`split` must not be 'test': nothing is tuned on what results are reported on")
        if not self.removed:
            raise ValueError("`removed` must be at least one percentage, but are none")


@dataclass(frozen=True)
class Calibration:
    """The fitted prior, and how far the lengths that BiBS chooses are off, by percentage removed."""

    prior: LengthPrior
    before: dict[int, LengthErrors]  # by the unfitted weights
    after: dict[int, LengthErrors]  # each half of the pictures by weights fitted on the other half


def calibrate(
    *,
    data: Path | Sequence[Path],
    model: Path,
    output: Path | None = None,
    features: Features | None = None,
    settings: CalibrationSettings,
    val_share: float = VAL_SHARE,
    allow_missing_features: bool = False,
    workers: int = 1,
    progress: Progress | None = None,
) -> Calibration:
    """Fit the length prior of the pair in `model`, and write it there (or to `output`, a directory or a .json file).

    Where `data` has no split `val`, a `val_share` of it is held out, the same as in training. With
    `allow_missing_features`, captions whose picture has no vector are left out.
    """
    files = [data] if isinstance(data, Path) else data
    images = hold_out((image for path in files for image in read_captions(path)), val_share)
    seen = images
    if features is not None and allow_missing_features:
        seen = [image for image in images if image.image_id in features]
    blanks = _blanks(seen, ", ".join(map(str, files)), settings)
    if features is not None:
        features = needed_features(features, [example for _, example in blanks])
    pair = PairFiller(*load_models(model), features, settings.num_rounds, settings.seed)
    make_directory(lengths_file(output or model).parent)  # before the work, and after all that may be wrong
    prior = LengthPrior(sentence_counts=_sentence_counts(images, settings.split))
    observations = _observe(_Joins(pair, settings.num_beams, prior), blanks, workers, "join", progress)
    prior = fit_prior(observations, prior, ("join",))
    observations = [_best_candidates(each, prior) for each in observations]
    pairs = list(zip(blanks, observations, strict=True))
    observations = _observe(_Scoring(pair, settings.num_beams), pairs, workers, "searching", progress)
    keys = sorted({str(example.key) for _, example in blanks})
    halves = [
        [
            each
            for (_, example), each in zip(blanks, observations, strict=True)
            if (str(example.key) in keys[::2]) == even
        ]
        for even in (True, False)
    ]
    unfitted = LengthPrior(sentence_counts=prior.sentence_counts)
    fitted = fit_prior(observations, prior, _FITTED_LAST)
    crossed = [fit_prior(half or observations, prior, _FITTED_LAST) for half in halves[::-1]]
    result = Calibration(
        fitted,
        _errors([(observations, unfitted)]),
        _errors(list(zip(halves, crossed, strict=True))),
    )
    told = {
        "settings": asdict(settings),
        "blanks": len(blanks),
        "length_errors": {removed: asdict(each) for removed, each in result.after.items()},
    }
    try:
        save_length_prior(output or model, fitted, details={"fitted": told})
    except ValueError as error:
        raise ValueError(f"{error}; what was fitted is {json.dumps(asdict(fitted))}") from None
    return result


_FITTED_LAST: tuple[ScoreKind, ...] = tuple(kind for kind in SCORE_KINDS if kind != "join")
_METHODS: dict[ScoreKind, str] = {"sum": "bibs", "max": "rerank-max", "forward": "forward", "backward": "backward"}


def _blanks(images: Sequence[CaptionedImage], data: str, settings: CalibrationSettings) -> list[Blank]:
    """A share that is too large for every caption is left out: short sentences can lose a quarter, not three."""
    wanted = [image for image in images if image.split == settings.split]
    if not wanted:
        raise ValueError(f"{data} has no split {settings.split!r}, only {', '.join(sorted({i.split for i in images}))}")
    captions = draw_captions(wanted, seed=settings.seed, limit=settings.limit)
    blanks = []
    for removed in settings.removed:
        if long := [(image, words) for image, words in captions if cut_blank(words, removed)]:
            blanks += [(removed, example) for example in caption_examples(long, removed=removed).examples]
    if not blanks:
        shares = ", ".join(map(str, settings.removed))
        raise ValueError(
            f"no caption is long enough to lose {shares} % of its words and keep one on either side: "
            f"{len(captions)} tried"
        )
    return blanks


def _sentence_counts(images: Sequence[CaptionedImage], split: str) -> tuple[int, ...]:
    """Of the training captions; of those that are calibrated on, where there are none."""
    by_split = {
        name: [len(words) for i in images if i.split == name for words in i.captions] for name in ("train", split)
    }
    return LengthPrior.count_sentences(by_split["train"] or by_split[split])


@dataclass(frozen=True)
class _Joins:
    """Work: how well the plain beams join at every length that the prior leaves room for."""

    pair: PairFiller
    num_beams: int
    prior: LengthPrior

    def __call__(self, number: int, blanks: Sequence[Blank]) -> tuple[int, list[Observation]]:
        examples = [example for _, example in blanks]
        given = [len(example.before) + len(example.after) for example in examples]
        rooms = [self.prior.room(count) or 1 for count in given]
        with torch.inference_mode():
            trees, demands, templates = self.pair.trees(examples, self.num_beams)
            joins = join_scores(trees, templates, rooms, demands, range(len(templates)))
        return number, [
            Observation(removed, count, len(example.blank), tuple(range(1, room + 1)), {"join": tuple(join)})
            for (removed, example), count, room, join in zip(blanks, given, rooms, joins, strict=True)
        ]


@dataclass(frozen=True)
class _Scoring:
    """Work: what each method's answer scores at each of the lengths of an observation."""

    pair: PairFiller
    num_beams: int

    def __call__(self, number: int, pairs: Sequence[tuple[Blank, Observation]]) -> tuple[int, list[Observation]]:
        variants = [
            replace(example, blank=("",) * length) for (_, example), each in pairs for length in each.lengths
        ]  # only how many words are blanked counts
        found: dict[ScoreKind, list[float]] = {}
        for kind, name in _METHODS.items():
            fills = self.pair.search(Method(name, self.num_beams), variants)
            found[kind] = [_score(kind, several) for several in fills]
        scored = []
        place = 0
        for _, each in pairs:
            here = slice(place, place + len(each.lengths))
            scores = {kind: tuple(values[here]) for kind, values in found.items()}
            scored.append(replace(each, scores={**each.scores, **scores}))
            place += len(each.lengths)
        return number, scored


def _score(kind: ScoreKind, fills: Sequence[Fill]) -> float:
    if not fills:
        return float("-inf")
    best = fills[0]
    by = {"forward": best.forward_score, "backward": best.backward_score, "sum": best.score}
    return by.get(kind, max(best.forward_score, best.backward_score))


def _best_candidates(each: Observation, prior: LengthPrior) -> Observation:
    join = each.ranking("join", prior)
    kept = sorted(sorted(each.lengths, key=lambda length: -join[length])[:CANDIDATES])
    places = [each.lengths.index(length) for length in kept]
    return replace(each, lengths=tuple(kept), scores={"join": tuple(each.scores["join"][p] for p in places)})


def _observe(
    work: Callable[[int, Sequence[Item]], tuple[int, list[Observation]]],
    items: Sequence[Item],
    workers: int,
    stage: str,
    progress: Progress | None,
) -> list[Observation]:
    """One observation of each item, in their order."""
    slices = [(n, items[begin : begin + SLICE]) for n, begin in enumerate(range(0, len(items), SLICE))]
    done: dict[int, list[Observation]] = {}
    for number, observations in do_slices(work, slices, min(workers, len(slices))):
        done[number] = observations
        if progress:
            progress(stage, "", sum(map(len, done.values())), len(items))
    return [each for number in sorted(done) for each in done[number]]


def _errors(groups: Sequence[tuple[Sequence[Observation], LengthPrior]]) -> dict[int, LengthErrors]:
    chosen: dict[int, list[int]] = {}
    true: dict[int, list[int]] = {}
    for observations, prior in groups:
        for each in observations:
            found = each.chosen("sum", prior, LengthSettings().num_lengths or CANDIDATES)
            chosen.setdefault(each.removed, []).append(found)
            true.setdefault(each.removed, []).append(each.true)
    return {removed: LengthErrors.of(chosen[removed], true[removed]) for removed in chosen}
