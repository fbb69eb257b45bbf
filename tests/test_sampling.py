"""The samplers draw from the distributions they claim, repeatably."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from bibs.search import fill_templates
from bibs.search.sampling import _draw
from fakes import HistoryModel, enumerate_scores

FORWARD, BACKWARD = HistoryModel(4, 1, sharpness=0.7), HistoryModel(4, 2, sharpness=0.7)
pytestmark = pytest.mark.filterwarnings("ignore:`num_return_sequences`")


def softmax(scores: dict[tuple[int, ...], float]) -> dict[tuple[int, ...], float]:
    values = torch.tensor(list(scores.values()), dtype=torch.float64).softmax(0).tolist()
    return dict(zip(scores, values, strict=True))


@pytest.mark.parametrize("method", ["gsn", "gsn-random", "unidirectional-gibbs"])
def test_one_slot_is_drawn_from_its_conditional(method):
    """With one free slot, a token turns up unless it is neither the init's nor drawn in any of the two sweeps."""
    template, num_seeds = [0, 2, None, 3, 1], 600
    truth = enumerate_scores(FORWARD, BACKWARD, template)
    if method == "unidirectional-gibbs":
        probabilities = softmax({tokens: scores[0] for tokens, scores in truth.items()})
    else:  # f(y | left) g(y | right): the slot's own terms alone
        log_f = FORWARD.log_probs_after([0, 2])
        log_g = BACKWARD.log_probs_after([1, 3])
        probabilities = softmax({tokens: float(log_f[tokens[2]] + log_g[tokens[2]]) for tokens in truth})
    seen: Counter[tuple[int, ...]] = Counter()
    init = fill_templates(
        FORWARD, BACKWARD, [template], method="forward" if method == "unidirectional-gibbs" else "backward"
    )[0][0].tokens
    for seed in range(num_seeds):
        fills = fill_templates(
            FORWARD, BACKWARD, [template], method=method, seed=seed, num_beams=1, num_rounds=1, num_return_sequences=4
        )[0]
        seen.update(fill.tokens for fill in fills)
    assert seen[init] == num_seeds
    for tokens, probability in probabilities.items():
        if tokens != init:
            expected = 1 - (1 - probability) ** 2
            spread = (expected * (1 - expected) / num_seeds) ** 0.5
            assert abs(seen[tokens] / num_seeds - expected) < 4.5 * spread, (tokens, expected)


@pytest.mark.parametrize("method", ["gsn", "gsn-random", "unidirectional-gibbs"])
def test_the_same_seed_gives_the_same_fills_and_another_seed_others(method):
    templates = [[0, None, None, None, None, 1], [0, 2, None, None, 3, None, 1]]

    def run(seed):
        found = fill_templates(
            FORWARD, BACKWARD, templates, method=method, seed=seed, num_beams=2, num_rounds=2, num_return_sequences=9
        )
        return [[fill.tokens for fill in fills] for fills in found]

    assert run(3) == run(3)
    assert any(run(3) != run(seed) for seed in range(4, 8))


@pytest.mark.parametrize("method", ["gsn", "gsn-random", "unidirectional-gibbs"])
def test_a_wider_neighbour_in_the_batch_does_not_change_what_a_chain_draws(method):
    template, wider = [0, None, None, 1], [0, None, 2, None, None, None, 1]
    for seed in range(6):
        options = {"method": method, "seed": seed, "num_beams": 2, "num_rounds": 2, "num_return_sequences": 9}
        alone = fill_templates(FORWARD, BACKWARD, [template], **options)[0]
        together = fill_templates(FORWARD, BACKWARD, [wider, template], **options)[1]
        assert [fill.tokens for fill in alone] == [fill.tokens for fill in together]


@pytest.mark.parametrize("seed", range(8))
def test_coordinate_descent_is_bidirectional_search_with_one_beam(seed):
    forward, backward = HistoryModel(4, seed), HistoryModel(4, seed + 100)
    template = [0, 2, None, None, 1, None, None, 3, 1]
    options = {"num_beams": 1, "num_rounds": 3, "num_return_sequences": 5}
    ours = fill_templates(forward, backward, [template], method="coordinate", **options)[0]
    theirs = fill_templates(forward, backward, [template], method="bibs", **options)[0]
    assert [fill.tokens for fill in ours] == [fill.tokens for fill in theirs]


def test_a_shortlist_restricts_what_the_unidirectional_sampler_tries():
    template = [0, 2, None, 3, 1]
    likeliest = int(FORWARD.log_probs_after([0, 2]).argmax())
    for seed in range(20):
        fills = fill_templates(
            FORWARD, BACKWARD, [template], method="unidirectional-gibbs", shortlist=1, seed=seed, num_beams=1
        )[0]
        assert [fill.tokens[2] for fill in fills] == [likeliest]


def test_drawing_inverts_the_cumulative_sum_and_skips_the_impossible():
    logits = torch.tensor([[0.0, -torch.inf, 0.0, 0.0], [-torch.inf] * 4]).double()
    for uniform, token in ((0.0, 0), (0.32, 0), (0.34, 2), (0.66, 2), (0.67, 3), (1 - 1e-12, 3)):
        assert _draw(logits, torch.tensor([uniform, uniform]).double()).tolist() == [token, 0]
