"""NADE: its conditionals, by a second way of computing, and its sampler, by counting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bibs.models import nade
from bibs.models.nade import NADE
from bibs.models.recurrent import RecurrentConfig, RecurrentModel

V = 7
CONFIG = RecurrentConfig(V, 6, 5, cell="gru", condition_size=3)
START, END = 0, 1


def make(config: RecurrentConfig = CONFIG) -> NADE:
    torch.manual_seed(2)
    model = NADE(config).double()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.6)
    return model.eval()


def conditional(
    model: NADE, template: Sequence[int | None], slot: int, picture: torch.Tensor | None = None
) -> torch.Tensor:
    """P(word of the slot | known words), from the two sides read one by one."""
    tokens = [V if token is None else token for token in template]
    pictures = None if model.config.condition_size == 0 else [picture]
    left = model.left.hidden(torch.tensor([tokens[:slot]]), pictures)[0, -1]
    right = model.right.hidden(torch.tensor([tokens[:slot:-1]]), pictures)[0, -1]
    return model.output.log_probs(torch.cat([left, right])[None])[0].exp().detach()


@pytest.mark.parametrize("cutoffs", [(), (3, 5)])
def test_the_loss_is_that_of_the_missing_words_given_the_known_ones(cutoffs: tuple[int, ...]) -> None:
    model = make(replace(CONFIG, cutoffs=cutoffs))
    tokens = torch.tensor([[START, 3, 4, 5, 6, END], [START, 2, 5, END, 0, 0]])
    lengths = torch.tensor([6, 4])
    hidden = model._draw_missing(tokens, lengths, torch.Generator().manual_seed(0))
    assert hidden.any(1).all()
    assert not hidden[:, 0].any()
    assert not hidden[0, 5:].any()
    assert not hidden[1, 3:].any()
    expected = 0.0
    for row, length in enumerate(lengths.tolist()):
        template = [None if hidden[row, slot] else int(tokens[row, slot]) for slot in range(length)]
        for slot in range(length):
            if hidden[row, slot]:
                expected -= conditional(model, template, slot)[tokens[row, slot]].log().item()
    loss, count = model.loss(tokens, lengths)
    assert count == hidden.sum()
    assert loss.item() == pytest.approx(expected)


def test_draws_of_one_slot_follow_its_conditional() -> None:
    model = make(replace(CONFIG, condition_size=0))
    template: list[int | None] = [START, 3, None, 5, END]
    expected = conditional(model, template, 2)
    expected[[START, END]] = 0
    expected /= expected.sum()
    counts = Counter(model.fill([template], seed=seed, banned=[START, END])[0][0].tokens[2] for seed in range(600))
    for word in range(V):
        spread = (float(expected[word] * (1 - expected[word])) / 600) ** 0.5
        assert abs(counts[word] / 600 - float(expected[word])) <= 5 * spread + 1e-9


TEMPLATES: list[list[int | None]] = [
    [START, None, 4, None, None, END],
    [START, None, END],
    [START, 3, 3, 2, None, 6, 4, None, END],
    [START, 5, None, None, END],
]


def test_fills_are_distinct_sorted_and_keep_what_is_known() -> None:
    for template, fills in zip(TEMPLATES, make().fill(TEMPLATES, num_samples=20, banned=[START, END, 2]), strict=True):
        assert len({fill.tokens for fill in fills}) == len(fills) > 1
        assert [fill.score for fill in fills] == sorted((fill.score for fill in fills), reverse=True)
        for fill in fills:
            for known, token in zip(template, fill.tokens, strict=True):
                assert token == known if known is not None else token not in (START, END, 2, V)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@given(order=st.permutations(range(len(TEMPLATES))), rows=st.integers(1, 40), seed=st.integers(0, 3))
@settings(max_examples=15, deadline=None)
def test_a_batch_of_any_size_and_order_equals_its_templates_one_by_one(
    cell: str, order: list[int], rows: int, seed: int
) -> None:
    model = make(replace(CONFIG, cell=cell, num_layers=2))
    pictures = [None if index == 1 else torch.full((3,), 0.3 * index, dtype=torch.float64) for index in range(4)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nade, "BATCH_ROWS", rows)
        batch = model.fill([TEMPLATES[i] for i in order], [pictures[i] for i in order], num_samples=6, seed=seed)
    for index, fills in zip(order, batch, strict=True):
        alone = model.fill([TEMPLATES[index]], [pictures[index]], num_samples=6, seed=seed)[0]
        assert [fill.tokens for fill in fills] == [fill.tokens for fill in alone]
        assert [fill.score for fill in fills] == pytest.approx([fill.score for fill in alone])


@pytest.mark.parametrize("condition_size", [0, 3])
def test_a_score_is_that_of_the_words_put_in_place_one_by_one_from_the_left(condition_size: int) -> None:
    model = make(replace(CONFIG, condition_size=condition_size))
    picture = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64) if condition_size else None
    pictures = [picture] * len(TEMPLATES) if condition_size else None
    for template, fills in zip(TEMPLATES, model.fill(TEMPLATES, pictures, num_samples=5), strict=True):
        for fill in fills:
            shown, score = list(template), 0.0
            for slot, known in enumerate(template):
                if known is None:
                    score += conditional(model, shown, slot, picture)[fill.tokens[slot]].log().item()
                    shown[slot] = fill.tokens[slot]
            assert fill.score == pytest.approx(score)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("cutoffs", [(), (3, 5)])
def test_a_nade_from_a_pair_begins_as_the_product_of_the_two(cell: str, cutoffs: tuple[int, ...]) -> None:
    """With cutoffs: the product over the clusters and the frequent words, and the product within each cluster."""
    torch.manual_seed(0)
    config = RecurrentConfig(V, 8, 5, cell=cell, cutoffs=cutoffs)
    forward, backward = (RecurrentModel(config).double().eval() for _ in range(2))
    model = NADE.from_pair(forward, backward).double().eval()
    template: list[int | None] = [START, 3, 6, None, 5, END]
    first = forward.start([[START, 3, 6]])[0][0].exp()
    second = backward.start([[END, 5]])[0][0].exp()
    edges = [0, *cutoffs, V]
    clusters = [slice(low, high) for low, high in pairwise(edges)]
    head = [slice(word, word + 1) for word in range(edges[1])] + clusters[1:]
    product = torch.tensor([float(first[part].sum() * second[part].sum()) for part in head])
    product /= product.sum()
    expected = torch.zeros(V, dtype=torch.float64)
    for part, share in zip(head, product, strict=True):
        within = first[part] * second[part]
        expected[part] = share * within / within.sum()
    torch.testing.assert_close(conditional(model, template, 3), expected, rtol=1e-6, atol=1e-6)


def test_the_best_word_each_time_is_the_mode_of_each_conditional_in_turn() -> None:
    model = make(replace(CONFIG, condition_size=0))
    template: list[int | None] = [START, None, 4, None, END]
    (fill,) = model.fill([template], sample=False)[0]
    score = 0.0
    for slot in (1, 3):
        probabilities = conditional(model, template, slot)
        template[slot] = int(probabilities.argmax())
        score += probabilities.max().log().item()
    assert fill.tokens == tuple(template)
    assert fill.score == pytest.approx(score)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_samples": 0}, "`num_samples`"),
        ({"templates": [[None, END]]}, "template 0"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make().fill(**{"templates": [[START, None, END]], **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize("cutoffs", [(), (3, 5)])
def test_a_nade_comes_back_from_disk(tmp_path: Path, cutoffs: tuple[int, ...]) -> None:
    config = replace(CONFIG, cutoffs=cutoffs)
    model = make(config).float()
    model.save(tmp_path / "nade.safetensors", dtype=None)
    loaded = NADE.load(tmp_path / "nade.safetensors", config)
    torch.testing.assert_close(dict(loaded.state_dict()), dict(model.state_dict()), rtol=0, atol=0)
