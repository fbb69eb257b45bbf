"""Words that must or must not appear: exact, judged by enumeration and by a search written out by hand."""

from __future__ import annotations

import math
import random
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bibs.search import Opening, Pass, beam_search, bidirectional_beam_search, fill_templates
from bibs.search.bidirectional import frontiers_of
from bibs.search.length_prior import UNFITTED
from bibs.search.lengths import plan_lengths
from bibs.search.methods import SAMPLERS
from bibs.search.settings import LengthRule, Settings
from bibs.search.template import Gap, Layout, stretch
from by_hand import held, search_by_hand
from fakes import CountingModel, HistoryModel, MatrixModel, PickyModel, enumerate_scores, score_from_scratch
from test_laws import assert_same_fills, templates

laws = settings(max_examples=25, deadline=None)
pytestmark = pytest.mark.filterwarnings("ignore:`num_return_sequences`")

Template = list[int | None]
Problem = tuple[HistoryModel, HistoryModel, list[Template], list[tuple[int, ...]], tuple[int, ...]]


@st.composite
def problems(draw: st.DrawFn, *, max_required: int = 2, kind: type[HistoryModel] = HistoryModel) -> Problem:
    """Templates that each require some words, at most as many as there are free slots. Fixed ones do not count."""
    vocab_size = draw(st.integers(3, 4)) if kind is HistoryModel else 6
    forward, backward = (kind(vocab_size, draw(st.integers(0, 999))) for _ in range(2))
    banned = draw(st.sampled_from([(), (0,)]))
    words = [token for token in range(vocab_size) if token not in banned]
    many = draw(st.lists(templates(vocab_size), min_size=1, max_size=3))
    required = [
        tuple(draw(st.permutations(words))[: draw(st.integers(0, min(max_required, template.count(None))))])
        for template in many
    ]
    for template, tokens in zip(many, required, strict=True):
        first, last = template.index(None), len(template) - 1 - template[::-1].index(None)
        for slot in range(first + 1, last):
            spare = template[slot] is not None or template.count(None) > len(tokens)
            if tokens and spare and draw(st.booleans()):
                template[slot] = draw(st.sampled_from(tokens))
    return forward, backward, many, required, banned


def includes(template: Template, tokens: tuple[int, ...], required: tuple[int, ...]) -> bool:
    return held(tokens, template, required) == set(required)


@laws
@given(problems(), st.sampled_from(["bibs", "rerank-sum", "rerank-max", "exact"]))
def test_with_wide_beams_the_fills_that_include_the_words_come_back_in_order(problem, method):
    forward, backward, many, required, banned = problem
    found = fill_templates(
        forward, backward, many, method=method, banned=banned, must_include=required,
        num_beams=256, num_return_sequences=256, num_rounds=1,
    )  # fmt: skip
    for template, words, fills in zip(many, required, found, strict=True):
        truth = enumerate_scores(forward, backward, template, banned)
        by = {tokens: max(pair) if method == "rerank-max" else sum(pair) for tokens, pair in truth.items()}
        ranked = sorted((tokens for tokens in by if includes(template, tokens, words)), key=lambda t: -by[t])
        assert ranked
        assert [fill.tokens for fill in fills] == ranked
        assert fills[0].ranking_score == pytest.approx(by[ranked[0]], abs=1e-9)


@laws
@given(problems(), st.sampled_from(["forward", "backward"]))
def test_a_wide_plain_beam_finds_the_best_under_its_own_model_of_those_that_include(problem, method):
    forward, backward, many, required, banned = problem
    found = fill_templates(forward, backward, many, method=method, banned=banned, must_include=required, num_beams=256)
    for template, words, (best, *_) in zip(many, required, found, strict=True):
        layout, model = (
            (Layout.of(template), forward) if method == "forward" else (Layout.of(template).mirrored(), backward)
        )
        own = {}
        for tokens in enumerate_scores(forward, backward, template, banned):
            if includes(template, tokens, words):
                read = (tokens if method == "forward" else tokens[::-1])[: len(layout.context) + len(layout.region)]
                own[tokens] = score_from_scratch(model, read) - score_from_scratch(model, layout.context)
        assert best.tokens == max(own, key=lambda tokens: own[tokens])
        assert best.ranking_score == pytest.approx(own[best.tokens], abs=1e-9)


