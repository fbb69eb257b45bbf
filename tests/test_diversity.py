"""Groups of beams that avoid each other's words: judged by a search written out by hand, and by the plain search."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bibs.search import METHODS, Fill, Opening, Pass, beam_search, bidirectional_beam_search, fill_templates
from bibs.search.bidirectional import frontiers_of
from bibs.search.methods import SAMPLERS
from bibs.search.template import Gap, Layout, stretch
from by_hand import search_by_hand
from fakes import CountingModel, HistoryModel, MatrixModel, PickyModel, score_from_scratch
from test_constraints import includes, problems
from test_laws import assert_same_fills

laws = settings(max_examples=25, deadline=None)
pytestmark = pytest.mark.filterwarnings("ignore:`num_return_sequences`")

BEAM_METHODS = [method for method in METHODS if method not in (*SAMPLERS, "exact")]
penalties = st.sampled_from([0.3, 1.0, 5.0])


@settings(max_examples=60, deadline=None)
@given(
    problems(max_required=1) | problems(max_required=1, kind=PickyModel),
    st.integers(1, 3),
    st.integers(2, 3),
    penalties,
)
def test_every_pass_of_every_group_equals_the_search_written_out_by_hand(problem, num_beams, num_groups, penalty):
    forward, backward, many, required, banned = problem
    template, words = max(zip(many, required, strict=True), key=lambda pair: len(Layout.of(pair[0]).region))
    layout = Layout.of(template, words)
    openings = [
        Opening.read("backward", backward, [layout.mirrored()] * num_groups, banned=banned),
        Opening.read("forward", forward, [layout] * num_groups, banned=banned),
    ]
    judged = search_by_hand(
        forward, backward, template, required=words, banned=banned, num_beams=num_beams, num_rounds=2,
        num_groups=num_groups, penalty=penalty,
    )  # fmt: skip
    found = [[[set(slot) for slot in one.frontiers] for one in groups] for groups in judged]
    passes: list[Pass] = []
    for number, truth in enumerate(judged):
        latest = beam_search(
            openings[number % 2],
            num_beams=num_beams,
            messages=passes[-1].messages if passes else None,
            previous=passes[-2] if number >= 2 else None,
            num_groups=num_groups,
            diversity_penalty=penalty,
        )
        ours = frontiers_of(latest, [len(layout.region)] * num_groups)
        assert [[set(dict(slot)) for slot in slots] for slots in ours] == found[number]
        same = [number >= 2 and found[number][group] == found[number - 2][group] for group in range(num_groups)]
        assert latest.settled.tolist() == [all(same[: group + 1]) for group in range(num_groups)]
        tokens, _, ranking = latest.fills()
        for group, one in enumerate(truth):
            values = zip(map(tuple, tokens[group].tolist()), ranking[group].tolist(), strict=True)
            alive = {fill: value for fill, value in values if value > -float("inf")}
            assert alive == pytest.approx(one.ranking, abs=1e-9)
        passes.append(latest)


@laws
@given(problems(), st.sampled_from(BEAM_METHODS), st.integers(1, 3), penalties)
def test_the_answers_are_distinct_sorted_and_those_of_the_plain_search_lead(problem, method, num_beams, penalty):
    forward, backward, many, required, banned = problem
    options = {"method": method, "banned": banned, "must_include": required, "num_beams": num_beams}
    plain = fill_templates(forward, backward, many, **options)
    diverse = fill_templates(forward, backward, many, num_return_sequences=3, diversity_penalty=penalty, **options)
    for template, words, (best, *_), fills in zip(many, required, plain, diverse, strict=True):
        first = next(fill for fill in fills if fill.group == 0)
        assert_same_fills([[best]], [[first]])
        assert len({fill.tokens for fill in fills}) == len(fills)
        assert len({fill.group for fill in fills}) == len(fills)
        assert fills == sorted(fills, key=lambda fill: -fill.ranking_score)
        for fill in fills:
            assert includes(template, fill.tokens, words)
            for slot, token in zip(template, fill.tokens, strict=True):
                assert token not in banned if slot is None else token == slot
            assert fill.forward_score == pytest.approx(score_from_scratch(forward, fill.tokens), abs=1e-9)
            assert fill.backward_score == pytest.approx(score_from_scratch(backward, fill.tokens[::-1]), abs=1e-9)


@laws
@given(problems(), st.integers(1, 3), st.sampled_from(BEAM_METHODS))
def test_no_penalty_and_no_second_answer_change_nothing(problem, num_beams, method):
    forward, backward, many, required, banned = problem
    options = {"method": method, "banned": banned, "must_include": required, "num_beams": num_beams}
    for num, penalty in ((3, 0.0), (1, 2.0)):
        plain = fill_templates(forward, backward, many, num_return_sequences=num, **options)
        asked = fill_templates(forward, backward, many, num_return_sequences=num, diversity_penalty=penalty, **options)
        assert asked == plain


@laws
@given(problems(), st.sampled_from(BEAM_METHODS), penalties, st.randoms(use_true_random=False))
def test_a_batch_equals_its_items_one_by_one(problem, method, penalty, rng: random.Random):
    forward, backward, many, required, banned = problem
    options = {"method": method, "banned": banned, "num_return_sequences": 3, "diversity_penalty": penalty}
    options |= {"num_beams": 2}
    together = fill_templates(forward, backward, many, must_include=required, batch_size=rng.randint(1, 40), **options)
    alone = [
        fill_templates(forward, backward, [template], must_include=[words], **options)[0]
        for template, words in zip(many, required, strict=True)
    ]
    assert_same_fills(together, alone)


@laws
@given(problems(), st.integers(1, 3), penalties)
def test_look_up_changes_nothing_and_a_mirror_mirrors(problem, num_beams, penalty):
    forward, backward, many, required, banned = problem
    options = {"banned": banned, "must_include": required, "num_beams": num_beams}
    options |= {"num_return_sequences": 3, "diversity_penalty": penalty}
    ours = bidirectional_beam_search(forward, backward, many, **options)
    assert_same_fills(ours, bidirectional_beam_search(forward, backward, many, lookup=False, **options))
    turned = bidirectional_beam_search(backward, forward, [t[::-1] for t in many], start="forward", **options)
    for fills, twins in zip(ours, turned, strict=True):
        assert [fill.tokens for fill in fills] == [twin.tokens[::-1] for twin in twins]


def test_groups_on_a_hand_written_matrix_can_be_followed():
    # One slot; forward prefers a to b to c, 5 : 3 : 2, whatever came before; backward has no opinion.
    words = [[0.0, 0.0, 0.5, 0.3, 0.2]] * 5
    even = MatrixModel([[0.2] * 5] * 5)
    a, b, c = 2, 3, 4
    options = {"method": "forward", "num_beams": 1, "num_return_sequences": 3}

    def slots(penalty: float) -> list[tuple[int, int]]:
        (fills,) = fill_templates(MatrixModel(words), even, [[0, None, None, 1]], diversity_penalty=penalty, **options)
        return [fill.tokens[1:3] for fill in sorted(fills, key=lambda fill: fill.group)]

    # log 5/3 is .51, log 5/2 is .92 and log 3/2 is .41: a penalty of .6 makes the second group take b, but the third,
    # which pays it for a and for b alike, takes a again: a new answer it has not. One of 1 takes c.
    assert slots(0.6) == [(a, a), (b, b)]
    assert slots(1.0) == [(a, a), (b, b), (c, c)]


def test_contexts_are_read_once_for_all_groups():
    forward, backward = CountingModel(HistoryModel(5, 1)), CountingModel(HistoryModel(5, 2))
    templates = [[0, 2, None, None, 4, 1], [0, None, None, 3, 1]]
    fill_templates(forward, backward, templates, num_return_sequences=4, diversity_penalty=1.0)
    assert (forward.starts, forward.contexts) == (1, 2)
    assert (backward.starts, backward.contexts) == (1, 2)


@pytest.mark.parametrize("method", ["bibs", "forward", "rerank-max"])
def test_with_a_gap_each_group_answers_with_its_best_over_all_lengths(method):
    forward, backward = HistoryModel(6, 1), HistoryModel(6, 2)
    templates = [[0, 2, Gap(1, 4), 3, 1], [0, 2, None, None, 1]]
    options = {"method": method, "banned": (0, 1), "num_beams": 2}
    plain = fill_templates(forward, backward, templates, **options)
    diverse = fill_templates(forward, backward, templates, num_return_sequences=3, diversity_penalty=2.0, **options)
    for template, (best, *_), fills in zip(templates, plain, diverse, strict=True):
        assert len(fills) == 3
        assert_same_fills([[best]], [[fill for fill in fills if fill.group == 0]])
        assert sorted({fill.group for fill in fills}) == [0, 1, 2]
        assert fills == sorted(fills, key=lambda fill: -fill.ranking_score)
        for fill in fills:
            assert_fits(template, fill)


def assert_fits(template: list[int | Gap | None], fill: Fill) -> None:
    for slot, token in zip(stretch(template, fill.lengths), fill.tokens, strict=True):
        assert slot is None or slot == token


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"diversity_penalty": -1}, "`diversity_penalty` must be a number of at least 0, but is -1"),
        ({"diversity_penalty": float("nan")}, "`diversity_penalty` must be a number of at least 0, but is nan"),
        *(
            (
                {"method": method, "diversity_penalty": 1.0},
                f"`diversity_penalty` must be 0 where `method` has no beams, but it is '{method}'",
            )
            for method in (*SAMPLERS, "exact")
        ),
    ],
)
def test_a_bad_penalty_gets_one_clear_line(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        fill_templates(HistoryModel(4, 1), HistoryModel(4, 2), [[0, None, 1]], **options)
