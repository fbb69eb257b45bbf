"""`bibs calibrate`: fit a model pair's length prior on blanks whose length is known.

Captions are blanked as in the experiments, all shares of words removed together, since whoever fills a blank does not
know what share is missing. First the join scores of the plain beams at every length are fitted; then, at the lengths
that look best by them, the scores that the methods rank by. Never on the test split.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch

from bibs.data import VAL_SHARE, CaptionedImage, Features, hold_out, read_captions
from bibs.evaluation.pair import Pair
from bibs.evaluation.processes import do_slices
from bibs.evaluation.results import LengthErrors
from bibs.evaluation.runs import Progress
from bibs.evaluation.tasks import Example, caption_examples, cut_blank, draw_captions, images_of
from bibs.infiller import Infiller
from bibs.lengths import SCORE_KINDS, LengthPrior, LengthSettings, ScoreKind, join_scores
from bibs.models.directory import lengths_file, save_length_prior
from bibs.models.storage import make_directory
from bibs.search import Fill
from bibs.training.length_fit import Observation, fit_prior

CANDIDATES = 10
"""Lengths of each blank at which the methods are run. Leaving true ones out would bias the fit, so they are many."""

SLICE = 32

METHODS: dict[ScoreKind, str] = {"sum": "bibs", "max": "rerank-max", "forward": "forward", "backward": "backward"}
"""Whose answers are ranked by each kind of score."""

Blank = tuple[Example, Observation]


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
    seen = [image for image in images if not (features and allow_missing_features) or image.image_id in features]
    train, own = ([len(w) for i in images if i.split == name for w in i.captions] for name in ("train", settings.split))
    unfitted = LengthPrior(sentence_counts=LengthPrior.count_sentences(train or own))
    blanks = _blanks(images_of(seen, settings.split, ", ".join(map(str, files))), settings, unfitted)
    shown, infiller = [example for example, _ in blanks], Infiller.from_pretrained(model, precision="float32")
    pair = Pair.of(infiller, features, shown, num_rounds=settings.num_rounds, seed=settings.seed)
    make_directory(lengths_file(output or model).parent)  # before the work, and after all that may be wrong

    observe = partial(_observe, workers=workers, progress=progress)
    blanks = observe(partial(_join, pair, settings.num_beams), blanks, stage="join")
    prior = fit_prior([each for _, each in blanks], unfitted, ("join",))
    blanks = [(example, each.at_best("join", prior, CANDIDATES)) for example, each in blanks]
    blanks = observe(partial(_search, pair, settings.num_beams), blanks, stage="searching")
    result = _fit_in_halves(blanks, prior, unfitted)
    told = {
        "settings": asdict(settings),
        "blanks": len(blanks),
        "length_errors": {removed: asdict(each) for removed, each in result.after.items()},
    }
    try:
        save_length_prior(output or model, result.prior, details={"fitted": told})
    except ValueError as error:
        raise ValueError(f"{error}; what was fitted is {json.dumps(asdict(result.prior))}") from None
    return result


def _blanks(images: Sequence[CaptionedImage], settings: CalibrationSettings, prior: LengthPrior) -> list[Blank]:
    """At every length that the prior leaves room for, and with no score yet.

    A percentage too large for every caption is left out: short ones can lose a quarter.
    """
    captions = draw_captions(images, seed=settings.seed, limit=settings.limit)
    blanks = []
    for removed in settings.removed:
        long = [(image, words) for image, words in captions if cut_blank(words, removed)]
        for example in caption_examples(long, removed=removed).examples if long else ():
            given = len(example.before) + len(example.after)
            lengths = tuple(range(1, (prior.room(given) or 1) + 1))
            blanks.append((example, Observation(removed, given, len(example.blank), lengths, {})))
    if not blanks:
        shares = ", ".join(map(str, settings.removed))
        raise ValueError(
            f"no caption is long enough to lose {shares} % of its words and keep one on either side: "
            f"{len(captions)} tried"
        )
    return blanks


def _join(pair: Pair, num_beams: int, blanks: Sequence[Blank]) -> list[Blank]:
    """How well the plain beams join at every length."""
    with torch.inference_mode():
        trees, demands, templates = pair.trees([example for example, _ in blanks], num_beams)
        rooms = [len(each.lengths) for _, each in blanks]
        joins = join_scores(trees, templates, rooms, demands, range(len(templates)))
    found = zip(blanks, joins, strict=True)
    return [(example, replace(each, scores={"join": tuple(join)})) for (example, each), join in found]


def _search(pair: Pair, num_beams: int, blanks: Sequence[Blank]) -> list[Blank]:
    """What each method's answer scores at each of the lengths; only how many words are blanked counts."""
    variants = [replace(example, blank=("",) * length) for example, each in blanks for length in each.lengths]
    found = {kind: iter(pair.search(variants, method=name, num_beams=num_beams)) for kind, name in METHODS.items()}
    scored = []
    for example, each in blanks:
        scores = {kind: tuple(_score(kind, next(fills)) for _ in each.lengths) for kind, fills in found.items()}
        scored.append((example, replace(each, scores={**each.scores, **scores})))
    return scored


def _score(kind: ScoreKind, fills: Sequence[Fill]) -> float:
    if not fills:
        return float("-inf")
    forward, backward = fills[0].forward_score, fills[0].backward_score
    return {"forward": forward, "backward": backward, "sum": fills[0].score}.get(kind, max(forward, backward))


def _observe(
    work: Callable[[Sequence[Blank]], list[Blank]],
    blanks: Sequence[Blank],
    *,
    stage: str,
    workers: int,
    progress: Progress | None,
) -> list[Blank]:
    """The blanks with what the work found out about each, in their order."""
    slices = [(blanks[begin : begin + SLICE],) for begin in range(0, len(blanks), SLICE)]
    done: dict[int, list[Blank]] = {}
    for place, found in do_slices(work, slices, min(workers, len(slices))):
        done[place] = found
        if progress:
            progress(stage, "", sum(map(len, done.values())), len(blanks))
    return [each for place in sorted(done) for each in done[place]]


def _fit_in_halves(blanks: Sequence[Blank], prior: LengthPrior, unfitted: LengthPrior) -> Calibration:
    """Fit on all blanks; how far lengths are off is told by weights fitted on the other half of the pictures."""
    kinds = [kind for kind in SCORE_KINDS if kind != "join"]
    all_of_them = [each for _, each in blanks]
    even = set(sorted({str(example.key) for example, _ in blanks})[::2])
    halves = [[each for example, each in blanks if (str(example.key) in even) == first] for first in (True, False)]
    crossed = [fit_prior(half or all_of_them, prior, kinds) for half in halves[::-1]]
    fitted = fit_prior(all_of_them, prior, kinds)
    return Calibration(fitted, _errors([(all_of_them, unfitted)]), _errors(zip(halves, crossed, strict=True)))


def _errors(groups: Iterable[tuple[Sequence[Observation], LengthPrior]]) -> dict[int, LengthErrors]:
    lengths: dict[int, list[tuple[int, int]]] = {}  # removed -> chosen and true
    for observations, prior in groups:
        for each in observations:
            chosen = each.chosen("sum", prior, LengthSettings().num_lengths or CANDIDATES)
            lengths.setdefault(each.removed, []).append((chosen, each.true))
    return {removed: LengthErrors.of(*zip(*several, strict=True)) for removed, several in lengths.items()}
