"""Problems for the laws of the search, one strategy per feature; and the one judge of all: every fill there is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import strategies as st

from bibs import Fill, Gap, fill_templates
from bibs.lengths import LengthPrior, LengthWeights
from fakes import HistoryModel, score_from_scratch
from literal import cut

Template = list[int | Gap | None]
Tokens = tuple[int, ...]

SAMPLERS = ("gsn", "gsn-random", "coordinate", "unidirectional-gibbs")
SEARCHES = ("bibs", "forward", "backward", "rerank-max", "rerank-sum", "exact")
METHODS = (*SEARCHES[:5], *SAMPLERS, "exact")

FEATURES = (
    "plain",
    "fixed",
    "zeros",
    "required",
    "phrases",
    "diverse",
    "gap",
    "two gaps",
    "required gap",
    "phrases gap",
    "diverse gap",
)
"""All slots of a blank free; words given inside it; models to which much is impossible; words that must appear;
answers that differ; blanks of unknown length, one or two, and with the two features before."""

CASES = [
    (method, feature)
    for method in METHODS
    for feature in FEATURES
    if method in SEARCHES or not feature.startswith(("required", "phrases", "diverse"))
]
"""The samplers know neither words that must appear nor a penalty."""

MAX_LENGTH = 3
KINDS = {"forward": "forward", "backward": "backward", "rerank-max": "max"}


def stretch(template: Sequence[int | Gap | None], lengths: Sequence[int]) -> list[int | None]:
    """The template with each gap as so many free slots."""
    given = iter(lengths)
    parts = ([None] * next(given) if isinstance(slot, Gap) else [slot] for slot in template)
    return list(itertools.chain.from_iterable(parts))


def free_words(slots: Sequence[int | None], tokens: Sequence[int]) -> Tokens:
    return tuple(token for slot, token in zip(slots, tokens, strict=True) if slot is None)


def close(value: object) -> Any:
    return pytest.approx(value, abs=1e-9)


def assert_same(ours: Sequence[Sequence[Fill]], theirs: Sequence[Sequence[Fill]]) -> None:
    assert [[fill.tokens for fill in fills] for fills in ours] == [[fill.tokens for fill in fills] for fills in theirs]
    for a, b in zip(itertools.chain(*ours), itertools.chain(*theirs), strict=True):
        assert (a.forward_score, a.backward_score) == close((b.forward_score, b.backward_score))
        assert (a.ranking_score, a.penalty) == close((b.ranking_score, b.penalty))


def num_states(wanted: Sequence[int | Tokens]) -> int:
    """How far each word or phrase may be read: not at all, or its first tokens, or all of it."""
    return math.prod(2 if isinstance(each, int) else len(each) + 1 for each in wanted)


@dataclass(frozen=True)
class Judged:
    """One of all the fills there are."""

    tokens: Tokens
    lengths: tuple[int, ...]  # of each gap
    words: Tokens  # what fills the free slots
    includes: bool  # whether all words that must appear are among them
    forward_score: float
    backward_score: float
    ranking: dict[str, float]  # by kind of score, as methods compare it with others

    def loses(self, penalty: float, answers: Sequence[Judged]) -> float:
        """What its words lose for standing in earlier answers."""
        return penalty * sum(word in answer.words for answer in answers for word in self.words)


@dataclass(frozen=True)
class Problem:
    forward: HistoryModel
    backward: HistoryModel
    templates: list[Template]
    banned: Tokens = ()
    required: list[tuple[int | Tokens, ...]] = field(
        default_factory=list
    )  # words and phrases, one per template, or none
    conditions: list[int] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def fill(self, method: str = "bibs", **options: Any) -> list[list[Fill]]:
        return fill_templates(
            self.forward,
            self.backward,
            self.templates,
            method=method,
            banned=self.banned,
            must_include=self.required or None,
            conditions=self.conditions,
            **{**self.options, **options},
        )

    def select(self, numbers: Sequence[int]) -> Problem:
        """The same with some of the templates."""

        def pick(several: Any) -> Any:
            return several and [several[number] for number in numbers]

        given = {"required": pick(self.required), "conditions": pick(self.conditions)}
        return replace(self, templates=pick(self.templates), **given)

    def alone(self) -> Iterator[Problem]:
        return (self.select([number]) for number in range(len(self.templates)))

    def with_models(self, make: Any) -> Problem:
        return replace(self, forward=make(self.forward), backward=make(self.backward))

    def mirrored(self) -> Problem:
        """The models swapped, and everything else turned round."""
        options = dict(self.options)
        if prior := options.get("length_prior"):
            options["length_prior"] = replace(prior, forward=prior.backward, backward=prior.forward)
        turned = [template[::-1] for template in self.templates]
        required = [tuple(each if isinstance(each, int) else each[::-1] for each in some) for some in self.required]
        return replace(
            self,
            forward=self.backward,
            backward=self.forward,
            templates=turned,
            required=required,
            options=options,
        )

    # The judge. It looks at the first template.

    @property
    def template(self) -> Template:
        return self.templates[0]

    @property
    def words(self) -> tuple[int | Tokens, ...]:
        """Words and phrases that must appear."""
        return self.required[0] if self.required else ()

    def includes(self, slots: Template, tokens: Tokens) -> bool:
        """A word stands in a free slot, a phrase in free slots next to each other."""
        free = [token if slot is None else None for slot, token in zip(slots, tokens, strict=True)]
        wanted = [[each] if isinstance(each, int) else list(each) for each in self.words]
        return all(any(free[at : at + len(phrase)] == phrase for at in range(len(free))) for phrase in wanted)

    @property
    def condition(self) -> int:
        return self.conditions[0] if self.conditions else 0

    def ranges(self) -> list[range]:
        """The lengths that each gap may have."""
        gaps = [slot for slot in self.template if isinstance(slot, Gap)]
        longest = self.options.get("max_length", 20)
        return [range(gap.minimum, (longest if gap.maximum is None else gap.maximum) + 1) for gap in gaps]

    def bonus(self, kind: str, num_words: int) -> float:
        """Written a second time: half a sentence more of every length."""
        prior = self.options.get("length_prior", LengthPrior())
        weights = getattr(prior, kind)
        if not prior.sentence_counts:
            return weights.word * num_words
        given = sum(not isinstance(slot, Gap) for slot in self.template[1:-1])
        counts = dict(enumerate(prior.sentence_counts))
        share = (counts.get(given + num_words, 0) + 0.5) / sum(count + 0.5 for count in counts.values())
        return weights.word * num_words + weights.sentence * math.log(share)

    def judge(self, tokens: Tokens, lengths: tuple[int, ...]) -> Judged:
        slots = stretch(self.template, lengths)
        words = free_words(slots, tokens)
        forward = score_from_scratch(self.forward, tokens, self.condition)
        backward = score_from_scratch(self.backward, tokens[::-1], self.condition)
        ranking = {"sum": forward + backward, "max": max(forward, backward), "forward": forward, "backward": backward}
        if lengths:
            ranking = {kind: score + self.bonus(kind, sum(lengths)) for kind, score in ranking.items()}
        else:  # One model alone looks at the blank and at its own side of it.
            left, region, right = cut(slots)
            reach = {"forward": (self.forward, tokens, left), "backward": (self.backward, tokens[::-1], right[::-1])}
            for kind, (model, read, context) in reach.items():
                ranking[kind] = model.score_after(context, read[len(context) :][: len(region)], self.condition)
        return Judged(tokens, lengths, words, self.includes(slots, tokens), forward, backward, ranking)

    def every_fill(self) -> Iterator[Judged]:
        allowed = [token for token in range(self.forward.vocab_size) if token not in self.banned]
        for lengths in itertools.product(*self.ranges()):
            slots = stretch(self.template, lengths)
            for words in itertools.product(allowed, repeat=slots.count(None)):
                given = iter(words)
                yield self.judge(tuple(next(given) if slot is None else slot for slot in slots), lengths)

    def best(self, method: str, count: int) -> list[tuple[float, float, Judged]]:
        """(ranking score, penalty, fill), best first: each answer is the best new one, less what its words lose."""
        kind, penalty = KINDS.get(method, "sum"), self.options.get("diversity_penalty", 0.0)
        pool = sorted((each for each in self.every_fill() if each.includes), key=lambda each: -each.ranking[kind])
        pool = [each for each in pool if each.ranking[kind] > -math.inf]
        if not penalty:
            distinct = list({each.tokens: each for each in reversed(pool)}.values())[::-1]
            return [(each.ranking[kind], 0.0, each) for each in distinct[:count]]
        answers: list[Judged] = []
        losses: list[float] = []
        while pool and len(answers) < count:
            best = max(pool, key=lambda each: each.ranking[kind] - each.loses(penalty, answers))
            losses.append(best.loses(penalty, answers))
            answers.append(best)
            pool = [each for each in pool if each.tokens != best.tokens]
        found = zip([each.ranking[kind] for each in answers], losses, answers, strict=True)
        return sorted(found, key=lambda answer: -answer[0])


# Strategies

weights = st.builds(LengthWeights, st.floats(-1, 3), st.floats(0, 4))
counts = st.just(()) | st.lists(st.integers(0, 9), min_size=4, max_size=9).map(lambda some: (*some, 1))
priors = st.builds(LengthPrior, *[weights] * 5, counts)


@st.composite
def problems(draw: st.DrawFn, feature: str, *, least_gap: int = 0) -> Problem:
    """One or two templates of one feature, with contexts of several lengths and conditions of their own."""
    gapped, choices = "gap" in feature, 3 if feature == "zeros" else None
    sizes = {
        "plain": (2, 4),
        "fixed": (2, 4),
        "zeros": (5, 5),
        "required": (3, 4),
        "phrases": (3, 4),
        "diverse": (3, 4),
    }
    vocab_size = draw(st.integers(*sizes.get(feature, (3, 3))))
    forward, backward = (HistoryModel(vocab_size, draw(st.integers(0, 999)), choices=choices) for _ in range(2))
    banned = (0,) if gapped else draw(st.sampled_from([(), (0,)]))
    options: dict[str, Any] = {}
    if gapped:
        options = {"max_length": MAX_LENGTH, "length_prior": draw(priors)}
        options["num_lengths"] = draw(st.sampled_from([None, 1, 2, 3]))
    if feature == "gap":
        options["lengths"] = draw(st.sampled_from(["unknown", "paper"]))
    if feature.startswith("diverse"):
        options["diversity_penalty"] = draw(st.sampled_from([1e-6, 0.3, 1.0, 5.0]))
    words = draw(st.permutations([token for token in range(vocab_size) if token not in banned]))
    requires = feature.startswith(("required", "phrases")) or feature == "diverse"
    inside = (
        st.sampled_from(words[:2]) if requires else st.integers(0, vocab_size - 1)
    )  # words given there do not count
    if feature == "two gaps":
        region = _two_gaps(inside, least_gap, all_searched=options["num_lengths"] in (None, 3))
    else:
        region = _one_gap(inside, least_gap) if gapped else _blank(inside, feature)
    beside = st.lists(st.integers(0, vocab_size - 1), max_size=2)
    frame = st.tuples(beside, region, beside).map(lambda parts: [0, *itertools.chain.from_iterable(parts), 1])
    templates = draw(st.lists(frame, min_size=1, max_size=2))
    required = []
    if requires:
        for template in templates:
            room = sum((slot.maximum or MAX_LENGTH) if isinstance(slot, Gap) else slot is None for slot in template)
            if feature.startswith("phrases"):
                required.append(draw(_phrases(words, room)))
            else:
                required.append(tuple(words[: draw(st.integers(0, min(3, room)))]))
    conditions = draw(st.none() | st.lists(st.integers(0, 2), min_size=len(templates), max_size=len(templates)))
    return Problem(forward, backward, templates, banned, required, conditions, options)


def _phrases(words: Sequence[int], room: int) -> st.SearchStrategy[tuple[int | Tokens, ...]]:
    """A phrase, which may repeat itself and stand in no blank of the template, and perhaps a word or another."""
    phrase = st.lists(st.sampled_from(words), min_size=1, max_size=min(3, room)).map(tuple)

    def fit(phrases: list[Tokens]) -> bool:  # in so many slots in a row
        rows = itertools.product({token for each in phrases for token in each}, repeat=min(room, 6))
        return any(
            all(each in zip(*(row[at:] for at in range(len(each))), strict=False) for each in phrases) for row in rows
        )

    some = st.lists(phrase, min_size=1, max_size=2, unique=True).filter(fit)
    return some.map(lambda phrases: tuple(each[0] if len(each) == 1 and len(phrases) > 1 else each for each in phrases))


def _blank(word: st.SearchStrategy[int], feature: str) -> st.SearchStrategy[Template]:
    """Up to four slots that begin and end free; none at all where words are given inside."""
    if feature == "plain":
        return st.integers(1, 4).map(lambda width: [None] * width)
    inside = st.lists(st.none() | word, max_size=1 if feature == "zeros" else 2)
    blank = st.just([None]) | inside.map(lambda middle: [None, *middle, None])
    return blank | st.just([]) if feature == "fixed" else blank


def _one_gap(word: st.SearchStrategy[int], least: int) -> st.SearchStrategy[Template]:
    """A gap, and perhaps a free slot or a word to its left or right."""
    bounds = st.tuples(st.integers(least, 1), st.sampled_from([None, 1, 2, 3]))
    beside = st.lists(st.none() | word, max_size=1)
    return st.tuples(beside, bounds, beside).map(lambda parts: [*parts[0], Gap(*parts[1]), *parts[2]])


def _two_gaps(word: st.SearchStrategy[int], least: int, *, all_searched: bool) -> st.SearchStrategy[Template]:
    """Two gaps, side by side or not. Where lengths climb, START stands between them, which cannot fill them: then a
    sentence tells their lengths, and no two combinations are worth the same."""
    gap = st.builds(Gap, st.integers(least, 1), st.sampled_from([1, 2] if all_searched else [1, 2, None]))
    between = st.lists(st.none() | word, max_size=1) if all_searched else st.just([0])
    return st.tuples(gap, between, gap).map(lambda parts: [parts[0], *parts[1], parts[2]])
