"""The methods that are compared, under the paper's names, and how a model pair fills examples by one of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from bibs.checks import CheckedModel
from bibs.constraints import Demands
from bibs.data import Features
from bibs.evaluation.tasks import Example, Words
from bibs.lengths import UNFITTED, LengthPrior, LengthRule, LengthSettings, plan_lengths
from bibs.methods import METHODS, fill_templates
from bibs.models.directory import VOCABULARY
from bibs.search import Fill, Gap, Settings, Start, StepModel, Template, Trees
from bibs.text import Vocabulary

LABELS = {
    "forward": "URNN-f",
    "backward": "URNN-b",
    "rerank-max": "URNN-f+b",
    "rerank-sum": "BiRNN-f+b",
    "gsn": "GSN (ordered)",
    "gsn-random": "GSN (random)",
    "coordinate": "Coordinate descent",
    "nade": "NADE",
    "bibs-backward": "BiBS (from the right)",
    "bibs": "BiBS",
    "ncca": "nCCA",
    "ncca-box": "nCCA (box)",
}
"""In the order of the paper's tables; `nade` and the retrieval of nCCA need more than a pair of models."""

OURS = "bibs"
FROM_THE_RIGHT = "bibs-backward"
"""BiBS as the paper starts it."""

KNOWN = "known"
LENGTHS = (KNOWN, "paper", "unknown")
"""How the length of a blank is found: it is told, or by one of the rules of `bibs.lengths`."""


@dataclass(frozen=True)
class Method:
    """A method and its beam width; `plain` where that is the width of the whole run."""

    name: str
    num_beams: int
    plain: bool = True

    @property
    def key(self) -> str:
        return self.name if self.plain else f"{self.name}@{self.num_beams}"

    @property
    def label(self) -> str:
        return LABELS[self.name] if self.plain else f"{LABELS[self.name]}, B = {self.num_beams}"


def searched_methods() -> tuple[str, ...]:
    """What "all" means: every method of the paper that runs on a pair of models."""
    return tuple(name for name in LABELS if name in (*METHODS, FROM_THE_RIGHT))


def parse_methods(text: str, *, num_beams: int, more: Sequence[str] = ()) -> tuple[Method, ...]:
    """Names with commas between; `all`; `name@B` for another beam width. `more` can be had besides the searches."""
    known = (*searched_methods(), *more)
    methods: dict[str, Method] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        if part == "all":
            found = [Method(name, num_beams) for name in LABELS if name in known]
        else:
            name, at, width = part.partition("@")
            if name == "nade" and name not in known:
                raise ValueError(f"`methods` hold {part!r}, which needs `--nade` with a directory of a trained NADE")
            if name not in known:
                raise ValueError(f"`methods` must be among all, {', '.join(known)}, but hold {part!r}")
            if at and not (width.isdecimal() and int(width) >= 1):
                raise ValueError(f"`methods` must give a beam width of at least 1 after @, but hold {part!r}")
            found = [Method(name, int(width) if at else num_beams, plain=not at or int(width) == num_beams)]
        methods |= {method.key: method for method in found}
    if not methods:
        raise ValueError("`methods` must name at least one method, but are empty")
    return tuple(methods.values())


@dataclass(frozen=True)
class Answer:
    """What a method put into a blank; the scores are of the whole sentence."""

    words: Words
    score: float
    forward_score: float
    backward_score: float
    rounds: int


class Filler(Protocol):
    """Fills the blanks of examples by a method; `lengths` is "known", or the rule by which lengths are found."""

    def __call__(self, method: Method, examples: Sequence[Example], lengths: str) -> list[Answer]: ...


