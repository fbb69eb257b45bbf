"""The samplers draw from the distributions they claim, repeatably."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from bibs import fill_templates
from fakes import HistoryModel
from small_problems import SAMPLERS, Problem

FORWARD, BACKWARD = HistoryModel(4, 1, sharpness=0.7), HistoryModel(4, 2, sharpness=0.7)
DRAWN = ["gsn", "gsn-random", "unidirectional-gibbs"]
pytestmark = pytest.mark.filterwarnings("ignore:`num_return_sequences`")


@pytest.mark.parametrize("method", DRAWN)
def test_one_slot_is_drawn_from_its_conditional(method):
    """With one free slot, a token turns up unless it is neither the init's nor drawn in any of the two sweeps."""
    template, num_seeds = [0, 2, None, 3, 1], 200
    log_probs = FORWARD.log_probs_after([0, 2])
    if method == "unidirectional-gibbs":  # P_f of the whole sequence
        log_probs = log_probs + torch.tensor([FORWARD.score_after([0, 2, y], [3, 1]) for y in range(4)])
    else:  # f(y | left) g(y | right): the slot's own terms alone
        log_probs = log_probs + BACKWARD.log_probs_after([1, 3])
    first = "forward" if method == "unidirectional-gibbs" else "backward"
    init = fill_templates(FORWARD, BACKWARD, [template], method=first)[0][0].tokens[2]
    options = {"method": method, "start": "backward", "num_beams": 1, "num_rounds": 1, "num_return_sequences": 4}
    seen: Counter[int] = Counter()
    for seed in range(num_seeds):
        seen.update(fill.tokens[2] for fill in fill_templates(FORWARD, BACKWARD, [template], seed=seed, **options)[0])
    assert seen[init] == num_seeds
    for token, probability in enumerate(log_probs.softmax(0).tolist()):
        if token != init:
            expected = 1 - (1 - probability) ** 2
            spread = (expected * (1 - expected) / num_seeds) ** 0.5
            assert abs(seen[token] / num_seeds - expected) < 4.5 * spread, (token, expected)


@pytest.mark.parametrize("method", DRAWN)
def test_draws_depend_on_the_seed_and_the_token_ids_and_on_nothing_else(method):
    """Not on other templates of the batch, narrower or wider, nor on what kind of sequence holds the tokens."""
    template, others = [0, 2, None, 3, None, None, 1], [[0, None, None, 1], [0, *[None] * 6, 1]]
    options = {"method": method, "num_beams": 2, "num_rounds": 2, "num_return_sequences": 9}

    def draws(seed: int, *templates: list[int | None] | tuple[int | None, ...]) -> list[tuple[int, ...]]:
        found = fill_templates(FORWARD, BACKWARD, templates, seed=seed, **options)
        return [fill.tokens for fill in found[templates.index(template) if template in templates else 0]]

    alone = [draws(seed, template) for seed in range(4)]
    assert len({tuple(tokens) for tokens in alone}) > 1
    assert [draws(seed, template) for seed in range(4)] == alone
    assert [draws(seed, tuple(template)) for seed in range(4)] == alone
    assert [draws(seed, others[0], template, others[1]) for seed in range(4)] == alone


@pytest.mark.parametrize("seed", range(8))
def test_coordinate_descent_is_bidirectional_search_with_one_beam(seed):
    problem = Problem(HistoryModel(4, seed), HistoryModel(4, seed + 100), [[0, 2, None, None, 1, None, None, 3, 1]])
    options = {"num_beams": 1, "num_rounds": 3, "num_return_sequences": 5, "start": "backward"}
    (ours,), (theirs,) = (problem.fill(method, **options) for method in ("coordinate", "bibs"))
    assert [fill.tokens for fill in ours] == [fill.tokens for fill in theirs]


def test_a_shortlist_restricts_what_the_unidirectional_sampler_tries():
    likeliest = int(FORWARD.log_probs_after([0, 2]).argmax())
    options = {"method": "unidirectional-gibbs", "shortlist": 1, "num_beams": 1}
    for seed in range(20):
        (fill,) = fill_templates(FORWARD, BACKWARD, [[0, 2, None, 3, 1]], seed=seed, **options)[0]
        assert fill.tokens[2] == likeliest


@pytest.mark.parametrize("method", SAMPLERS)
def test_without_rounds_a_sampler_returns_the_beams_it_begins_with(method):
    problem = Problem(FORWARD, BACKWARD, [[0, 2, None, None, 3, 1]])
    options = {"num_beams": 1 if method == "coordinate" else 3, "num_return_sequences": 9, "start": "backward"}
    (fills,) = problem.fill(method, num_rounds=0, **options)
    (init,) = problem.fill("forward" if method == "unidirectional-gibbs" else "backward", **options)
    assert {fill.tokens for fill in fills} == {fill.tokens for fill in init}