@laws
@given(problems(max_required=3), st.integers(1, 3), st.sampled_from([1, 4]))
def test_every_pass_equals_the_search_written_out_by_hand(problem, num_beams, num_rounds):
    forward, backward, many, required, banned = problem
    found = bidirectional_beam_search(
        forward, backward, many, banned=banned, must_include=required, num_beams=num_beams, num_rounds=num_rounds,
        trace=True,
    )  # fmt: skip
    for template, words, (best, *_) in zip(many, required, found, strict=True):
        judged = search_by_hand(
            forward, backward, Layout.of(template, words), banned=banned, num_beams=num_beams, num_rounds=num_rounds
        )
        assert len(best.trace) <= len(judged)
        for ours, theirs in zip(best.trace, judged, strict=False):
            for frontier, truth in zip(ours.frontiers, theirs.frontiers, strict=True):
                assert dict(frontier) == pytest.approx(truth, abs=1e-9)
            turn = 1 if ours.direction == "forward" else -1
            top = max(theirs.ranking, key=lambda fill: theirs.ranking[fill])
            assert ours.tokens == Layout.of(template).fill(top[::turn])
            assert ours.ranking_score == pytest.approx(theirs.ranking[top], abs=1e-9)
        # What left early had converged: the passes that it skipped would have changed nothing.
        skipped = judged[len(best.trace) :]
        for earlier, later in zip(judged[len(best.trace) - 2 :], skipped, strict=False):
            assert [set(frontier) for frontier in earlier.frontiers] == [set(frontier) for frontier in later.frontiers]


@settings(max_examples=60, deadline=None)
@given(problems(kind=PickyModel), st.integers(1, 3), st.booleans())
def test_passes_of_models_to_which_much_is_impossible_equal_those_by_hand(problem, num_beams, lookup):
    forward, backward, many, required, banned = problem
    template, words = max(zip(many, required, strict=True), key=lambda pair: len(Layout.of(pair[0]).region))
    check_passes_by_hand(forward, backward, Layout.of(template, words), banned, num_beams, lookup)


def check_passes_by_hand(
    forward: HistoryModel,
    backward: HistoryModel,
    layout: Layout,
    banned: tuple[int, ...],
    num_beams: int,
    lookup: bool,
) -> None:
    openings = [
        Opening.read("backward", backward, [layout.mirrored()], banned=banned),
        Opening.read("forward", forward, [layout], banned=banned),
    ]
    judged = search_by_hand(forward, backward, layout, banned=banned, num_beams=num_beams, num_rounds=3)
    passes: list[Pass] = []
    for number, truth in enumerate(judged):
        latest = beam_search(
            openings[number % 2],
            num_beams=num_beams,
            facing=passes[-1] if passes else None,
            previous=passes[-2] if number >= 2 else None,
            keep=lookup,
        )
        (slots,) = frontiers_of(latest, [len(layout.region)])
        assert list(map(dict, slots)) == [pytest.approx(frontier, abs=1e-9) for frontier in truth.frontiers]
        same = number >= 2 and list(map(set, truth.frontiers)) == list(map(set, judged[number - 2].frontiers))
        assert bool(latest.settled[0]) == same
        tokens, _, ranking = latest.fills()
        values = zip(map(tuple, tokens[0].tolist()), ranking[0].tolist(), strict=True)
        assert {fill: value for fill, value in values if value > -math.inf} == pytest.approx(truth.ranking, abs=1e-9)
        passes.append(latest)


@laws
@given(
    problems(max_required=4),
    st.sampled_from(["bibs", "forward", "backward", "rerank-max", "rerank-sum", "exact"]),
    st.integers(1, 3),
    st.booleans(),
)
def test_at_any_width_every_fill_includes_the_words_and_nothing_banned(problem, method, num_beams, rescore):
    forward, backward, many, required, banned = problem
    found = fill_templates(
        forward, backward, many, method=method, banned=banned, must_include=required, num_beams=num_beams,
        num_return_sequences=4, rescore=rescore,
    )  # fmt: skip
    for template, words, fills in zip(many, required, found, strict=True):
        assert fills
        assert len({fill.tokens for fill in fills}) == len(fills)
        for fill in fills:
            assert includes(template, fill.tokens, words)
            for slot, token in zip(template, fill.tokens, strict=True):
                assert token not in banned if slot is None else token == slot
            assert fill.forward_score == pytest.approx(score_from_scratch(forward, fill.tokens), abs=1e-9)
            assert fill.backward_score == pytest.approx(score_from_scratch(backward, fill.tokens[::-1]), abs=1e-9)


