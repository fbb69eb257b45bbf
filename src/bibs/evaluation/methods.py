"""The methods that are compared, under the paper's names.

A method of one's own is a function that fills the blanks of examples, entered in `METHODS`:

    def first_word_again(pair, examples, num_beams, lengths):
        return pair.score(examples, [example.before[:1] * len(example.blank) for example in examples])

    METHODS["first-word"] = ("The first word again", first_word_again)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from bibs.evaluation.pair import Answer, Pair
from bibs.evaluation.tasks import Example, Words
from bibs.methods import Options
from bibs.models.directory import VOCABULARY, load_vocabulary
from bibs.models.nade import NADE, load_nade
from bibs.search import Fill

Filler: TypeAlias = Callable[[Pair, Sequence[Example], int, str], list[Answer]]
"""Fills the blanks of examples; told the number of beams, and how the lengths of the blanks are found."""


@dataclass(frozen=True)
class Search:
    """Fills by one of `bibs.methods.METHODS`; `facts` are what is kept of its fills beside the best."""

    method: str
    options: Options = field(default_factory=Options)
    facts: Callable[[Pair, Example, Sequence[Fill]], dict[str, Any]] | None = None

    def __call__(self, pair: Pair, examples: Sequence[Example], num_beams: int, lengths: str) -> list[Answer]:
        options: Options = {**self.options, "num_beams": num_beams}
        found = pair.search(examples, lengths, method=self.method, **options)
        return [
            pair.answer(example, fills, self.facts(pair, example, fills) if self.facts else {})
            for example, fills in zip(examples, found, strict=True)
        ]


@dataclass(frozen=True)
class NadeSamples:
    """As many samples by NADE as others have beams, left to right, of every length that the pair tries.

    The best by the pair's S is the answer, as for other samplers.
    """

    nade: NADE

    @classmethod
    def load(cls, directory: Path, vocabulary: object) -> NadeSamples:
        nade = load_nade(directory)
        if load_vocabulary(directory, nade.vocab_size) != vocabulary:
            raise ValueError(f"`nade` must have the vocabulary of `model`, but {directory / VOCABULARY} differs")
        return cls(nade)

    def __call__(self, pair: Pair, examples: Sequence[Example], num_beams: int, lengths: str) -> list[Answer]:
        tried = pair.lengths_to_try(examples, lengths, num_beams)
        owners = [place for place, several in enumerate(tried) for _ in several]
        blanked = [
            replace(examples[place], blank=("",) * length) for place, length in zip(owners, chain(*tried), strict=True)
        ]
        templates, conditions = pair.templates(blanked), pair.conditions(blanked)
        filled = self.nade.fill(templates, conditions, num_samples=num_beams, banned=pair.banned, seed=pair.seed)
        drawn: list[list[Words]] = [[] for _ in examples]
        for owner, example, fills in zip(owners, blanked, filled, strict=True):
            drawn[owner] += [pair.words_in_blank(example, fill.tokens) for fill in fills]
        return pair.choose(examples, drawn, lengths)


METHODS: dict[str, tuple[str, Filler | None]] = {
    "forward": ("URNN-f", Search("forward")),
    "backward": ("URNN-b", Search("backward")),
    "rerank-max": ("URNN-f+b", Search("rerank-max")),
    "rerank-sum": ("BiRNN-f+b", Search("rerank-sum")),
    "gsn": ("GSN (ordered)", Search("gsn")),
    "gsn-random": ("GSN (random)", Search("gsn-random")),
    "coordinate": ("Coordinate descent", Search("coordinate")),
    "nade": ("NADE", None),
    "bibs-backward": ("BiBS (from the right)", Search("bibs", {"start": "backward"})),
    "bibs": ("BiBS", Search("bibs")),
    "ncca": ("nCCA", None),
    "ncca-box": ("nCCA (box)", None),
}
"""Name -> label in the tables, whose order this is, and how it fills; None where that needs more than two models."""

OURS = "bibs"


@dataclass(frozen=True)
class Method:
    """A method with a beam width, as a row of the tables."""

    key: str
    label: str
    num_beams: int
    fill: Filler


def base_name(key: str) -> str:
    """Of a method, without the beam width."""
    return key.partition("@")[0]


def parse_methods(text: str, *, num_beams: int, more: Mapping[str, Filler] | None = None) -> tuple[Method, ...]:
    """Names with commas between; `all`; `name@B` for another beam width. `more` fills by what `METHODS` leaves open."""
    fillers = {name: (more or {}).get(name, fill) for name, (_, fill) in METHODS.items()}
    known = [name for name, fill in fillers.items() if fill is not None]
    methods: dict[str, Method] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        for each in known if part == "all" else [part]:
            name, at, width = each.partition("@")
            if name == "nade" and name not in known:
                raise ValueError(f"`methods` hold {part!r}, which needs `--nade` with a directory of a trained NADE")
            if name not in known:
                raise ValueError(f"`methods` must be among all, {', '.join(known)}, but hold {part!r}")
            if at and not (width.isdecimal() and int(width) >= 1):
                raise ValueError(f"`methods` must give a beam width of at least 1 after @, but hold {part!r}")
            beams, label, fill = int(width) if at else num_beams, METHODS[name][0], fillers[name]
            assert fill is not None
            if beams != num_beams:
                name, label = f"{name}@{beams}", f"{label}, B = {beams}"
            methods[name] = Method(name, label, beams, fill)
    if not methods:
        raise ValueError("`methods` must name at least one method, but are empty")
    return tuple(methods.values())
