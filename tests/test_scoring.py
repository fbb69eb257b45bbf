"""Scoring given tokens: a model that does it itself and one that is stepped agree, and nothing is asked twice."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import bibs.search.pair as pair_module
import bibs.search.remembering as remembering_module
from bibs.models.recurrent import RecurrentConfig, RecurrentModel
from bibs.search import METHODS, Fill, Opening, fill_templates
from bibs.search.remembering import RememberingModel
from bibs.search.step_model import ScoringModel, State
from bibs.search.template import Layout
from fakes import CountingModel, HistoryModel, score_from_scratch

SAMPLERS = ("coordinate", "gsn", "gsn-random", "unidirectional-gibbs")
TEMPLATES = [[0, 2, None, None, None, 3, 1], [0, None, 1], [0, None, 2, None, 3, 3, 1], [0, 3, 2, 1]]
pytestmark = pytest.mark.filterwarnings("ignore:`num_return_sequences`")


class ScoringHistoryModel(HistoryModel):
    """A history model that scores given tokens itself, straight from its definition."""

    calls = 0

    def score(self, continuations: Sequence[Sequence[int]], state: State, floors: Tensor | None = None) -> Tensor:
        self.calls += 1
        results = []
        columns = (continuations, state["prefix"].tolist(), state["condition"][0].tolist())
        for tokens, row, condition in zip(*columns, strict=True):
            prefix = [token for token in row if token >= 0]
            total = 0.0
            for place in range(1, len(tokens)):
                total += float(self.log_probs_after([*prefix, *tokens[:place]], condition)[tokens[place]])
            results.append(total)
        return torch.tensor(results, dtype=torch.float64)


def assert_same(ours: Sequence[Sequence[Fill]], theirs: Sequence[Sequence[Fill]], tolerance: float = 1e-9) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert [fill.tokens for fill in a] == [fill.tokens for fill in b]
        for one, other in zip(a, b, strict=True):
            assert one.forward_score == pytest.approx(other.forward_score, abs=tolerance)
            assert one.backward_score == pytest.approx(other.backward_score, abs=tolerance)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_model_that_scores_and_one_that_is_stepped_give_the_same_fills(method: str) -> None:
    scoring = ScoringHistoryModel(4, 1), ScoringHistoryModel(4, 2)
    assert isinstance(scoring[0], ScoringModel)
    assert not isinstance(HistoryModel(4), ScoringModel)
    options = {"method": method, "num_beams": 3, "num_rounds": 2, "num_return_sequences": 9}
    ours = fill_templates(*scoring, TEMPLATES, **options)
    theirs = fill_templates(HistoryModel(4, 1), HistoryModel(4, 2), TEMPLATES, **options)
    assert_same(ours, theirs)
    assert all(model.calls for model in scoring)


@pytest.mark.parametrize("cutoffs", [(), (6, 14)])
def test_in_float32_the_two_ways_agree_within_1e_4(cutoffs: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    config = RecurrentConfig(30, 16, 16, cutoffs=cutoffs)
    pair = [RecurrentModel(config).eval() for _ in range(2)]
    ours = fill_templates(*pair, TEMPLATES, num_return_sequences=9)
    theirs = fill_templates(*map(CountingModel, pair), TEMPLATES, num_return_sequences=9)
    assert_same(ours, theirs, tolerance=1e-4)


@pytest.mark.parametrize("wrong", [torch.zeros(1, 1), torch.full((1,), torch.inf), torch.full((1,), torch.nan)])
def test_a_wrong_score_is_blamed_on_its_model(wrong: Tensor) -> None:
    broken = ScoringHistoryModel(4, 1)
    broken.score = lambda continuations, state, floors: wrong  # type: ignore[method-assign]
    with pytest.raises(ValueError, match=r"the forward model's score\(\) must return \(1,\) log prob") as error:
        fill_templates(broken, HistoryModel(4, 2), [[0, 2, None, 3, 1]], method="forward")
    assert "\n" not in str(error.value)


# Fills that cannot win


class FrugalHistoryModel(ScoringHistoryModel):
    """Reads no further than the floor, and says so little below it that any use of the value would be seen."""

    given_up = 0

    def score(self, continuations: Sequence[Sequence[int]], state: State, floors: Tensor | None = None) -> Tensor:
        exact = super().score(continuations, state)
        if floors is None:
            return exact
        below = exact < floors
        self.given_up += int(below.sum())
        return exact.masked_fill(below, -1e6)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["bibs", "rerank-sum", "gsn", "exact"]),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 99),
    st.sampled_from([0.0, 0.7]),
)
def test_giving_up_what_cannot_win_changes_no_answer(method, wanted, num_beams, seed, penalty):
    if method == "gsn":
        penalty = 0.0
    options = {
        "method": method, "num_return_sequences": wanted, "num_beams": num_beams, "num_rounds": 2,
        "diversity_penalty": penalty,
    }  # fmt: skip
    stepped = fill_templates(HistoryModel(4, seed), HistoryModel(4, seed + 1), TEMPLATES, **options)
    scored = fill_templates(FrugalHistoryModel(4, seed), FrugalHistoryModel(4, seed + 1), TEMPLATES, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_module, "MARGIN", float("inf"))  # nothing is ever below
        whole = fill_templates(FrugalHistoryModel(4, seed), HistoryModel(4, seed + 1), TEMPLATES, **options)
    assert_same(stepped, whole)
    assert_same(scored, whole)


def test_much_is_given_up() -> None:
    models = FrugalHistoryModel(5, 1), FrugalHistoryModel(5, 2)
    fill_templates(*models, TEMPLATES, method="exact")
    assert models[1].given_up > 20


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_recurrent_model_stops_reading_below_the_floor(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = RecurrentModel(RecurrentConfig(30, 16, 16, cell=cell)).eval()
    _, state, _ = model.start([[0, 3], [0, 4], [0, 5], [0, 6]])
    continuations = [[7, 8, 9, 10, 11], [7, 8], [9, 8, 7, 6, 5], [3]]
    exact = model.score(continuations, state)
    read: list[int] = []
    advance = RecurrentModel._advance
    monkeypatch.setattr(
        RecurrentModel,
        "_advance",
        lambda self, ready, gates, old: read.append(len(gates)) or advance(self, ready, gates, old),
    )
    floors = torch.stack([exact[0] - 0.1, exact[1] - 0.1, exact[2] / 2, torch.tensor(0.0)])
    found = model.score(continuations, state, floors)
    torch.testing.assert_close(found[[0, 1, 3]], exact[[0, 1, 3]])
    assert exact[2] < found[2] < floors[2]
    assert read[0] == 3  # the last has nothing to be read
    assert sum(read) < 4 + 1 + 4


# A model that remembers


def remembered(counting: CountingModel, templates: Sequence[Sequence[int | None]]) -> tuple[Opening, RememberingModel]:
    layouts = sorted((Layout.of(template) for template in templates), key=lambda layout: -len(layout.region))
    opening = RememberingModel.open(Opening.read("forward", counting, layouts))
    assert isinstance(opening.model, RememberingModel)
    return opening, opening.model


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=1, max_size=6), st.data())
def test_a_remembering_model_says_what_its_model_says_and_asks_each_beginning_once(walks, data):
    counting, judge = CountingModel(HistoryModel(4, 5)), HistoryModel(4, 5)
    opening, model = remembered(counting, [[0, 2, None, 1], [0, None, 1]])
    owners = [data.draw(st.integers(0, 1)) for _ in walks]
    state = opening.state[owners]
    seen = set()
    for depth in range(3):
        seen |= {(owner, *walk[: depth + 1]) for owner, walk in zip(owners, walks, strict=True)}
        log_probs, state = model.step(torch.tensor([walk[depth] for walk in walks]), state)
        for owner, walk, row in zip(owners, walks, log_probs, strict=True):
            torch.testing.assert_close(
                row, judge.log_probs_after([*opening.layouts[owner].context, *walk[: depth + 1]])
            )
    assert counting.rows == len(seen)
    whole = [[*walk, 3, 1] for walk in walks]
    told = model.score(whole, opening.state[owners])
    for owner, walk, score in zip(owners, whole, told.tolist(), strict=True):
        context = [*opening.layouts[owner].context, walk[0]]
        expected = score_from_scratch(judge, [*context, *walk[1:]]) - score_from_scratch(judge, context)
        assert score == pytest.approx(expected, abs=1e-9)
    assert counting.rows == len(seen) + 2 * len({(owner, *walk) for owner, walk in zip(owners, whole, strict=True)})


@pytest.mark.parametrize("method", SAMPLERS)
def test_a_sampler_that_may_keep_nothing_finds_the_same(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    models = HistoryModel(4, 1), HistoryModel(4, 2)
    options = {"method": method, "num_beams": 3, "num_rounds": 2, "num_return_sequences": 30, "seed": 4}
    expected = fill_templates(*models, TEMPLATES, **options)
    monkeypatch.setattr(remembering_module, "MAX_VALUES", 0)
    assert_same(fill_templates(*models, TEMPLATES, **options), expected)


def draws(seed: int, purpose: int, layout: Layout, num_sweeps: int) -> list[list[float]]:
    generator = torch.Generator().manual_seed(zlib.crc32(repr((seed, purpose, 0, layout)).encode()))
    return torch.rand(num_sweeps, len(layout.region), generator=generator).tolist()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 99), st.sampled_from([TEMPLATES[0], TEMPLATES[2], [0, None, None, None, 2, None, None, 1]]))
def test_random_slots_are_drawn_given_all_the_others(seed, template):
    """The chain written out: every distribution from the whole of the present sequence, nothing kept."""
    forward, backward = HistoryModel(4, 1), HistoryModel(4, 2)
    layout, num_rounds = Layout.of(template), 2
    free = [slot for slot, token in enumerate(template) if token is None]
    where, uniforms = (draws(seed, purpose, layout, 2 * num_rounds) for purpose in (1, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        now = list(fill_templates(forward, backward, [template], method="backward", num_beams=1)[0][0].tokens)
        states = {tuple(now)}
        for number in range(2 * num_rounds * len(free)):
            sweep, place = divmod(number, len(layout.region))
            slot = free[int(where[sweep][place] * len(free))]
            logits = forward.log_probs_after(now[:slot]) + backward.log_probs_after(now[:slot:-1])
            ends = logits.softmax(0).cumsum(0)
            now[slot] = int((ends <= uniforms[sweep][place] * ends[-1]).sum())
            if (number + 1) % len(free) == 0:
                states.add(tuple(now))
        fills = fill_templates(
            forward, backward, [template], method="gsn-random", seed=seed, num_beams=1, num_rounds=num_rounds,
            num_return_sequences=99,
        )[0]  # fmt: skip
    assert {fill.tokens for fill in fills} == states