@laws
@given(problems(max_required=0), st.integers(1, 3))
def test_nothing_required_changes_nothing(problem, num_beams):
    forward, backward, many, required, banned = problem
    options = {"banned": banned, "num_beams": num_beams, "num_return_sequences": 3, "trace": True}
    plain = bidirectional_beam_search(forward, backward, many, **options)
    assert bidirectional_beam_search(forward, backward, many, must_include=required, **options) == plain


@laws
@given(problems(max_required=3), st.integers(1, 3), st.randoms(use_true_random=False))
def test_a_batch_of_mixed_requirements_equals_its_items_one_by_one(problem, num_beams, rng: random.Random):
    forward, backward, many, required, banned = problem
    options = {"banned": banned, "num_beams": num_beams, "num_return_sequences": 3}
    together = bidirectional_beam_search(
        forward, backward, many, must_include=required, batch_size=rng.randint(1, 20), **options
    )
    alone = [
        bidirectional_beam_search(forward, backward, [template], must_include=[words], **options)[0]
        for template, words in zip(many, required, strict=True)
    ]
    assert_same_fills(together, alone)


@laws
@given(problems(max_required=3), st.integers(1, 3))
def test_mirrored_models_and_templates_give_the_mirrored_answer(problem, num_beams):
    forward, backward, many, required, banned = problem
    options = {"banned": banned, "must_include": required, "num_beams": num_beams, "num_return_sequences": 3}
    ours = bidirectional_beam_search(forward, backward, many, start="backward", **options)
    turned = bidirectional_beam_search(backward, forward, [t[::-1] for t in many], start="forward", **options)
    for fills, twins in zip(ours, turned, strict=True):
        assert [fill.tokens for fill in fills] == [twin.tokens[::-1] for twin in twins]


@laws
@given(problems(max_required=3), st.integers(1, 3))
def test_rounds_with_look_up_equal_rounds_without(problem, num_beams):
    forward, backward, many, required, banned = problem
    options = {"banned": banned, "must_include": required, "num_beams": num_beams, "num_return_sequences": 3}
    found = [
        bidirectional_beam_search(forward, backward, many, lookup=lookup, trace=True, **options)
        for lookup in (True, False)
    ]
    assert_same_fills(*found)
    for ours, theirs in zip(*found, strict=True):
        assert ours[0].rounds == theirs[0].rounds
        for a, b in zip(ours[0].trace, theirs[0].trace, strict=True):
            assert [dict(slot).keys() for slot in a.frontiers] == [dict(slot).keys() for slot in b.frontiers]


def test_a_word_is_found_where_the_far_beams_fit_nothing():
    # A path along a line of six cells: every step moves one cell. From 0 and back in six steps, by way of 3: one path.
    line = torch.zeros(6, 6)
    for cell in range(6):
        for neighbour in (cell - 1, cell + 1):
            if 0 <= neighbour < 6:
                line[cell, neighbour] = 1.0
    walker = MatrixModel(line / line.sum(1, keepdim=True))
    template = [0, None, None, None, None, None, 0]
    for num_beams in (1, 2, 5):
        (fills,) = bidirectional_beam_search(
            walker, walker, [template], must_include=[(3,)], num_beams=num_beams, num_return_sequences=3
        )
        assert [fill.tokens for fill in fills] == [(0, 1, 2, 3, 2, 1, 0)]
    assert bidirectional_beam_search(walker, walker, [template], must_include=[(5,)]) == [[]]


