"""A pair of models that fills the blanks of examples: what every method of the tables works with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from bibs.checks import CheckedModel
from bibs.constraints import Demands
from bibs.data import Features
from bibs.evaluation.tasks import Example, Words
from bibs.infiller import Infiller
from bibs.lengths import UNFITTED, LengthPrior, LengthRule, LengthSettings, plan_lengths
from bibs.methods import Options, fill_templates
from bibs.models.int8 import in_precision
from bibs.search import Fill, Gap, Settings, StepModel, Template, Trees
from bibs.text import Vocabulary

KNOWN = "known"
LENGTHS = (KNOWN, "paper", "unknown")
"""How the length of a blank is found: it is told, or by one of the rules of `bibs.lengths`."""


@dataclass(frozen=True)
class Answer:
    """What a method put into a blank; the scores are of the whole sentence. `facts` go to disk beside them."""

    fill: str  # its words, with spaces between
    score: float
    forward_score: float
    backward_score: float
    rounds: int = 0
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pair:
    """Two models of one vocabulary, with the pictures (if any) that they are conditioned on."""

    forward: StepModel
    backward: StepModel
    vocabulary: Vocabulary
    features: Features | None = None
    num_rounds: int = 4
    seed: int = 0
    length_prior: LengthPrior = UNFITTED
    precision: str = "float32"

    @classmethod
    def of(
        cls, infiller: Infiller, features: Features | None, examples: Sequence[Example], *, num_rounds: int, seed: int
    ) -> Pair:
        """The models of an infiller, with the pictures of the examples alone.

        Those are small enough to hand to other processes. Every example needs one: nothing is filled without its
        picture unasked.
        """
        if features is not None:
            ids = list(dict.fromkeys(example.image_id for example in examples))
            features = Features(features.rows(ids), ids)
        forward, backward = (in_precision(each, infiller.precision) for each in (infiller.forward, infiller.backward))
        models = forward, backward, infiller.vocabulary
        return cls(*models, features, num_rounds, seed, infiller.length_prior, infiller.precision)

    def search(
        self, examples: Sequence[Example], length: str = KNOWN, *, method: str = "bibs", **options: Unpack[Options]
    ) -> list[list[Fill]]:
        """The fills of each example, best first; `length` says how the lengths of the blanks are found."""
        templates: Sequence[Template] = self.templates(examples) if length == KNOWN else self._gapped(examples)
        told: Options = {"num_rounds": self.num_rounds, "seed": self.seed, "length_prior": self.length_prior}
        told |= {"lengths": _rule(length), **options}
        given: dict[str, Any] = {"conditions": self.conditions(examples), "banned": self.banned}
        return fill_templates(self.forward, self.backward, templates, method=method, **given, **told)

    def answer(self, example: Example, fills: Sequence[Fill], facts: dict[str, Any]) -> Answer:
        """The best of the fills that were found."""
        if not fills:
            raise ValueError(f"no fill of example {example.key} was found: the models allow none")
        best = fills[0]
        filled = " ".join(self.words_in_blank(example, best.tokens))
        return Answer(filled, best.score, best.forward_score, best.backward_score, best.rounds, facts)

    def score(self, examples: Sequence[Example], fills: Sequence[Words]) -> list[Answer]:
        """The scores of fills that came from elsewhere, one of each example."""
        return self.choose(examples, [[fill] for fill in fills], KNOWN)

    def choose(self, examples: Sequence[Example], fills: Sequence[Sequence[Words]], lengths: str) -> list[Answer]:
        """The best of several fills of each example that came from elsewhere, as a search ranks its own."""
        filled = [
            replace(example, before=example.filled(fill), blank=(), after=())
            for example, several in zip(examples, fills, strict=True)
            for fill in several
        ]
        scored = iter(self.search(filled, method="forward", num_beams=1))
        answers = []
        for example, several in zip(examples, fills, strict=True):
            given = len(example.before) + len(example.after)
            best, words = max(
                ((next(scored)[0], words) for words in several),
                key=lambda each: each[0].score + self._bonus(len(each[1]), given, lengths),
            )
            answers.append(Answer(" ".join(words), best.score, best.forward_score, best.backward_score))
        return answers

    def _bonus(self, words: int, given: int, lengths: str) -> float:
        """What a search by S adds to compare fills of different lengths."""
        return self.length_prior.bonus("sum", words=words, given=given) if lengths == "unknown" else 0.0

    def lengths_to_try(self, examples: Sequence[Example], lengths: str, num_beams: int) -> list[Sequence[int]]:
        """The lengths at which a search looks for each blank."""
        if lengths == KNOWN:
            return [[len(example.blank)] for example in examples]
        told = LengthSettings(_rule(lengths), length_prior=self.length_prior)
        with torch.inference_mode():
            trees, demands, templates = self.trees(examples, num_beams)
            none = [0] * len(templates)
            plans = plan_lengths(trees, templates, self.conditions(examples), none, told, demands.allowing)
        return [[length for (length,) in plan.lengths] for plan in plans]

    def trees(self, examples: Sequence[Example], num_beams: int) -> tuple[Trees, Demands, list[Template]]:
        """What the two models have read around the blanks, as gaps; what is banned in them; and the templates."""
        templates = self._gapped(examples)
        models = CheckedModel("forward", self.forward), CheckedModel("backward", self.backward)
        trees = Trees.of(*models, settings=Settings(num_beams=num_beams))
        trees.begin(templates, self.conditions(examples))
        return trees, Demands.plain(self.forward.vocab_size, self.banned, len(templates)), templates

    def templates(self, examples: Sequence[Example]) -> list[list[int | None]]:
        """What `bibs.search` fills: token ids, and None at each free slot."""
        around = zip(examples, map(self._around, examples), strict=True)
        return [[*left, *[None] * len(example.blank), *right] for example, (left, right) in around]

    def _gapped(self, examples: Sequence[Example]) -> list[Template]:
        return [[*left, Gap(), *right] for left, right in map(self._around, examples)]

    def _around(self, example: Example) -> tuple[list[int], list[int]]:
        """The tokens before the blank, from START, and those after it, to END."""
        words = self.vocabulary
        return [words.start, *words.encode(example.before)], [*words.encode(example.after), words.end]

    def words_in_blank(self, example: Example, tokens: Sequence[int]) -> Words:
        inside = tokens[1 + len(example.before) : len(tokens) - 1 - len(example.after)]
        return tuple(self.vocabulary.decode(inside))

    def conditions(self, examples: Sequence[Example]) -> Tensor | None:
        if self.features is None:
            return None
        return torch.from_numpy(self.features.rows([example.image_id for example in examples]))  # (n, size)

    @property
    def banned(self) -> tuple[int, ...]:
        return self.vocabulary.start, self.vocabulary.end, self.vocabulary.unk


def _rule(lengths: str) -> LengthRule:
    return "paper" if lengths == "paper" else "unknown"