@dataclass(frozen=True)
class PairFiller:
    """Two models of one vocabulary, with the pictures (if any) that they are conditioned on."""

    forward: StepModel
    backward: StepModel
    vocabulary: Vocabulary
    features: Features | None = None
    num_rounds: int = 4
    seed: int = 0
    length_prior: LengthPrior = UNFITTED
    start: Start = "both"

    def __call__(self, method: Method, examples: Sequence[Example], lengths: str) -> list[Answer]:
        found = self.search(method, examples, lengths)
        for example, fills in zip(examples, found, strict=True):
            if not fills:
                raise ValueError(f"{method.label} found no fill of example {example.key}: the models allow none")
        return [self.answer(example, fills[0]) for example, fills in zip(examples, found, strict=True)]

    def search(
        self, method: Method, examples: Sequence[Example], lengths: str = KNOWN, *, trace: bool = False
    ) -> list[list[Fill]]:
        templates: Sequence[Template] = self.templates(examples)
        if lengths != KNOWN:
            templates = self._gapped(examples)
        return self._fill(templates, method, examples, lengths, trace)

    def score(self, examples: Sequence[Example], fills: Sequence[Words]) -> list[Answer]:
        """The scores of fills that came from elsewhere, one of each example."""
        return self.choose(examples, [[fill] for fill in fills], KNOWN)

    def choose(self, examples: Sequence[Example], fills: Sequence[Sequence[Words]], lengths: str) -> list[Answer]:
        """The best of several fills of each example that came from elsewhere, as a search ranks its own."""
        owners = [example for example, several in zip(examples, fills, strict=True) for _ in several]
        templates = []
        for example, fill in zip(owners, (fill for several in fills for fill in several), strict=True):
            left, right = self.around(example)
            templates.append([*left, *self.vocabulary.encode(fill), *right])
        scored = iter(self._fill(templates, Method("forward", 1), owners, KNOWN, False))
        answers = []
        for example, several in zip(examples, fills, strict=True):
            given = len(example.before) + len(example.after)
            best, words = max(
                ((next(scored)[0], words) for words in several),
                key=lambda each: each[0].score + self._bonus(len(each[1]), given, lengths),
            )
            answers.append(Answer(tuple(words), best.score, best.forward_score, best.backward_score, 0))
        return answers

    def _bonus(self, words: int, given: int, lengths: str) -> float:
        """What a search by S adds to compare fills of different lengths."""
        return self.length_prior.bonus("sum", words=words, given=given) if lengths == "unknown" else 0.0

    def lengths_to_try(self, method: Method, examples: Sequence[Example], lengths: str) -> list[Sequence[int]]:
        """The lengths at which a search looks for each blank."""
        if lengths == KNOWN:
            return [[len(example.blank)] for example in examples]
        told = LengthSettings(_rule(lengths), length_prior=self.length_prior)
        with torch.inference_mode():
            trees, demands, templates = self.trees(examples, method.num_beams)
            none = [0] * len(templates)
            plans = plan_lengths(trees, templates, self.conditions(examples), none, told, demands.allowing)
        return [[length for (length,) in plan.first] for plan in plans]

    def trees(self, examples: Sequence[Example], num_beams: int) -> tuple[Trees, Demands, list[Template]]:
        """What the two models have read around the blanks, as gaps; what is banned in them; and the templates."""
        templates = self._gapped(examples)
        models = CheckedModel("forward", self.forward), CheckedModel("backward", self.backward)
        trees = Trees.of(*models, settings=Settings(num_beams=num_beams))
        trees.begin(templates, self.conditions(examples))
        return trees, Demands.plain(self.forward.vocab_size, self.banned, len(templates)), templates

    def answer(self, example: Example, fill: Fill) -> Answer:
        words = self.words_in_blank(example, fill.tokens)
        return Answer(words, fill.score, fill.forward_score, fill.backward_score, fill.rounds)

    def words_in_blank(self, example: Example, tokens: Sequence[int]) -> Words:
        inside = tokens[1 + len(example.before) : len(tokens) - 1 - len(example.after)]
        return tuple(self.vocabulary.decode(inside))

    def templates(self, examples: Sequence[Example]) -> list[list[int | None]]:
        """What `bibs.search` fills: token ids, and None at each free slot."""
        templates: list[list[int | None]] = []
        for example in examples:
            left, right = self.around(example)
            templates.append([*left, *[None] * len(example.blank), *right])
        return templates

    def _gapped(self, examples: Sequence[Example]) -> list[Template]:
        return [[*left, Gap(), *right] for left, right in map(self.around, examples)]

    def conditions(self, examples: Sequence[Example]) -> Tensor | None:
        if self.features is None:
            return None
        return torch.from_numpy(self.features.rows([example.image_id for example in examples]))  # (n, size)

    @property
    def banned(self) -> tuple[int, ...]:
        return self.vocabulary.start, self.vocabulary.end, self.vocabulary.unk

    def around(self, example: Example) -> tuple[list[int], list[int]]:
        """The tokens before the blank, from START, and those after it, to END."""
        words = self.vocabulary
        return [words.start, *words.encode(example.before)], [*words.encode(example.after), words.end]

    def _fill(
        self,
        templates: Sequence[Template],
        method: Method,
        examples: Sequence[Example],
        lengths: str,
        trace: bool,
    ) -> list[list[Fill]]:
        return fill_templates(
            self.forward,
            self.backward,
            templates,
            method=OURS if method.name == FROM_THE_RIGHT else method.name,
            start="backward" if method.name == FROM_THE_RIGHT else self.start,
            conditions=self.conditions(examples),
            banned=self.banned,
            num_beams=method.num_beams,
            num_rounds=self.num_rounds,
            lengths=_rule(lengths),
            length_prior=self.length_prior,
            trace=trace,
            seed=self.seed,
        )


def _rule(lengths: str) -> LengthRule:
    return "paper" if lengths == "paper" else "unknown"


@dataclass(frozen=True)
class Fillers:
    """Every method by the filler that does it; whatever is not named, the pair does."""

    pair: PairFiller
    others: Mapping[str, Filler]

    def __call__(self, method: Method, examples: Sequence[Example], lengths: str) -> list[Answer]:
        return self.others.get(method.name, self.pair)(method, examples, lengths)


def fingerprint_model(directory: Path) -> str:
    """A short name of the weights, the shapes and the words in a model directory."""
    digest = hashlib.sha256()
    for path in [*sorted(directory.glob("*.safetensors")), directory / VOCABULARY]:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def needed_features(features: Features, examples: Sequence[Example]) -> Features:
    """The pictures of the examples alone, in memory: small enough to hand to other processes.

    Every example needs its picture: nothing is filled without one unasked.
    """
    ids = list(dict.fromkeys(example.image_id for example in examples))
    if missing := features.missing(ids):
        named = ", ".join(map(repr, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise ValueError(f"`features` must hold every picture, but {len(missing)} of {len(ids)} have none: {named}")
    return Features(features.rows(ids), ids)