def test_empty_banks_are_not_stepped():
    forward, backward = CountingModel(HistoryModel(6, 1)), CountingModel(HistoryModel(6, 2))
    template: Template = [0, None, None, None, None, 1]
    fill_templates(forward, backward, [template], method="backward", must_include=[(2, 3, 4)], num_beams=2)
    # All eight banks of two would be 16 rows a slot. After one token: three words still to come in three slots (2
    # beams), or one of them held (1 each). After two: one held (6), or two (6). After three: two held (6), or all (2).
    assert backward.rows - len(template[1:-1]) - 1 <= 5 + 12 + 8
    forward, backward = CountingModel(HistoryModel(6, 1)), CountingModel(HistoryModel(6, 2))
    fill_templates(forward, backward, [template] * 2, must_include=[(), (2,)], num_beams=2, num_rounds=0)
    assert (forward.starts, backward.starts) == (2, 2)  # a batch for each number of words: the plain one pays nothing


@laws
@given(st.integers(0, 500), st.integers(0, 3), st.sampled_from(["paper", "unknown", "two gaps"]))
def test_gaps_are_never_too_short_for_the_words(seed, num_required, case):
    forward, backward = HistoryModel(5, seed), HistoryModel(5, seed + 1000)
    template = [0, None, Gap(0, 3), 3, 1]
    if case == "two gaps":
        template = [0, None, Gap(0, 1), 3, Gap(0, 2), 1]
    required = (2, 3, 4)[:num_required]
    rule: LengthRule = "paper" if case == "paper" else "unknown"
    settings = Settings(num_beams=81, lengths=rule)
    options = {"banned": (0, 1), "num_beams": 81, "lengths": rule}
    (best,) = fill_templates(forward, backward, [template], must_include=[required], **options)[0]
    (plan,) = plan_lengths(forward, backward, [template], settings, banned=(0, 1), required=[required])
    assert min(map(sum, plan.first)) >= max(0, num_required - 1)
    truth = {}
    for lengths in plan.first:
        slots = stretch(template, lengths)
        bonus = UNFITTED.bonus("sum", words=sum(lengths), given=plan.given) if rule == "unknown" else 0.0
        for tokens, pair in enumerate_scores(forward, backward, slots, (0, 1)).items():
            if includes(slots, tokens, required):
                truth[tokens] = max(sum(pair) + bonus, truth.get(tokens, -math.inf))
    assert best.tokens == max(truth, key=lambda tokens: truth[tokens])


@pytest.mark.parametrize(
    ("required", "options", "message"),
    [
        ([(2,), (3,)], {}, "`must_include` must hold one per template (1), but holds 2"),
        ([2], {}, "`must_include[0]` must be a list of token ids, but is 2"),
        ([(2, 3, 4, 5, 6)], {}, "`must_include[0]` must hold at most 4 tokens, but holds 5"),
        ([(9,)], {}, "`must_include[0]` must hold ids from 0 to 7, but holds 9"),
        ([(2,)], {"banned": (0, 2)}, "`must_include[0]` must hold no id that is `banned`, but holds 2"),
        ([(2, 2)], {}, "`must_include[0]` must hold distinct ids, but holds [2, 2]"),
        ([(2, 3, 4)], {}, "`must_include[0]` must fit in the free slots of its template (2), but holds 3"),
        *(
            ([(2,)], {"method": method}, f"`must_include` must be empty where `method` is a sampler, but '{method}' is")
            for method in SAMPLERS
        ),
    ],
)
def test_bad_requirements_get_one_clear_line(required, options, message):
    models = HistoryModel(8, 1), HistoryModel(8, 2)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        fill_templates(*models, [[0, 3, None, None, 1]], must_include=required, **options)
    assert "\n" not in str(error.value)


def test_a_gap_that_may_not_be_long_enough_is_named():
    models = HistoryModel(8, 1), HistoryModel(8, 2)
    with pytest.raises(ValueError, match=re.escape("fit in the free slots of its template (2), but holds 3")):
        fill_templates(*models, [[0, Gap(1, 2), 1]], must_include=[(2, 3, 4)])
    with pytest.raises(ValueError, match="`max_length` must be at least the 3 words of a blank, but is 2"):
        fill_templates(*models, [[0, Gap(), 1]], must_include=[(2, 3, 4)], max_length=2)
    assert math.isfinite(fill_templates(*models, [[0, Gap(), 1]], must_include=[(2, 3, 4)])[0][0].score)
