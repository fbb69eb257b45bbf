"""The laws of the search, each judged by enumeration or by a second way of computing. Float64 throughout.

A law is asked of every method and feature that know it; small_problems.py has the features and the judge.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bibs import Fill, Gap, bidirectional_beam_search, fill_templates
from by_hand import search_by_hand
from fakes import (
    CountingModel,
    CountingScoringModel,
    FrugalHistoryModel,
    HistoryModel,
    MatrixModel,
    ScoringHistoryModel,
    TamperingModel,
    score_from_scratch,
    select_rows,
)
from literal import JudgedPass, cut, literal_search
from small_problems import (
    CASES,
    FEATURES,
    METHODS,
    SAMPLERS,
    SEARCHES,
    Problem,
    Tokens,
    assert_same,
    close,
    free_words,
    num_states,
    problems,
    stretch,
)

pytestmark = pytest.mark.filterwarnings("ignore:`num_return_sequences`")

ONE_END = ("backward", "forward")
STARTS = (*ONE_END, "both")
KNOWN = ("plain", "fixed", "zeros", "required")
ALL_LENGTHS = {"lengths": "unknown", "num_lengths": None}
few = st.integers(1, 3)


def laws(num_examples: int) -> Callable[[Any], Any]:
    """So many for each method and feature. The first of them is always the simplest there is."""
    return settings(max_examples=num_examples, deadline=None)


def of_each(cases: Iterable[tuple[str, str]]) -> Any:
    return pytest.mark.parametrize(("method", "feature"), list(cases))


# With wide beams, the answer is exact (law 1)

# What a single model finds at one length is cut by its score there, before lengths are compared.
EXACT = [(m, f) for m, f in CASES if m in SEARCHES and (f != "diverse gap" or m not in ("forward", "backward"))]


def check_exact(problem: Problem, method: str, found: Sequence[Sequence[Fill]], count: int) -> None:
    for alone, fills in zip(problem.alone(), found, strict=True):
        best = alone.best(method, count)
        assert len(fills) == len(best)
        for fill, (ranking, penalty, judged) in zip(fills, best, strict=True):
            assert fill.tokens == judged.tokens  # one by one: a diff of hundreds of fills takes minutes
            assert (fill.ranking_score, fill.penalty) == close((ranking, penalty))
            assert sum(fill.lengths) == sum(judged.lengths)  # two gaps may share one sentence in several ways


@of_each(EXACT)
@laws(3)
@given(data=st.data())
def test_with_wide_beams_the_answers_are_the_best_of_all_fills_in_order(method, feature, data):
    problem = data.draw(problems(feature))
    count = 4 if feature.startswith("diverse") else 999
    found = problem.fill(method, num_beams=300, num_rounds=1, num_return_sequences=count, **ALL_LENGTHS)
    check_exact(problem, method, found, count)


# At any width, every pass is the one over all connections (law 1)

widths_and_rounds = st.fixed_dictionaries({"num_beams": few, "num_rounds": st.integers(0, 4)})
one_blank = {feature: problems(feature).filter(lambda problem: None in problem.template) for feature in KNOWN}


def judged_passes(problem: Problem, slots: Sequence[int | None], **options: Any) -> list[JudgedPass]:
    """Of the first template, by both second implementations where both can."""
    models, banned, condition = (problem.forward, problem.backward), problem.banned, problem.condition
    passes = search_by_hand(*models, slots, required=problem.words, banned=banned, condition=condition, **options)
    all_possible = problem.forward.choices == problem.forward.vocab_size
    if options["start"] != "both" and not problem.words and all_possible and "penalties" not in options:
        literal = literal_search(*models, [slots], banned=banned, conditions=[condition], **options)
        for ours, theirs in zip(literal, passes, strict=True):
            assert ours.of(0).frontiers == [close(frontier) for frontier in theirs.frontiers]
            assert ours.of(0).ranking == close(theirs.ranking)
    return passes


def found_by(problem: Problem, judged: JudgedPass, lengths: Sequence[int] = ()) -> dict[Tokens, float]:
    """The whole sequences that a pass ends with, best first, and what it ranks them by."""
    left, _, right = cut(stretch(problem.template, lengths))
    turn = 1 if judged.direction == "forward" else -1
    return {(*left, *fill[::turn], *right): value for fill, value in judged.ranking.items()}


def total(problem: Problem, tokens: Tokens) -> float:
    """S, from scratch."""
    sides = (problem.forward, tokens), (problem.backward, tokens[::-1])
    return sum(score_from_scratch(model, read, problem.condition) for model, read in sides)


def check_passes(problem: Problem, fill: Fill, judged: Sequence[JudgedPass]) -> None:
    for direction in ONE_END:
        ours = [each for each in fill.trace if each.direction == direction]
        theirs = [each for each in judged if each.direction == direction and each.ranking]  # those that end somewhere
        for a, b in zip(ours, theirs, strict=False):
            assert [dict(frontier) for frontier in a.frontiers] == [close(frontier) for frontier in b.frontiers]
            tokens, ranking = next(iter(found_by(problem, b, fill.lengths).items()))
            assert (a.tokens, a.ranking_score, a.score) == (tokens, close(ranking), close(total(problem, tokens)))
        # A search ends early only where nothing new can come.
        seen = [each.beams for each in theirs[: len(ours)]]
        assert len(seen) == len(ours)
        assert all(later.beams in seen for later in theirs[len(ours) :])


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("feature", [*KNOWN, "gap", "required gap"])
@laws(8)
@given(data=st.data())
def test_every_pass_equals_the_pass_over_all_connections(feature, start, data):
    problem, options = data.draw(problems(feature, least_gap=1)), {**data.draw(widths_and_rounds), "start": start}
    found = problem.fill(trace=True, num_return_sequences=3, lookup=data.draw(st.booleans()), **options)
    for alone, fills in zip(problem.alone(), found, strict=True):
        for fill in fills:
            slots = stretch(alone.template, fill.lengths)
            if None in slots:
                passes = judged_passes(alone, slots, **options)
                check_passes(alone, fill, passes)
                settled = (n for n in range(2, len(passes)) if passes[n].beams == passes[n - 2].beams)
                if start != "both":  # it ends where it is settled, or with that round
                    assert len(fill.trace) <= next(settled, len(passes)) + 2


@pytest.mark.parametrize("start", STARTS)
@laws(10)
@given(problem=problems("diverse"), options=widths_and_rounds)
def test_every_pass_of_a_later_answer_equals_the_pass_by_hand_with_what_words_lose(start, problem, options):
    answers: list[set[Tokens]] = [set() for _ in problem.templates]
    for count in (1, 2, 3):
        found = problem.fill(trace=True, num_return_sequences=count, start=start, **options)
        for alone, before, fills in zip(problem.alone(), answers, found, strict=True):
            held = [set(free_words(alone.template, tokens)) for tokens in before]
            losses = {
                token: problem.options["diversity_penalty"] * sum(token in words for words in held)
                for token in range(problem.forward.vocab_size)
            }
            new = [fill for fill in fills if fill.tokens not in before]
            assert len(new) <= 1
            for fill in new:
                judged = judged_passes(alone, alone.template, penalties=losses, start=start, **options)
                check_passes(alone, fill, judged)
                before.add(fill.tokens)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("feature", KNOWN)
@laws(10)
@given(data=st.data())
def test_the_answer_is_the_best_of_all_fills_that_the_passes_found(feature, start, data):
    problem = data.draw(one_blank[feature]).select([0])
    options = {**data.draw(widths_and_rounds), "start": start}
    passes = judged_passes(problem, problem.template, **options)
    scores = {tokens: total(problem, tokens) for each in passes for tokens in found_by(problem, each)}
    ranked = [tokens for tokens in sorted(scores, key=lambda tokens: -scores[tokens]) if scores[tokens] > -math.inf]
    for count in (1, 3):
        (fills,) = problem.fill(num_return_sequences=count, **options)
        assert [fill.tokens for fill in fills] == ranked[:count]


@pytest.mark.parametrize("start", ONE_END)
@pytest.mark.parametrize("feature", KNOWN)
@laws(15)
@given(data=st.data())
def test_without_rescoring_the_answer_is_the_literal_last_pass(feature, start, data):
    problem = data.draw(one_blank[feature]).select([0])
    options = {**data.draw(widths_and_rounds), "start": start}
    last = found_by(problem, judged_passes(problem, problem.template, **options)[-1])
    (fills,) = problem.fill(rescore=False, num_return_sequences=99, **options)
    assert [fill.tokens for fill in fills] == list(last)
    assert [fill.ranking_score for fill in fills] == close(list(last.values()))


def test_a_search_whose_passes_cycle_ends_whatever_the_rounds():
    problem = Problem(HistoryModel(4, 0), HistoryModel(4, 1000), [[0, *[None] * 6, 1]])
    options = {"num_beams": 1, "start": "backward"}
    passes = judged_passes(problem, problem.template, num_rounds=20, **options)
    period = next(n for n in range(2, 40, 2) if passes[-1].beams == passes[-1 - n].beams)
    assert period > 2
    calls: list[str] = []

    def patient(where: str, log_probs: Tensor, state: Any) -> tuple[Tensor, Any]:
        calls.append(where)
        assert len(calls) < 500, "the search does not end"
        return log_probs, state

    endless = problem.with_models(lambda model: TamperingModel(model, patient))
    for num_rounds in (10, 11, 12, 13, 10**9):
        calls.clear()
        number = 2 * num_rounds if num_rounds < 20 else 40 - period + (2 * num_rounds - 40) % period
        (last,) = endless.fill(num_rounds=num_rounds, rescore=False, **options)[0]
        assert {last.tokens: last.ranking_score} == close(found_by(problem, passes[number]))
        (best,) = endless.fill(num_rounds=num_rounds, **options)[0]
        assert best.score == close(max(total(problem, t) for each in passes for t in found_by(problem, each)))


# A batch is its items (law 3)


@of_each(CASES)
@laws(2)
@given(data=st.data())
def test_a_batch_equals_its_items_in_any_order_and_batch_size(method, feature, data):
    problem = data.draw(problems(feature))
    options = {"num_beams": data.draw(few), "num_rounds": 2, "num_return_sequences": 2}
    alone = [each.fill(method, **options)[0] for each in problem.alone()]
    order = data.draw(st.permutations(range(len(alone))))
    together = problem.select(order).fill(method, batch_size=data.draw(st.none() | st.integers(1, 9)), **options)
    assert_same(together, [alone[number] for number in order])


def test_many_ragged_examples_equal_one_by_one_and_step_no_more_rows():
    """What is settled costs nothing while others go on; words that one must include cost its neighbours nothing."""
    rng = random.Random(0)
    rows = [[rng.randrange(6) for _ in range(rng.randint(1, 9))] for _ in range(24)]
    templates = [[0, *(None if rng.random() < 0.6 else word for word in row), 1] for row in rows]
    required = [(2,) if number % 3 == 0 and None in template else () for number, template in enumerate(templates)]
    problem = Problem(HistoryModel(6, 1), HistoryModel(6, 2), templates, required=required).with_models(CountingModel)
    together = problem.fill(num_return_sequences=3)
    stepped = [model.rows for model in (problem.forward, problem.backward)]
    assert_same(together, [alone.fill(num_return_sequences=3)[0] for alone in problem.alone()])
    for rows_together, model in zip(stepped, (problem.forward, problem.backward), strict=True):
        assert rows_together <= model.rows - rows_together


# A far side that knows nothing changes nothing (law 4)


@pytest.mark.parametrize("feature", ["plain", "fixed"])
@laws(20)
@given(data=st.data())
def test_with_a_uniform_backward_model_the_first_forward_pass_is_plain_forward_search(feature, data):
    problem = data.draw(one_blank[feature]).select([0])
    problem = replace(problem, backward=MatrixModel.uniform(problem.forward.vocab_size))
    options = {"num_beams": data.draw(few), "trace": True}
    (plain, *_), (steered, *_) = (
        problem.fill(num_rounds=rounds, start=start, **options)[0]
        for rounds, start in ((0, "forward"), (1, "backward"))
    )
    assert steered.trace[1].direction == plain.trace[0].direction == "forward"
    ours, theirs = ([set(dict(slot)) for slot in each.frontiers] for each in (steered.trace[1], plain.trace[0]))
    assert ours == theirs


# Left and right are alike (law 5)

TWIN = {"forward": "backward", "backward": "forward", "both": "both"}
MIRRORS = [
    (method, start, feature)
    for method, feature in CASES
    for start in (STARTS if method == "bibs" else ONE_END[:1])
    if method == "coordinate" or method in SEARCHES
]


@pytest.mark.parametrize(("method", "start", "feature"), MIRRORS)
@laws(2)
@given(data=st.data())
def test_turning_everything_round_mirrors_the_answer(method, start, feature, data):
    """The two ends change places. A search that begins at both is its own mirror image."""
    problem = data.draw(problems(feature))
    options = {"num_beams": data.draw(few), "num_rounds": 2, "num_return_sequences": 2}
    ours = problem.fill(method, start=start, **options)
    turned = problem.mirrored().fill(TWIN.get(method, method), start=TWIN[start], **options)
    back = [
        [
            replace(f, tokens=f.tokens[::-1], forward_score=f.backward_score, backward_score=f.forward_score)
            for f in fills
        ]
        for fills in turned
    ]
    assert_same(ours, back)
    if "gap" not in feature:  # one sentence may be had with several lengths, each after rounds of its own
        assert [[fill.rounds for fill in fills] for fills in ours] == [[f.rounds for f in fills] for fills in turned]


# Fills are what was asked for, and have the scores they say (laws 2 and 7)


def check_scores(problem: Problem, found: Sequence[Sequence[Fill]]) -> None:
    for alone, fills in zip(problem.alone(), found, strict=True):
        for fill in fills:
            assert fill.forward_score == close(score_from_scratch(alone.forward, fill.tokens, alone.condition))
            assert fill.backward_score == close(score_from_scratch(alone.backward, fill.tokens[::-1], alone.condition))
            assert fill.score == fill.forward_score + fill.backward_score


def check_fits(problem: Problem, fill: Fill) -> None:
    slots = stretch(problem.template, fill.lengths)
    assert all(slot in (None, token) for slot, token in zip(slots, fill.tokens, strict=True))
    assert all(length in lengths for length, lengths in zip(fill.lengths, problem.ranges(), strict=True))
    assert problem.includes(slots, fill.tokens)
    assert not set(free_words(slots, fill.tokens)) & set(problem.banned)


@of_each(CASES)
@laws(2)
@given(data=st.data())
def test_fills_are_distinct_and_sorted_keep_to_the_template_and_score_as_from_scratch(method, feature, data):
    problem = data.draw(problems(feature))
    options = {"num_beams": data.draw(few), "num_return_sequences": 3, "rescore": data.draw(st.booleans())}
    found = problem.fill(method, num_rounds=2, **options)
    check_scores(problem, found)
    for alone, fills in zip(problem.alone(), found, strict=True):
        if not fills and feature != "zeros":  # no phrase fits where words stand between the free slots
            assert feature.startswith("phrases")
            assert problem.options.get("num_lengths") or not any(each.includes for each in alone.every_fill())
        assert len({fill.tokens for fill in fills}) == len(fills) <= 3
        assert sorted(fills, key=lambda fill: -fill.ranking_score) == fills
        for fill in fills:
            check_fits(alone, fill)


@pytest.mark.parametrize("method", SAMPLERS)
@laws(50)
@given(st.integers(0, 10**6), st.sampled_from([[None], [None, None], [None, 2, None], [None] * 3]))
def test_a_sampler_never_returns_a_banned_token_whatever_zeros_a_model_has(method, seed, blank):
    models = (HistoryModel(6, seed + turn, choices=3) for turn in range(2))
    problem = Problem(*models, [[0, *blank, 1], [0, 3, *blank, 4, 1]], banned=(0, 1))
    found = problem.fill(method, num_beams=2, num_rounds=2, num_return_sequences=9, seed=seed)
    for alone, fills in zip(problem.alone(), found, strict=True):
        for fill in fills:
            check_fits(alone, fill)
            assert fill.score > -math.inf


@pytest.mark.parametrize("method", METHODS)
def test_nothing_comes_back_where_nothing_is_possible(method):
    certain = MatrixModel([[1.0, 0.0, 0.0]] * 3)
    options = {"method": method, "banned": (0,), "num_return_sequences": 2}
    assert fill_templates(certain, certain, [[0, None, 0]], **options) == [[]]
    assert fill_templates(certain, certain, [[0, None, 0], [0, None, None, 0]], **options) == [[], []]


# More rounds are never worse (law 8)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("feature", [feature for feature in FEATURES if not feature.startswith("diverse")])
@laws(2)
@given(data=st.data())
def test_the_best_score_never_falls_with_more_rounds(start, feature, data):
    problem = data.draw(problems(feature))
    num_beams, best = data.draw(few), [-math.inf] * len(problem.templates)
    for num_rounds in range(4):
        found = problem.fill(num_beams=num_beams, num_rounds=num_rounds, start=start, **ALL_LENGTHS)
        now = [fills[0].ranking_score if fills else -math.inf for fills in found]
        assert all(new >= old - 1e-9 for new, old in zip(now, best, strict=True))
        best = now


# Look-up changes nothing and saves work (law 10)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("feature", FEATURES)
@laws(2)
@given(data=st.data())
def test_rounds_with_look_up_equal_rounds_without(start, feature, data):
    problem = data.draw(problems(feature))
    options = {"num_beams": data.draw(few), "rescore": data.draw(st.booleans()), "start": start}
    found = [problem.fill(lookup=lookup, num_return_sequences=2, trace=True, **options) for lookup in (True, False)]
    assert_same(*found)
    for ours, theirs in zip(*(itertools.chain(*each) for each in found), strict=True):
        assert (ours.rounds, ours.lengths) == (theirs.rounds, theirs.lengths)
        for a, b in zip(ours.trace, theirs.trace, strict=True):
            assert (a.direction, a.tokens) == (b.direction, b.tokens)
            assert [dict(slot).keys() for slot in a.frontiers] == [dict(slot).keys() for slot in b.frontiers]


@pytest.mark.parametrize("lookup", [True, False])
@pytest.mark.parametrize("feature", ["plain", "fixed", "required", "phrases"])
@laws(10)
@given(data=st.data())
def test_no_pass_steps_more_than_b_rows_a_slot_and_contexts_are_read_once(feature, lookup, data):
    """B rows for every state of the phrases that must appear. A model that scores is stepped by passes alone."""
    problem, num_beams = data.draw(problems(feature)).select([0]), data.draw(few)
    rows = []
    for num_rounds in range(4):
        counted = problem.with_models(ScoringHistoryModel.like).with_models(CountingScoringModel)
        counted.fill(num_beams=num_beams, num_rounds=num_rounds, lookup=lookup, start="backward")
        models = counted.forward, counted.backward
        assert [(model.starts, model.contexts) for model in models] == [(1, 1)] * 2
        rows.append(sum(model.rows for model in models))
    most = num_beams * num_states(problem.words) * max(0, len(cut(problem.template)[1]) - 1)
    assert rows[0] <= most
    assert all(0 <= more - fewer <= 2 * most for fewer, more in itertools.pairwise(rows))


def test_look_up_steps_only_what_is_new():
    width, num_beams = 6, 4

    def rows(*, lookup: bool) -> list[int]:
        """Of the first pass, and of each round after it."""
        totals = [0]
        for num_rounds in range(6):
            models = [CountingScoringModel(MatrixModel.random(7, seed)) for seed in (204, 104)]
            options = {"num_beams": num_beams, "num_rounds": num_rounds, "lookup": lookup, "start": "backward"}
            bidirectional_beam_search(*models, [[0, 2, *[None] * width, 3, 1]], **options)
            totals.append(sum(model.rows for model in models))
        return [after - before for before, after in itertools.pairwise(totals)]

    new, plain = rows(lookup=True), rows(lookup=False)
    assert plain[0] == new[0] == num_beams * (width - 1)
    assert plain[1] == 2 * num_beams * (width - 1)
    assert all(0 <= some <= every for some, every in zip(new, plain, strict=True))
    assert sum(new) < 0.7 * sum(plain)
    assert new[-1] == 0  # converged: every partial fill had been scored


def test_rescoring_steps_nothing_that_the_passes_know():
    """One free slot: every log probability of the fill is known, and only what follows it must be stepped."""
    forward, backward = CountingModel(HistoryModel(5, 1)), CountingModel(HistoryModel(5, 2))
    template = [0, 2, 3, None, 4, 1]
    (fills,) = bidirectional_beam_search(forward, backward, [template], num_beams=2, num_return_sequences=5)
    assert forward.rows == len(fills) * 2  # the fill and 4 are read; 1 is only scored
    assert backward.rows == len(fills) * 3


# No call asks for more rows than its batch allows

BOUNDED = [(m, f) for m, f in CASES if m not in ("exact", "unidirectional-gibbs")]  # which try many fills of a kind


@of_each(BOUNDED)
@laws(2)
@given(data=st.data())
def test_no_call_hands_a_model_more_rows_than_its_batch_allows(method, feature, data):
    problem, counting = data.draw(problems(feature)), data.draw(st.sampled_from([CountingModel, CountingScoringModel]))
    num_beams, batch_size = data.draw(few), data.draw(st.integers(1, 2))
    counted = problem.with_models(ScoringHistoryModel.like).with_models(counting)
    counted.fill(method, num_rounds=2, num_return_sequences=2, num_beams=num_beams, batch_size=batch_size)
    states = max((num_states(words) for words in problem.required), default=1)
    for model in (counted.forward, counted.backward):
        assert model.widest <= batch_size * num_beams * states


def test_many_combinations_of_lengths_are_no_excuse_for_many_rows():
    models = [CountingScoringModel(MatrixModel.random(4, seed)) for seed in (1, 2)]
    options = {"num_beams": 3, "num_rounds": 0, "num_lengths": None, "batch_size": 1, "num_return_sequences": 2}
    (fills,) = fill_templates(*models, [[0, Gap(1, 6), 2, Gap(1, 6), 1]], banned=(0, 1), **options)
    assert len(fills) == 2
    assert all(0 < model.widest <= 3 for model in models)


# A model may score, and need know nothing of gradients


@of_each(CASES)
@laws(2)
@given(data=st.data())
def test_a_model_that_scores_and_gives_up_below_the_floor_changes_no_answer(method, feature, data):
    problem = data.draw(problems(feature))
    options = {"num_beams": data.draw(few), "num_rounds": 2, "num_return_sequences": data.draw(few)}
    assert_same(problem.with_models(FrugalHistoryModel.like).fill(method, **options), problem.fill(method, **options))


class LinearModel(torch.nn.Linear):
    """A stranger's first: the last token and one layer. It keeps all that it ever returned."""

    def __init__(self, vocab_size: int):
        super().__init__(vocab_size, vocab_size, dtype=torch.float64)
        self.vocab_size = vocab_size
        self.kept: list[Tensor] = []

    def start(self, contexts: Sequence[Sequence[int]], conditions: object = None) -> tuple[Tensor, Tensor, Tensor]:
        read = [torch.tensor(context) for context in contexts]
        scores = [self.step(tokens[:-1])[0].gather(1, tokens[1:, None]).sum() for tokens in read]
        return *self.step(torch.stack([tokens[-1] for tokens in read])), torch.stack(scores)

    def step(self, tokens: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        state = self.weight[tokens]  # (R, V)
        self.kept += [state, log_probs := self(state).log_softmax(1)]
        return log_probs, state


@pytest.mark.parametrize("method", METHODS)
def test_a_model_with_gradients_on_works_and_leaves_no_graph(method):
    torch.manual_seed(0)
    models = [LinearModel(5), LinearModel(5)]
    templates = [[0, 2, None, None, 3, 1], [0, Gap(1, 4), 1]]
    found = fill_templates(*models, templates, method=method, banned=(0, 1), num_rounds=2)
    assert torch.is_grad_enabled()
    assert all(model.kept and not any(tensor.requires_grad for tensor in model.kept) for model in models)
    for (fill,) in found:
        assert all(type(score) is float for score in (fill.score, fill.ranking_score, fill.forward_score))
        whole = score_from_scratch(models[0], fill.tokens), score_from_scratch(models[1], fill.tokens[::-1])
        assert (fill.forward_score, fill.backward_score) == close(whole)
    models[0].start([[0, 2, 1]])[2].sum().backward()  # it can still be trained
    assert all(parameter.grad is not None for parameter in models[0].parameters())


# Both ends, both doors, answers that differ


@laws(10)
@given(problem=problems("fixed"), num_beams=few)
def test_a_search_begins_at_both_ends_unless_told(problem, num_beams):
    assert problem.fill(num_beams=num_beams, trace=True) == problem.fill(num_beams=num_beams, trace=True, start="both")


@pytest.mark.parametrize("feature", [*KNOWN, "diverse"])
@laws(6)
@given(data=st.data())
def test_the_two_doors_are_one(feature, data):
    problem, options = data.draw(problems(feature)), data.draw(widths_and_rounds)
    options |= {"rescore": data.draw(st.booleans()), "lookup": data.draw(st.booleans()), "trace": True}
    options |= {"num_return_sequences": 2, "batch_size": 1, "start": data.draw(st.sampled_from(ONE_END))}
    direct = bidirectional_beam_search(
        problem.forward, problem.backward, problem.templates, conditions=problem.conditions, banned=problem.banned,
        must_include=problem.required or None, **problem.options, **options,
    )  # fmt: skip
    assert direct == problem.fill("bibs", **options)


@of_each((method, feature) for method, feature in EXACT if feature.startswith("diverse"))
@laws(4)
@given(data=st.data())
def test_the_plain_answer_is_among_those_that_differ_and_the_only_one_where_one_is_asked_for(method, feature, data):
    problem, options = data.draw(problems(feature)), {"num_beams": data.draw(few)}
    plain = problem.fill(method, diversity_penalty=0.0, **options)
    assert_same(problem.fill(method, **options), plain)
    for (best,), fills in zip(plain, problem.fill(method, num_return_sequences=3, **options), strict=True):
        assert best.tokens in [fill.tokens for fill in fills]
        assert fills[0].ranking_score >= best.ranking_score - 1e-9


# The laws can fail


@pytest.mark.parametrize("honest", [True, False])
def test_the_laws_catch_a_state_in_the_wrong_order(honest):
    def turn(where: str, log_probs: Tensor, state: Any) -> tuple[Tensor, Any]:
        return log_probs, select_rows(state, torch.arange(len(log_probs)).roll(0 if honest else 1))

    problem = Problem(HistoryModel(4, 1), HistoryModel(4, 2), [[0, 2, None, None, None, None, 3, 1]])
    searched = problem.with_models(lambda model: TamperingModel(model, turn))
    options = {"num_rounds": 2, "start": "backward"}
    narrow = searched.fill(num_beams=3, trace=True, **options)
    wide = searched.fill(num_beams=300, num_return_sequences=300, **options)
    passes = judged_passes(problem, problem.template, num_beams=3, **options)
    for check in (
        lambda: check_passes(problem, narrow[0][0], passes),
        lambda: check_scores(problem, narrow),
        lambda: check_exact(problem, "bibs", wide, 300),
    ):
        with contextlib.nullcontext() if honest else pytest.raises(AssertionError):
            check()


# Small facts


def test_the_beams_of_a_hand_written_matrix_can_be_followed():
    #     START  END    a     b     c
    forward = MatrixModel(
        [
            [0.00, 0.00, 0.60, 0.30, 0.10],  # after START
            [0.20, 0.20, 0.20, 0.20, 0.20],  # after END: never asked
            [0.00, 0.10, 0.10, 0.50, 0.30],  # after a
            [0.00, 0.70, 0.10, 0.10, 0.10],  # after b
            [0.00, 0.30, 0.10, 0.10, 0.50],  # after c
        ]
    )
    backward = MatrixModel(
        [
            [0.20, 0.20, 0.20, 0.20, 0.20],  # before START: never asked
            [0.00, 0.00, 0.12, 0.08, 0.80],  # before END
            [0.40, 0.00, 0.20, 0.20, 0.20],  # before a
            [0.30, 0.00, 0.50, 0.10, 0.10],  # before b
            [0.10, 0.00, 0.30, 0.50, 0.10],  # before c
        ]
    )
    a, b, c = 2, 3, 4
    template = [0, None, None, 1]
    # Forward alone takes a, then b: .6 x .5. Backward alone takes c, then b: .8 x .5.
    assert fill_templates(forward, backward, [template], method="forward")[0][0].tokens == (0, a, b, 1)
    assert fill_templates(forward, backward, [template], method="backward")[0][0].tokens == (0, b, c, 1)
    # Together they prefer a c: .6 x .3 x .3 forward and .8 x .3 x .4 backward make .0052;
    # a b has .6 x .5 x .7 and .08 x .5 x .4, .0034; b c has .3 x .1 x .3 and .8 x .5 x .3, .0011.
    options = {"num_beams": 2, "start": "backward", "trace": True}
    best = bidirectional_beam_search(forward, backward, [template], **options)[0][0]
    assert best.tokens == (0, a, c, 1)
    assert math.exp(best.score) == pytest.approx(0.6 * 0.3 * 0.3 * 0.8 * 0.3 * 0.4)
    # The plain pass from the right holds c (.8) and a (.12) when it stands at the first slot. The next pass therefore
    # ranks its first words by .6 x .24 for a, .3 x .40 for b and .1 x .08 for c, and holds a and b.
    init, first = best.trace[:2]
    assert [set(dict(slot)) for slot in init.frontiers] == [{()}, {(c,), (a,)}]
    assert [set(dict(slot)) for slot in first.frontiers] == [{()}, {(a,), (b,)}]


def test_a_far_side_that_fits_nothing_is_ignored():
    """From 0 to 5 in five steps there is one path; from 0 by way of 3 and back in six, too."""
    walker = MatrixModel.walk(6)
    up, hill = [0, None, None, None, None, 5], [0, None, None, None, None, None, 0]
    for num_beams in (2, 8):
        options = {"num_beams": num_beams, "num_return_sequences": 3}
        (fills,) = bidirectional_beam_search(walker, walker, [up], **options)
        assert [fill.tokens for fill in fills] == [(0, 1, 2, 3, 4, 5)]
        (fills,) = bidirectional_beam_search(walker, walker, [hill], must_include=[(3,)], **options)
        assert [fill.tokens for fill in fills] == [(0, 1, 2, 3, 2, 1, 0)]
    assert bidirectional_beam_search(walker, walker, [[0, None, 5]]) == [[]]
    assert bidirectional_beam_search(walker, walker, [hill], must_include=[(5,)]) == [[]]


def test_subsets_of_words_that_no_beam_holds_are_not_stepped():
    forward, backward = CountingModel(HistoryModel(6, 1)), CountingModel(HistoryModel(6, 2))
    template = [0, None, None, None, None, 1]
    fill_templates(forward, backward, [template], method="backward", must_include=[(2, 3, 4)], num_beams=2)
    # All eight subsets of two would be 16 rows a slot. After one token: three words still to come in three slots (2
    # beams), or one of them held (1 each). After two: one held (6), or two (6). After three: two held (6), or all (2).
    assert backward.rows - len(template[1:-1]) - 1 <= 5 + 12 + 8


def test_answers_that_differ_can_be_followed_on_a_hand_written_matrix():
    # Forward prefers a to b to c, 5 : 3 : 2, whatever came before; backward has no opinion.
    forward, backward = MatrixModel([[0.0, 0.0, 0.5, 0.3, 0.2]] * 5), MatrixModel([[0.2] * 5] * 5)
    a, b, c = 2, 3, 4

    def answers(penalty: float) -> list[tuple[int, ...]]:
        options = {"method": "forward", "num_return_sequences": 3, "diversity_penalty": penalty}
        (fills,) = fill_templates(forward, backward, [[0, None, None, 1]], **options)
        return [fill.tokens[1:3] for fill in fills]

    # a a has .25, a b and b a .15, a c and c a .10, b b .09, b c and c b .06, c c .04. Where a word costs half its
    # probability for each answer that holds it: after a a comes b b, .09, before a b with .15 / 2; then a c with
    # .10 / 2 before c c, .04. At two thirds off, c c comes before a c, .10 / 3.
    half = answers(math.log(2))
    assert [half[0], set(half[1]), half[2]] == [(a, a), {a, c}, (b, b)]
    assert answers(math.log(3)) == [(a, a), (b, b), (c, c)]


def test_no_templates_give_no_results_and_a_beam_may_be_wider_than_the_space():
    models = HistoryModel(4, 1), HistoryModel(4, 2)
    assert bidirectional_beam_search(*models, []) == []
    (fills,) = bidirectional_beam_search(*models, [[0, None, None, 1]], num_beams=1000)
    assert len(fills) == 1


def test_rounds_count_up_to_convergence():
    models, template = (MatrixModel.random(6, 104), MatrixModel.random(6, 204)), [[0, *[None] * 5, 1]]
    options = {"num_beams": 2, "start": "backward", "trace": True}
    (settled,) = bidirectional_beam_search(*models, template, num_rounds=50, **options)[0]
    assert 1 <= settled.rounds < 50
    assert len(settled.trace) in (2 * settled.rounds, 2 * settled.rounds + 1)
    assert bidirectional_beam_search(*models, template, num_rounds=0)[0][0].rounds == 0
