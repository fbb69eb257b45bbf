"""Blanks of unknown length: which lengths are tried, and how they compare. The laws are in test_laws.py."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bibs import Fill, Gap, Infiller, fill_templates
from by_hand import search_by_hand
from fakes import CountingModel, HistoryModel, MatrixModel, score_from_scratch
from small_problems import KINDS, LengthPrior, LengthWeights, Problem, free_words, stretch

START, END = 0, 1
laws = settings(max_examples=10, deadline=None)
pytestmark = pytest.mark.filterwarnings("ignore:`num_return_sequences`")


def pair(seed: int, vocab_size: int = 4) -> tuple[HistoryModel, HistoryModel]:
    return HistoryModel(vocab_size, seed), HistoryModel(vocab_size, seed + 1000)


def lengths_tried(fills: Sequence[Fill]) -> list[tuple[int, ...]]:
    """Where every fill is asked for, something comes back of every length that was searched."""
    return sorted({fill.lengths for fill in fills})


# What is tried


@laws
@given(st.integers(0, 500), st.integers(1, 3), st.integers(0, 1), st.integers(0, 1), st.sampled_from([1, 2, 64]))
def test_of_many_lengths_those_are_searched_at_which_the_beams_join_best(seed, num_lengths, least, known, num_beams):
    """By hand: f up to the slot where they join, g from there. A known free slot may stand before the gap."""
    forward, backward = pair(seed)
    room, words, options = 6, (2, 3), {"banned": (START, END), "num_beams": num_beams}

    def messages(start: str, context: list[int], template: list[int | None]) -> list[dict[int, float]]:
        """Per slot, what the plain beams of one side come to with each word."""
        (plain,) = search_by_hand(forward, backward, template, num_rounds=0, start=start, **options)
        model = forward if start == "forward" else backward
        return [
            {
                y: max(score + float(model.log_probs_after([*context, *b])[y]) for b, score in frontier.items())
                for y in words
            }
            for frontier in plain.frontiers
        ]

    left = messages("forward", [START, 2], [START, 2, *[None] * (known + room), END])[known:]
    right = messages("backward", [END, 3], [START, *[None] * room, 3, END])
    worth = {
        length: sum(max(a[y] + b[y] for y in words) for a, b in zip(left, right[:length][::-1], strict=False)) / length
        + 0.7 * length
        for length in range(1, room + 1)
    }
    best = sorted(worth, key=lambda length: -worth[length])[:num_lengths]
    (fills,) = fill_templates(
        forward, backward, [[START, 2, *[None] * known, Gap(least, room), 3, END]], method="forward",
        num_lengths=num_lengths, length_prior=LengthPrior(*[LengthWeights(0.7, 0.0)] * 5), num_return_sequences=999,
        **options,
    )  # fmt: skip
    always = [] if least else [0]  # it has no slot to join in
    assert lengths_tried(fills) == [(length,) for length in sorted([*always, *best])]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 500))
def test_the_papers_range_lies_between_what_each_model_would_write_alone(seed):
    """Each model's most probable sentence from its own side, found by enumeration, says how long the blank is."""
    forward, backward = (HistoryModel(3, seed + turn, sharpness=4.0) for turn in (0, 1000))
    max_length, word = 4, 2
    problem = Problem(forward, backward, [[START, word, Gap(0), word, END]], banned=(START, END))

    def believed(model: HistoryModel, near: list[int], far: list[int]) -> int:
        end, room = far[-1], max_length + len(far)
        tails = [[word] * count + [end] * (count < room) for count in range(room + 1)]
        best = max(tails, key=lambda tail: score_from_scratch(model, [*near, *tail]))
        return best.count(word) - (len(far) - 1)

    ends = [believed(forward, [START, word], [word, END]), believed(backward, [END, word], [word, START])]
    low, high = (min(max(length, 0), max_length) for length in sorted(ends))
    (fills,) = problem.fill(lengths="paper", max_length=max_length, num_beams=200, num_return_sequences=999)
    assert lengths_tried(fills) == [(length,) for length in range(low, high + 1)]
    judged = [problem.judge((START, word, *[word] * n, word, END), (n,)) for n in range(low, high + 1)]
    plain = max(each.forward_score + each.backward_score for each in judged)
    assert fills[0].ranking_score == pytest.approx(plain)  # the paper knows no prior


