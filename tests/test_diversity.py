"""Answers that avoid the words of those before: judged by enumeration, by hand and by the plain search."""

from __future__ import annotations

import math
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bibs.search import METHODS, Fill, bidirectional_beam_search, fill_templates
from bibs.search.methods import SAMPLERS
from bibs.search.template import Gap, Layout, Penalties, stretch
from fakes import HistoryModel, MatrixModel, PickyModel, enumerate_scores, score_from_scratch
from test_constraints import check_passes_by_hand, includes, problems
from test_laws import assert_same_fills

laws = settings(max_examples=15, deadline=None)
pytestmark = pytest.mark.filterwarnings("ignore:`num_return_sequences`")

SEARCHES = [method for method in METHODS if method not in SAMPLERS]
penalties = st.sampled_from([0.3, 1.0, 5.0])


def free_words(template: list[int | None], tokens: tuple[int, ...]) -> list[int]:
    return [token for token, slot in zip(tokens, template, strict=True) if slot is None]


@laws
@given(problems(), st.sampled_from(SEARCHES), penalties)
def test_with_wide_beams_each_answer_is_the_best_new_one_less_what_its_words_lose(problem, method, penalty):
    forward, backward, many, required, banned = problem
    found = fill_templates(
        forward, backward, many, method=method, banned=banned, must_include=required, num_beams=256,
        num_return_sequences=4, num_rounds=1, diversity_penalty=penalty,
    )  # fmt: skip
    for template, words, fills in zip(many, required, found, strict=True):
        truth = enumerate_scores(forward, backward, template, banned)
        layout = Layout.of(template)
        scores = {}
        for tokens, pair in truth.items():
            if includes(template, tokens, words):
                near = tokens[: len(layout.context) + len(layout.region)], tokens[len(layout.context) :][::-1]
                scores[tokens] = {
                    "forward": score_from_scratch(forward, near[0]) - score_from_scratch(forward, layout.context),
                    "backward": score_from_scratch(backward, near[1]) - score_from_scratch(backward, layout.rest[::-1]),
                    "rerank-max": max(pair),
                }.get(method, sum(pair))
        answers: list[tuple[int, ...]] = []
        for _ in range(min(4, len(scores))):
            lowered = {
                tokens: score - penalty * sum(word in free_words(template, a) for a in answers for word in mine)
                for tokens, score in scores.items()
                if tokens not in answers
                for mine in [free_words(template, tokens)]
            }
            answers.append(max(lowered, key=lambda tokens: lowered[tokens]))
        assert [fill.tokens for fill in fills] == sorted(answers, key=lambda tokens: -scores[tokens])
        for fill in fills:
            assert fill.ranking_score == pytest.approx(scores[fill.tokens], abs=1e-9)
            assert fill.forward_score == pytest.approx(truth[fill.tokens][0], abs=1e-9)
            assert fill.backward_score == pytest.approx(truth[fill.tokens][1], abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    problems() | problems(kind=PickyModel),
    st.lists(st.sampled_from([0.0, 0.7, 3.0]), min_size=6, max_size=6),
    st.integers(1, 3),
    st.booleans(),
)
def test_every_pass_with_penalties_equals_the_search_written_out_by_hand(problem, losses, num_beams, lookup):
    forward, backward, many, required, banned = problem
    template, words = max(zip(many, required, strict=True), key=lambda pair: len(Layout.of(pair[0]).region))
    loss: Penalties = {token: losses[token] for token in range(forward.vocab_size) if losses[token]}
    check_passes_by_hand(forward, backward, Layout.of(template, words, loss), banned, num_beams, lookup)


@laws
@given(problems(), st.sampled_from(SEARCHES), st.integers(1, 3), penalties)
def test_at_any_width_answers_are_distinct_sorted_and_the_plain_one_is_among_them(problem, method, num_beams, penalty):
    forward, backward, many, required, banned = problem
    options = {"method": method, "banned": banned, "must_include": required, "num_beams": num_beams}
    plain = fill_templates(forward, backward, many, **options)
    diverse = fill_templates(forward, backward, many, num_return_sequences=3, diversity_penalty=penalty, **options)
    for template, words, (best, *_), fills in zip(many, required, plain, diverse, strict=True):
        assert best in fills
        assert fills[0].ranking_score >= best.ranking_score
        assert len({fill.tokens for fill in fills}) == len(fills) <= 3
        assert fills == sorted(fills, key=lambda fill: -fill.ranking_score)
        for fill in fills:
            assert includes(template, fill.tokens, words)
            for slot, token in zip(template, fill.tokens, strict=True):
                assert token not in banned if slot is None else token == slot


@laws
@given(problems(), st.integers(1, 3), st.sampled_from(SEARCHES))
def test_no_penalty_and_no_second_answer_change_nothing(problem, num_beams, method):
    forward, backward, many, required, banned = problem
    options = {"method": method, "banned": banned, "must_include": required, "num_beams": num_beams}
    for num, penalty in ((3, 0.0), (1, 2.0)):
        plain = fill_templates(forward, backward, many, num_return_sequences=num, **options)
        asked = fill_templates(forward, backward, many, num_return_sequences=num, diversity_penalty=penalty, **options)
        assert asked == plain


@laws
@given(problems(), st.sampled_from(SEARCHES), penalties, st.randoms(use_true_random=False))
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


def test_answers_on_a_hand_written_matrix_can_be_followed():
    # Forward prefers a to b to c, 5 : 3 : 2, whatever came before; backward has no opinion.
    forward, backward = MatrixModel([[0.0, 0.0, 0.5, 0.3, 0.2]] * 5), MatrixModel([[0.2] * 5] * 5)
    a, b, c = 2, 3, 4

    def answers(penalty: float) -> list[tuple[int, ...]]:
        (fills,) = fill_templates(
            forward, backward, [[0, None, None, 1]], method="forward", num_return_sequences=3, diversity_penalty=penalty
        )
        return [fill.tokens[1:3] for fill in fills]

    # a a has .25, a b and b a .15, a c and c a .10, b b .09, b c and c b .06, c c .04. Where a word costs half its
    # probability for each answer that holds it: after a a comes b b, .09, before a b with .15 / 2; then a c with
    # .10 / 2 before c c, .04. At two thirds off, c c comes before a c, .10 / 3.
    half = answers(math.log(2))
    assert [half[0], set(half[1]), half[2]] == [(a, a), {a, c}, (b, b)]
    assert answers(math.log(3)) == [(a, a), (b, b), (c, c)]


@pytest.mark.parametrize("method", ["bibs", "forward", "rerank-max"])
def test_answers_may_differ_in_the_length_of_a_gap(method):
    forward, backward = HistoryModel(6, 1), HistoryModel(6, 2)
    templates = [[0, 2, Gap(1, 4), 3, 1], [0, 2, None, None, 1]]
    options = {"method": method, "banned": (0, 1), "num_beams": 2}
    plain = fill_templates(forward, backward, templates, **options)
    diverse = fill_templates(forward, backward, templates, num_return_sequences=3, diversity_penalty=2.0, **options)
    for template, (best, *_), fills in zip(templates, plain, diverse, strict=True):
        assert len(fills) == 3
        assert best in fills
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
                f"`diversity_penalty` must be 0 where `method` is a sampler, but '{method}' is one",
            )
            for method in SAMPLERS
        ),
    ],
)
def test_a_bad_penalty_gets_one_clear_line(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        fill_templates(HistoryModel(4, 1), HistoryModel(4, 2), [[0, None, 1]], **options)
