"""The laws of the search, each judged by enumeration or by a second way of computing. Float64 throughout."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bibs.search.beam as beam_module
from bibs.search import METHODS, Fill, Opening, beam_search, bidirectional_beam_search, fill_templates
from bibs.search.beam import top_k
from bibs.search.template import Layout
from fakes import (
    CountingModel,
    HistoryModel,
    MatrixModel,
    UniformModel,
    enumerate_scores,
    score_from_scratch,
)
from literal import literal_search

Template = list[int | None]
pytestmark = pytest.mark.filterwarnings("ignore:`num_return_sequences`")
laws = settings(max_examples=40, deadline=None)


@st.composite
def templates(draw: st.DrawFn, vocab_size: int, *, max_width: int = 4, min_width: int = 1) -> Template:
    """START, some words, a region that begins and ends free with fixed words strewn in, some words, END."""
    word = st.integers(0, vocab_size - 1)
    before, after = draw(st.lists(word, max_size=2)), draw(st.lists(word, max_size=2))
    width = draw(st.integers(min_width, max_width))
    middle = [None if draw(st.integers(0, 3)) else draw(word) for _ in range(width - 2)]
    region: Template = [None, *middle, None] if width > 1 else [None] * width
    return [0, *before, *region, *after, 1]


@st.composite
def problems(draw: st.DrawFn) -> tuple[HistoryModel, HistoryModel, list[Template], tuple[int, ...]]:
    vocab_size = draw(st.integers(2, 4))
    forward, backward = (HistoryModel(vocab_size, draw(st.integers(0, 999))) for _ in range(2))
    banned = draw(st.sampled_from([(), (0,)]))
    return forward, backward, draw(st.lists(templates(vocab_size), min_size=1, max_size=4)), banned


def assert_same_fills(first: Sequence[Sequence[Fill]], second: Sequence[Sequence[Fill]]) -> None:
    assert len(first) == len(second)
    for ours, theirs in zip(first, second, strict=True):
        assert [fill.tokens for fill in ours] == [fill.tokens for fill in theirs]
        for a, b in zip(ours, theirs, strict=True):
            assert a.score == pytest.approx(b.score, abs=1e-9)
            assert a.ranking_score == pytest.approx(b.ranking_score, abs=1e-9)


# Law 1


@laws
@given(problems())
def test_a_beam_as_wide_as_the_space_finds_every_fill_in_the_order_of_s(problem):
    forward, backward, given_templates, banned = problem
    found = bidirectional_beam_search(
        forward, backward, given_templates, banned=banned, num_beams=256, num_return_sequences=256
    )
    for template, fills in zip(given_templates, found, strict=True):
        truth = enumerate_scores(forward, backward, template, banned)
        ranked = sorted(truth, key=lambda tokens: -sum(truth[tokens]))
        assert [fill.tokens for fill in fills] == ranked


@laws
@given(problems())
def test_a_plain_beam_as_wide_as_the_space_equals_enumeration_under_its_own_model(problem):
    forward, backward, given_templates, banned = problem
    for method, model in (("forward", forward), ("backward", backward)):
        found = fill_templates(
            forward, backward, given_templates, method=method, banned=banned, num_beams=256, num_return_sequences=256
        )
        for template, fills in zip(given_templates, found, strict=True):
            layout = Layout.of(template)
            truth = {}
            for tokens in enumerate_scores(forward, backward, template, banned):
                near = tokens[: len(layout.context) + len(layout.region)]
                if method == "backward":
                    near = tokens[len(layout.context) :][::-1]
                context = layout.context if method == "forward" else layout.rest[::-1]
                truth[tokens] = score_from_scratch(model, near) - score_from_scratch(model, context)
            assert [fill.tokens for fill in fills] == sorted(truth, key=lambda tokens: -truth[tokens])
            for fill in fills:
                assert fill.ranking_score == pytest.approx(truth[fill.tokens], abs=1e-9)


@laws
@given(problems(), st.integers(1, 4))
def test_every_pass_equals_the_literal_pass_over_all_connections(problem, num_beams):
    check_every_pass_equals_the_literal_pass(problem, num_beams)


def check_every_pass_equals_the_literal_pass(problem, num_beams):
    forward, backward, given_templates, banned = problem
    found = bidirectional_beam_search(
        forward, backward, given_templates, banned=banned, num_beams=num_beams, num_rounds=3, trace=True
    )
    for template, fills in zip(given_templates, found, strict=True):
        judged = literal_search(forward, backward, [template], banned=banned, num_beams=num_beams, num_rounds=3)
        passes = fills[0].trace
        assert len(passes) >= 3
        for ours, theirs in zip(passes, judged, strict=False):
            for slot, frontier in enumerate(ours.frontiers):
                alive = {
                    prefix: score
                    for prefix, score in zip(theirs.prefixes[slot][0], theirs.scores[slot][0].tolist(), strict=True)
                    if score > -math.inf
                }
                assert {prefix for prefix, _ in frontier} == set(alive)
                for prefix, score in frontier:
                    assert score == pytest.approx(alive[prefix], abs=1e-9)
            turn = 1 if ours.direction == "forward" else -1
            assert ours.tokens == Layout.of(template).fill(theirs.fills[0][0][::turn])
            assert ours.ranking_score == pytest.approx(float(theirs.ranking[0, 0]), abs=1e-9)
        # What left early had converged: the passes that it skipped would have changed nothing.
        for earlier, later in zip(judged[len(passes) - 2 :], judged[len(passes) :], strict=False):
            assert [set(p[0]) for p in earlier.prefixes] == [set(p[0]) for p in later.prefixes]


# Law 2


@laws
@given(problems(), st.sampled_from(sorted(METHODS)), st.integers(1, 4))
def test_a_returned_score_equals_rescoring_its_tokens_from_scratch(problem, method, num_beams):
    check_scores_from_scratch(problem, method, num_beams)


def check_scores_from_scratch(problem, method, num_beams):
    forward, backward, given_templates, banned = problem
    found = fill_templates(
        forward, backward, given_templates, method=method, banned=banned, num_beams=num_beams,
        num_rounds=2, num_return_sequences=4,
    )  # fmt: skip
    for fills in found:
        assert fills
        for fill in fills:
            assert fill.forward_score == pytest.approx(score_from_scratch(forward, fill.tokens), abs=1e-9)
            assert fill.backward_score == pytest.approx(score_from_scratch(backward, fill.tokens[::-1]), abs=1e-9)
            assert fill.score == fill.forward_score + fill.backward_score


# Law 3


@laws
@given(problems(), st.sampled_from(sorted(METHODS)), st.randoms(use_true_random=False))
def test_a_batch_equals_its_items_one_by_one_in_any_order_and_batch_size(problem, method, rng: random.Random):
    forward, backward, given_templates, banned = problem
    options = {"method": method, "banned": banned, "num_beams": 3, "num_rounds": 2, "num_return_sequences": 3}
    conditions = [rng.randrange(3) for _ in given_templates]
    together = fill_templates(forward, backward, given_templates, conditions=conditions, **options)
    for number, template in enumerate(given_templates):
        alone = fill_templates(forward, backward, [template], conditions=[conditions[number]], **options)
        assert_same_fills([together[number]], alone)
    order = rng.sample(range(len(given_templates)), len(given_templates))
    shuffled = fill_templates(
        forward, backward, [given_templates[i] for i in order], conditions=[conditions[i] for i in order],
        batch_size=rng.randint(1, 4), **options,
    )  # fmt: skip
    assert_same_fills([together[i] for i in order], shuffled)


def test_sixty_four_ragged_examples_equal_one_by_one():
    rng = random.Random(0)
    forward, backward = HistoryModel(6, 1), HistoryModel(6, 2)
    many: list[Template] = []
    for _ in range(64):
        words = [rng.randrange(6) for _ in range(rng.randint(1, 9))]
        many.append([0, *(None if rng.random() < 0.6 else word for word in words), 1])
    assert len({len(Layout.of(template).region) for template in many}) > 5
    together = bidirectional_beam_search(forward, backward, many, num_return_sequences=3)
    for template, fills in zip(many, together, strict=True):
        assert_same_fills([fills], bidirectional_beam_search(forward, backward, [template], num_return_sequences=3))


# Law 4


@laws
@given(problems(), st.integers(1, 4))
def test_with_a_uniform_backward_model_the_first_forward_pass_is_plain_forward_search(problem, num_beams):
    forward, _, given_templates, _ = problem
    uniform = UniformModel(forward.vocab_size)
    for template in given_templates:
        plain = bidirectional_beam_search(
            forward, uniform, [template], num_beams=num_beams, num_rounds=0, start="forward", trace=True
        )
        steered = bidirectional_beam_search(forward, uniform, [template], num_beams=num_beams, num_rounds=1, trace=True)
        ours, theirs = steered[0][0].trace[1], plain[0][0].trace[0]
        assert ours.direction == theirs.direction == "forward"
        assert [dict(slot).keys() for slot in ours.frontiers] == [dict(slot).keys() for slot in theirs.frontiers]


# Law 5


@laws
@given(problems(), st.integers(1, 4), st.sampled_from(["forward", "backward"]))
def test_swapping_the_models_and_reversing_the_template_mirrors_the_answer(problem, num_beams, start):
    forward, backward, given_templates, banned = problem
    other = {"forward": "backward", "backward": "forward"}[start]
    options = {"banned": banned, "num_beams": num_beams, "num_return_sequences": 3}
    ours = bidirectional_beam_search(forward, backward, given_templates, start=start, **options)
    mirrored = bidirectional_beam_search(backward, forward, [t[::-1] for t in given_templates], start=other, **options)
    for fills, turned in zip(ours, mirrored, strict=True):
        assert [fill.tokens for fill in fills] == [fill.tokens[::-1] for fill in turned]
        for fill, twin in zip(fills, turned, strict=True):
            assert fill.forward_score == pytest.approx(twin.backward_score, abs=1e-9)
            assert fill.rounds == twin.rounds


# Law 7


@laws
@given(problems(), st.sampled_from(sorted(METHODS)), st.integers(1, 5), st.booleans())
def test_fills_are_distinct_sorted_and_keep_every_fixed_word(problem, method, num_beams, rescore):
    forward, backward, given_templates, banned = problem
    found = fill_templates(
        forward, backward, given_templates, method=method, banned=banned, num_beams=num_beams,
        num_rounds=2, num_return_sequences=5, rescore=rescore,
    )  # fmt: skip
    for template, fills in zip(given_templates, found, strict=True):
        assert 1 <= len(fills) <= 5
        assert len({fill.tokens for fill in fills}) == len(fills)
        assert sorted(fills, key=lambda fill: -fill.ranking_score) == fills
        for fill in fills:
            assert len(fill.tokens) == len(template)
            for slot, token in zip(template, fill.tokens, strict=True):
                assert token not in banned if slot is None else token == slot


# Law 8


@laws
@given(problems(), st.integers(1, 3))
def test_the_best_score_never_falls_with_more_rounds(problem, num_beams):
    forward, backward, given_templates, banned = problem
    best = [-math.inf] * len(given_templates)
    for num_rounds in range(5):
        found = bidirectional_beam_search(
            forward, backward, given_templates, banned=banned, num_beams=num_beams, num_rounds=num_rounds
        )
        now = [fills[0].score for fills in found]
        assert all(new >= old - 1e-9 for new, old in zip(now, best, strict=True))
        best = now


# Law 10


@laws
@given(problems(), st.integers(1, 5), st.booleans())
def test_rounds_with_look_up_equal_rounds_without(problem, num_beams, rescore):
    forward, backward, given_templates, banned = problem
    options = {"banned": banned, "num_beams": num_beams, "num_return_sequences": 3, "rescore": rescore}
    with_it = bidirectional_beam_search(forward, backward, given_templates, lookup=True, trace=True, **options)
    without = bidirectional_beam_search(forward, backward, given_templates, lookup=False, trace=True, **options)
    assert_same_fills(with_it, without)
    for ours, theirs in zip(with_it, without, strict=True):
        assert ours[0].rounds == theirs[0].rounds
        for a, b in zip(ours[0].trace, theirs[0].trace, strict=True):
            assert [dict(slot).keys() for slot in a.frontiers] == [dict(slot).keys() for slot in b.frontiers]


def random_matrix(vocab_size: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(vocab_size, vocab_size, generator=generator, dtype=torch.float64).softmax(1)


def count_rows(num_rounds: int, *, lookup: bool) -> list[int]:
    """Rows stepped in each pass over one blank of six words, B = 4."""
    template: Template = [0, 2, None, None, None, None, None, None, 3, 1]
    layout = Layout.of(template)
    models = [CountingModel(MatrixModel(random_matrix(7, seed))) for seed in (104, 204)]
    openings = [
        Opening.read("backward", models[0], [layout.mirrored()]),
        Opening.read("forward", models[1], [layout]),
    ]
    passes: list[beam_module.Pass] = []
    rows = []
    for number in range(1 + 2 * num_rounds):
        before = models[number % 2].rows
        passes.append(
            beam_search(
                openings[number % 2],
                num_beams=4,
                facing=passes[-1] if passes else None,
                previous=passes[-2] if lookup and number >= 2 else None,
            )
        )
        rows.append(models[number % 2].rows - before)
    assert [model.starts for model in models] == [1, 1]
    return rows


def test_a_pass_steps_at_most_b_rows_a_slot_and_look_up_only_what_is_new():
    width, num_beams = 6, 4
    plain = count_rows(4, lookup=False)
    assert plain == [num_beams * (width - 1)] * 9
    reused = count_rows(4, lookup=True)
    assert reused[:2] == plain[:2]
    assert all(rows <= num_beams * (width - 1) for rows in reused)
    assert sum(reused[1:]) <= 2 * num_beams * 4 * width  # the paper's 2BMW
    assert reused[-1] == 0  # converged: every partial fill had been scored
    assert sum(reused) < sum(plain) / 2


def test_a_settled_example_is_not_looked_at_again_while_others_go_on():
    """What is chosen is asked for where a frontier or a message is new, and for no other example and slot."""
    layouts = [Layout.of([0, *[None] * width, 3, 1]) for width in (6, 5, 4, 3, 1)]
    models = [HistoryModel(6, seed) for seed in (5, 6)]
    openings = [
        Opening.read("backward", models[0], [layout.mirrored() for layout in layouts]),
        Opening.read("forward", models[1], layouts),
    ]
    asked: list[int] = []

    def choose(ranked: torch.Tensor, k: int, slot: int) -> tuple[torch.Tensor, torch.Tensor]:
        asked[-1] += len(ranked)
        return beam_module.top_k(ranked, k, slot)

    passes: list[beam_module.Pass] = []
    expected = []
    for number in range(12):
        asked.append(0)
        facing = passes[-1] if passes else None
        previous = passes[-2] if number >= 2 else None
        latest = beam_search(openings[number % 2], num_beams=2, facing=facing, previous=previous, choose=choose)
        new = {
            (example, slot)
            for example, layout in enumerate(layouts)
            for slot in range(len(layout.region))
            if latest.changed[example, slot]
            or (facing is not None and facing.changed[example, len(layout.region) - 1 - slot])
        }
        expected.append(len(new))
        passes.append(latest)
    assert asked == expected
    assert asked[0] == asked[1] == sum(len(layout.region) for layout in layouts)
    assert 0 < asked[4] < asked[0]
    assert bool(passes[-1].settled.all())
    assert asked[-1] == 0


@pytest.mark.parametrize("lookup", [True, False])
@pytest.mark.parametrize("num_rounds", [0, 1, 4])
def test_contexts_are_encoded_once_whatever_the_rounds(num_rounds, lookup):
    forward, backward = CountingModel(HistoryModel(5, 1)), CountingModel(HistoryModel(5, 2))
    given_templates = [[0, 2, None, None, None, 4, 1], [0, None, None, 3, 1], [0, 2, None, 1]]
    bidirectional_beam_search(forward, backward, given_templates, num_rounds=num_rounds, lookup=lookup)
    assert (forward.starts, backward.starts) == (1, 1)
    assert (forward.contexts, backward.contexts) == (3, 3)


def test_rescoring_steps_nothing_that_the_last_passes_know():
    """One free slot: every log probability of the fill is known, and only what follows it must be stepped."""
    forward, backward = CountingModel(HistoryModel(5, 1)), CountingModel(HistoryModel(5, 2))
    fills = bidirectional_beam_search(forward, backward, [[0, 2, 3, None, 4, 1]], num_beams=2, num_return_sequences=5)[
        0
    ]
    assert forward.rows == len(fills) * 2  # the fill and 4 are read; 1 is only scored
    assert backward.rows == len(fills) * 3


# The laws can fail


def test_the_laws_catch_a_state_that_is_not_reordered(monkeypatch):
    problem = (HistoryModel(4, 1), HistoryModel(4, 2), [[0, 2, None, None, None, None, 3, 1]], ())
    check_every_pass_equals_the_literal_pass(problem, 3)
    check_scores_from_scratch(problem, "bibs", 3)
    honest = beam_module.select_rows

    def forgetful(state, rows):
        return honest(state, torch.arange(len(rows)) % len(state["prefix"]))

    monkeypatch.setattr(beam_module, "select_rows", forgetful)
    with pytest.raises(AssertionError):
        check_every_pass_equals_the_literal_pass(problem, 3)
    with pytest.raises(AssertionError):
        check_scores_from_scratch(problem, "bibs", 3)


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
    best = bidirectional_beam_search(forward, backward, [template], num_beams=2, trace=True)[0][0]
    assert best.tokens == (0, a, c, 1)
    assert math.exp(best.score) == pytest.approx(0.6 * 0.3 * 0.3 * 0.8 * 0.3 * 0.4)
    # The plain pass from the right holds c (.8) and a (.12) when it stands at the first slot. The next pass therefore
    # ranks its first words by .6 x .24 for a, .3 x .40 for b and .1 x .08 for c, and holds a and b.
    init, first = best.trace[:2]
    assert [set(dict(slot)) for slot in init.frontiers] == [{()}, {(c,), (a,)}]
    assert [set(dict(slot)) for slot in first.frontiers] == [{()}, {(a,), (b,)}]


def test_impossible_fills_are_never_returned_and_a_far_side_that_fits_nothing_is_ignored():
    # A path along a line of six cells: every step moves one cell, up or down. From 0 to 5 in five steps: one path.
    line = torch.zeros(6, 6)
    for cell in range(6):
        for neighbour in (cell - 1, cell + 1):
            if 0 <= neighbour < 6:
                line[cell, neighbour] = 1.0
    walker = MatrixModel(line / line.sum(1, keepdim=True))
    for num_beams in (2, 8):
        fills = bidirectional_beam_search(
            walker, walker, [[0, None, None, None, None, 5]], num_beams=num_beams, num_return_sequences=3
        )[0]
        assert [fill.tokens for fill in fills] == [(0, 1, 2, 3, 4, 5)]
    assert bidirectional_beam_search(walker, walker, [[0, None, 5]])[0] == []


def test_a_template_without_a_blank_comes_back_scored():
    forward, backward = HistoryModel(4, 1), HistoryModel(4, 2)
    for method in METHODS:
        (fill,) = fill_templates(forward, backward, [[0, 2, 3, 1]], method=method)[0]
        assert fill.tokens == (0, 2, 3, 1)
        assert fill.forward_score == pytest.approx(score_from_scratch(forward, fill.tokens))
        assert fill.backward_score == pytest.approx(score_from_scratch(backward, fill.tokens[::-1]))


def test_no_templates_give_no_results():
    assert bidirectional_beam_search(HistoryModel(4), HistoryModel(4), []) == []


def test_rounds_count_up_to_convergence():
    forward, backward = MatrixModel(random_matrix(6, 104)), MatrixModel(random_matrix(6, 204))
    template = [[0, None, None, None, None, None, 1]]
    settled = bidirectional_beam_search(forward, backward, template, num_beams=2, num_rounds=50, trace=True)[0][0]
    assert 1 <= settled.rounds < 50
    assert len(settled.trace) in (2 * settled.rounds, 2 * settled.rounds + 1)
    assert bidirectional_beam_search(forward, backward, template, num_rounds=0)[0][0].rounds == 0


def test_the_paper_as_written_ranks_by_the_last_pass_and_still_reports_s():
    forward, backward = HistoryModel(5, 3), HistoryModel(5, 4)
    template: Template = [0, 2, None, None, None, 3, 1]
    fills = bidirectional_beam_search(
        forward, backward, [template], num_beams=3, num_return_sequences=3, rescore=False, trace=True
    )[0]
    last = fills[0].trace[-1]
    assert fills[0].tokens == last.tokens
    assert fills[0].ranking_score == pytest.approx(last.ranking_score)
    assert fills[0].score == pytest.approx(last.score)


@given(st.integers(1, 4), st.integers(1, 3000), st.integers(1, 12), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_top_k_by_blocks_equals_top_k(rows, columns, k, seed):
    values = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    values[0, : columns // 2] = -torch.inf
    k = min(k, columns)
    ours, index = top_k(values, k, block=16)
    assert torch.equal(ours, values.topk(k).values)
    assert torch.equal(values.gather(1, index), ours)