@pytest.mark.parametrize(
    ("gap", "given_words", "expected"),
    [
        (Gap(), 2, range(1, 9)),  # 99 % of the sentences have up to 10 words
        (Gap(), 30, range(1, 7)),  # but six words at least
        (Gap(9), 30, range(9, 10)),
        (Gap(0, 4), 30, range(5)),
        (Gap(2, 19), 2, range(2, 20)),  # who names an end is not doubted
    ],
)
def test_an_open_gap_is_tried_as_long_as_sentences_are(gap, given_words, expected):
    prior = LengthPrior(sentence_counts=(0, 0, 0, 0, 0, 30, 30, 20, 10, 5, 4, 0, 0, 0, 1))
    models, options = (MatrixModel.random(4, 1), MatrixModel.random(4, 2)), {"method": "forward", "num_beams": 1}
    options |= {"num_lengths": None, "length_prior": prior, "num_return_sequences": 99}
    (fills,) = fill_templates(*models, [[START, *[2] * given_words, gap, END]], **options)
    assert lengths_tried(fills) == [(length,) for length in expected]


def test_contexts_are_read_once_to_choose_lengths_and_once_to_search_them_all():
    templates = [[START, 2, Gap(), 3, END], [START, Gap(1, 6), END], [START, 2, None, END], [START, Gap(1, 3), 3, END]]
    for rule, judged in (("paper", 3), ("unknown", 2)):  # three lengths need no choosing
        models = [CountingModel(model) for model in pair(3)]
        fill_templates(*models, templates, banned=(START, END), max_length=6, lengths=rule)
        for model in models:
            assert model.starts <= 2
            assert model.contexts <= judged + 4


# Climbing. START stands between the gaps, which cannot fill them, so that a sentence tells their lengths.

MOST = 40


