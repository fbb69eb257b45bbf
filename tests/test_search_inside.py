"""What the search does inside, and no door shows."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bibs import fill_templates
from bibs.baselines.samplers import _draw
from bibs.checks import CheckedModel
from bibs.constraints import Demands
from bibs.constraints.slots import SlotRules, top_k
from bibs.lengths import join_scores
from bibs.lengths.joins import NOWHERE
from bibs.lengths.paper import EndingModel
from bibs.search import Gap, Layout, Prefixes, Settings, Trees, run_pass
from by_hand import search_by_hand
from fakes import CountingModel, HistoryModel, MatrixModel
from small_problems import SAMPLERS, assert_same

START, END = 0, 1
TEMPLATES = [[0, 2, None, None, None, 3, 1], [0, None, 1], [0, None, 2, None, 3, 3, 1], [0, 3, 2, 1]]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 3000), st.integers(1, 12), st.integers(0, 99))
def test_top_k_by_blocks_equals_top_k(rows, columns, k, seed):
    values = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    values[0, : columns // 2] = -torch.inf
    k = min(k, columns)
    assert torch.equal(values.gather(1, top_k(values, k, block=16)), values.topk(k).values)


def test_nothing_is_chosen_again_where_frontier_and_message_were_met_before(monkeypatch):
    """The passes by hand say which frontier met which; each such pair is chosen from once."""
    num_passes, templates = 13, [[0, *[None] * width, 3, 1] for width in (6, 5, 4, 3, 1)]
    models = [HistoryModel(6, seed) for seed in (5, 6)]
    seen: set[object] = set()
    expected = []
    judged = [
        [each.beams for each in search_by_hand(models[1], models[0], template, num_beams=2, num_rounds=num_passes // 2)]
        for template in templates
    ]

    def frontier(passes: Sequence[Sequence[object]], number: int, slot: int) -> object:
        return repr(sorted(passes[number][slot]))

    for number in range(num_passes):
        met = {
            (
                example,
                number % 2,
                slot,
                frontier(passes, number, slot),
                frontier(passes, number - 1, len(passes[0]) - 1 - slot) if number else None,
            )
            for example, passes in enumerate(judged)
            for slot in range(len(passes[0]))
        }
        expected.append(len(met - seen))
        seen |= met
    asked: list[int] = []
    honest = SlotRules.candidates

    def counted(self, examples, slot, ranked, count):
        asked[-1] += len(ranked)
        return honest(self, examples, slot, ranked, count)

    monkeypatch.setattr(SlotRules, "candidates", counted)
    trees = Trees.of(models[1], models[0], Settings(num_beams=2))
    trees.begin(templates)
    layouts, everyone, demands = [Layout.of(t) for t in templates], range(5), Demands.plain(6, (), 5)
    sides = [
        trees.side(trees.backward, [layout.mirrored() for layout in layouts], everyone, demands),
        trees.side(trees.forward, layouts, everyone, demands),
    ]
    latest = []
    for number in range(num_passes):
        asked.append(0)
        latest = [run_pass(sides[number % 2], latest)]
    assert asked == expected
    assert 0 < asked[4] < asked[0]
    assert asked[-1] == 0


def test_nothing_follows_an_end_but_ends_and_they_cost_nothing():
    model, nothing = EndingModel(HistoryModel(4, 7), END), [-torch.inf, 0.0, -torch.inf, -torch.inf]
    _, state, _ = model.start([[START, 2], [START, 3]])
    log_probs, state = model.step(torch.tensor([END, 2]), state)
    assert log_probs[0].tolist() == nothing
    assert torch.equal(log_probs[1], HistoryModel(4, 7).log_probs_after([START, 3, 2]))
    log_probs, state = model.step(torch.tensor([END, END]), state)
    assert log_probs.tolist() == [nothing, nothing]


def test_beams_that_cannot_join_are_worth_little_but_not_nothing():
    twos, threes = (MatrixModel([[float(token == word) for token in range(4)]] * 4) for word in (2, 3))
    trees, template = Trees.of(twos, threes, Settings(num_beams=1)), [START, Gap(), END]
    trees.begin([template])
    assert join_scores(trees, [template], [3], Demands.plain(4, (), 1), [0]) == [[NOWHERE] * 3]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=1, max_size=6), st.data())
def test_a_tree_says_what_its_model_says_and_asks_about_each_node_once(walks, data):
    counting, judge = CountingModel(HistoryModel(4, 5)), HistoryModel(4, 5)
    contexts = [(0, 2), (0,)]
    tree = Prefixes(CheckedModel("forward", counting), max_rows=5, max_nodes=100, lookup=True)
    tree.begin(contexts, None)
    owners = [data.draw(st.integers(0, 1)) for _ in walks]
    nodes, seen = owners, set()
    for depth in range(3):
        seen |= {(owner, *walk[: depth + 1]) for owner, walk in zip(owners, walks, strict=True)}
        nodes = tree.read(depth, nodes, [walk[depth] for walk in walks])
        for owner, walk, node in zip(owners, walks, nodes, strict=True):
            said = tree.log_probs(depth + 1)[node]
            torch.testing.assert_close(said, judge.log_probs_after([*contexts[owner], *walk[: depth + 1]]))
            assert tree.path(depth + 1, node) == tuple(walk[: depth + 1])
    assert counting.rows == len(seen)
    whole = [(*walk, 3, 1) for walk in walks]
    known = tree.recall(owners, whole)
    scores = tree.score(known, torch.full((len(walks),), -torch.inf).double()).tolist()
    expected = [judge.score_after([0], [*contexts[o][1:], *w]) for o, w in zip(owners, whole, strict=True)]
    assert scores == pytest.approx(expected, abs=1e-9)
    assert counting.rows == len(seen) + 2 * len(whole)  # what nobody has read is not shared


@pytest.mark.filterwarnings("ignore:`num_return_sequences`")
@pytest.mark.parametrize("method", SAMPLERS)
def test_a_sampler_that_may_keep_nothing_finds_the_same(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    models = HistoryModel(4, 1), HistoryModel(4, 2)
    options = {"method": method, "num_beams": 3, "num_rounds": 2, "num_return_sequences": 30, "seed": 4}
    expected = fill_templates(*models, TEMPLATES, **options)
    monkeypatch.setattr(Prefixes, "is_full", True)
    assert_same(fill_templates(*models, TEMPLATES, **options), expected)


def test_a_budget_of_memory_is_kept_and_changes_no_answer(monkeypatch):
    """A mebibyte is not enough for two blanks of 2,000 words: they are searched one by one, and trees forget."""
    generator = torch.Generator().manual_seed(0)
    models = [MatrixModel(torch.rand(2000, 2000, generator=generator).softmax(1)) for _ in range(2)]
    templates = [[0, 2, *[None] * width, 5, 1] for width in (6, 8, 7)] + [[0, 7, Gap(1, 14), 8, 1]]
    expected = fill_templates(*models, templates, num_beams=5)
    sizes, forgotten = [], []
    honest, forget = Trees.begin, Prefixes.forget
    monkeypatch.setattr(
        Trees, "begin", lambda self, some, given=None: (sizes.append(len(some)), honest(self, some, given))[1]
    )
    monkeypatch.setattr(Prefixes, "forget", lambda self: (forgotten.append(len(self.context_scores)), forget(self))[1])
    assert_same(fill_templates(*models, templates, num_beams=5, max_memory=1), expected)
    assert sizes == [1, 1, 1, 1]
    assert forgotten  # between the lengths of the gap


def uniforms(seed: int, purpose: int, layout: Layout, num_sweeps: int) -> list[list[float]]:
    generator = torch.Generator().manual_seed(
        zlib.crc32(repr((seed, purpose, 0, layout.context, layout.region, layout.rest)).encode())
    )
    return torch.rand(num_sweeps, len(layout.region), generator=generator).tolist()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 99), st.sampled_from([TEMPLATES[0], TEMPLATES[2], [0, None, None, None, 2, None, None, 1]]))
def test_random_slots_are_drawn_given_all_the_others(seed, template):
    """The chain written out: every distribution from the whole of the present sequence, nothing kept."""
    forward, backward = HistoryModel(4, 1), HistoryModel(4, 2)
    layout, num_rounds = Layout.of(template), 2
    free = [slot for slot, token in enumerate(template) if token is None]
    where, drawn = (uniforms(seed, purpose, layout, 2 * num_rounds) for purpose in (1, 0))
    options = {"num_beams": 1, "start": "backward"}
    now = list(fill_templates(forward, backward, [template], method="backward", num_beams=1)[0][0].tokens)
    states = {tuple(now)}
    for number in range(2 * num_rounds * len(free)):
        sweep, place = divmod(number, len(layout.region))
        slot = free[int(where[sweep][place] * len(free))]
        logits = forward.log_probs_after(now[:slot]) + backward.log_probs_after(now[:slot:-1])
        ends = logits.softmax(0).cumsum(0)
        now[slot] = int((ends <= drawn[sweep][place] * ends[-1]).sum())
        if (number + 1) % len(free) == 0:
            states.add(tuple(now))
    options |= {"method": "gsn-random", "seed": seed, "num_rounds": num_rounds, "num_return_sequences": 99}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (fills,) = fill_templates(forward, backward, [template], **options)
    assert {fill.tokens for fill in fills} == states


def test_drawing_inverts_the_cumulative_sum_and_skips_the_impossible():
    logits = torch.tensor([[0.0, -torch.inf, 0.0, 0.0]]).double()
    for uniform, token in ((0.0, 0), (0.32, 0), (0.34, 2), (0.66, 2), (0.67, 3), (1 - 1e-12, 3)):
        assert _draw(logits, torch.tensor([uniform]).double()).tolist() == [token]