def neighbours(lengths: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """One gap one or two words longer or shorter, or a word moved from one gap to another."""
    changes = [change for change in itertools.product(range(-2, 3), repeat=len(lengths)) if any(change)]
    for change in changes:
        moved = sorted(filter(None, change))
        if len(moved) == 1 or moved == [-1, 1]:
            yield tuple(length + step for length, step in zip(lengths, change, strict=True))


QUICK = {"num_rounds": 0, "num_return_sequences": 1}


def climbing(seed: int, num_gaps: int, required: tuple[int, ...] = (), **options: object) -> Problem:
    template = [START, Gap(0), *[START, Gap()] * (num_gaps - 1), 2, END]
    return Problem(*pair(seed), [template], (START, END), [required], options={"max_length": 5, **options})


@laws
@given(
    st.integers(0, 500),
    st.integers(2, 3),
    st.sampled_from([(), (2,), (3, 2)]),
    st.sampled_from(["rerank-sum", "forward", "bibs"]),
)
def test_climbing_by_searches_without_rounds_ends_where_no_neighbour_is_better(seed, num_gaps, required, method):
    problem = climbing(seed, num_gaps, required)
    options = {"num_beams": 2, "num_rounds": 1, "num_return_sequences": 10**4}

    def worth(lengths: tuple[int, ...], num_rounds: int) -> float:
        """What a search of just these lengths finds."""
        exactly = replace(problem, templates=[stretch(problem.template, lengths)])
        found = exactly.fill(method, **options if num_rounds else options | QUICK)[0]
        return max(problem.judge(fill.tokens, lengths).ranking[KINDS.get(method, "sum")] for fill in found)

    (fills,) = problem.fill(method, **options)
    searched = lengths_tried(fills)
    assert 1 <= len(searched) <= 3
    assert fills[0].ranking_score == pytest.approx(max(worth(lengths, 1) for lengths in searched))
    quick = {lengths: worth(lengths, 0) for lengths in searched}
    top = max(quick, key=lambda lengths: quick[lengths])
    for lengths in neighbours(top) if num_gaps == 2 else ():  # three gaps may reach the bound before that
        inside = all(length in allowed for length, allowed in zip(lengths, problem.ranges(), strict=True))
        if inside and sum(lengths) >= len(required):
            assert worth(lengths, 0) <= quick[top] + 1e-9
            assert lengths in searched or worth(lengths, 0) <= min(quick.values()) + 1e-9
    for fill in fills:
        words = free_words(stretch(problem.template, fill.lengths), fill.tokens)
        assert set(required) <= set(words)


def test_climbing_goes_up_to_its_bound_and_no_further():
    """Where every word is rewarded, the climb would go on to the longest of all."""
    rewarded = {"length_prior": LengthPrior(sum=LengthWeights(50.0, 0.0)), "max_length": 8}
    options = {"num_beams": 1, "num_rounds": 0, "num_return_sequences": 10**4}
    problem = climbing(5, 3, **rewarded).with_models(CountingModel)
    (fills,) = problem.fill("coordinate", **options)
    assert len(lengths_tried(fills)) == 3
    # One combination has at most 24 + 4 words to step over for each of: the first beam, its chain, and its score.
    assert problem.forward.rows + problem.backward.rows <= MOST * 2 * 3 * (24 + 4)
    assert problem.forward.contexts <= MOST
    assert fills[0].lengths != (8, 8, 8)
    (fills,) = climbing(5, 2, **rewarded, num_lengths=2).fill("coordinate", **options)
    assert fills[0].lengths == (8, 8)
    assert len(lengths_tried(fills)) == 2


@pytest.mark.parametrize("between", [2, 9, 16])
def test_the_only_lengths_that_have_a_fill_are_found(between):
    """Every number is followed by the next one alone, so only gaps of two certain lengths can be filled."""
    steps = torch.roll(torch.eye(20), 1, dims=1)
    template = [0, Gap(), between, Gap(), 19]
    (fills,) = fill_templates(MatrixModel(steps), MatrixModel(steps.t()), [template])
    assert [fill.tokens for fill in fills] == [tuple(range(20))]


@laws
@given(st.integers(0, 500))
def test_lengths_climb_alike_from_either_end(seed):
    problem = climbing(seed, 2)
    (ours,) = problem.fill(start="backward")[0]
    (turned,) = problem.mirrored().fill(start="forward")[0]
    assert (ours.tokens, ours.lengths) == (turned.tokens[::-1], turned.lengths[::-1])


# Small facts


def test_two_combinations_that_make_one_sentence_are_one_completion():
    template = [START, Gap(1, 3), 2, Gap(1, 3), END]  # 2 is the only word, so a length of the whole says all
    (fills,) = fill_templates(*pair(2, 3), [template], banned=(START, END), num_return_sequences=5)
    assert sorted(len(fill.tokens) for fill in fills) == [5, 6, 7, 8, 9]


def test_answers_may_differ_in_the_length_of_a_gap():
    models, template = (HistoryModel(6, 1), HistoryModel(6, 2)), [START, 2, Gap(1, 4), 3, END]
    options = {"banned": (START, END), "num_return_sequences": 4}
    found = [
        fill_templates(*models, [template], diversity_penalty=penalty, **options)[0] for penalty in (0.5, 2.0, 5.0)
    ]
    assert any(len(lengths_tried(fills)) > 1 for fills in found)


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=30))
def test_sentences_are_counted_by_their_length(lengths):
    counts = LengthPrior.count_sentences(lengths)
    assert [lengths.count(length) for length in range(max(lengths) + 1)] == list(counts)
    prior = LengthPrior(sentence_counts=counts)
    assert sum(math.exp(prior.log_share(length)) for length in range(len(counts))) == pytest.approx(1.0)


CORPUS = ["a man is riding a wave", "a dog is sitting on the beach", "a man riding a wave"]


def test_the_template_language_reaches_the_search():
    infiller = Infiller.from_corpus(CORPUS)
    completion = infiller("A dog ___{1,4} the beach!")[0]
    assert completion.text == f"A dog {completion.spans[0]} the beach!"
    assert 1 <= len(completion.spans[0].split()) <= 4
    for completion in infiller("a man ___{0,1} riding a wave", num_return_sequences=3):
        assert len(completion.spans[0].split()) <= 1
        assert completion.text == f"a man {completion.spans[0]} riding a wave".replace("  ", " ")


@pytest.mark.parametrize("template", ["A ___ is ___, on _ beach.", "___{0,1} dog ___{2,3} the ___!", "___ _ ___"])
def test_the_words_of_several_blanks_go_back_where_they_belong(template):
    infiller = Infiller.from_corpus(CORPUS)
    for completion in infiller(template, num_return_sequences=3, max_length=4):
        marks = re.split(r"___(?:\{\d,\d\})?|_", template)
        filled = marks[0] + "".join(f"{span}{mark}" for span, mark in zip(completion.spans, marks[1:], strict=True))
        assert completion.text.split() == filled.split()
        words = re.findall(r"[a-z]+", completion.text.lower())
        assert infiller.vocabulary.encode(words) == list(completion.tokens[1:-1])
