"""NADE: its conditionals, by a second way of computing, and its sampler, by counting."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import nn

from bibs.models.nade import NADE
from bibs.models.recurrent import RecurrentConfig

V = 7
CONFIG = RecurrentConfig(V, 6, 5, cell="gru", condition_size=3)
START, END = 0, 1


def make(config: RecurrentConfig = CONFIG) -> NADE:
    torch.manual_seed(2)
    model = NADE(config).double()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.6)
    return model.eval()


def conditional(model: NADE, template: list[int | None], slot: int) -> torch.Tensor:
    """P(word of the slot | known words), from the two sides read one by one."""
    tokens = [V if token is None else token for token in template]
    left = model.network.left.hidden(torch.tensor([tokens[:slot]]))[0, -1]
    right = model.network.right.hidden(torch.tensor([tokens[:slot:-1]]))[0, -1]
    scores = left @ model.network.left.output.weight.t() + right @ model.network.right.output.weight.t()
    return (scores + model.network.bias)[:V].softmax(0).detach()


def test_the_loss_is_that_of_the_missing_words_given_the_known_ones() -> None:
    model = make()
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


@pytest.mark.parametrize("order", ["left-to-right", "random"])
def test_fills_are_distinct_sorted_and_keep_what_is_known(order: str) -> None:
    model = make()
    templates: list[list[int | None]] = [[START, None, 4, None, None, END], [START, None, END]]
    pictures = [torch.randn(3, dtype=torch.float64), None]
    batch = model.fill(templates, pictures, num_samples=20, order=order, banned=[START, END, 2])
    for template, picture, fills in zip(templates, pictures, batch, strict=True):
        alone = model.fill([template], [picture], num_samples=20, order=order, banned=[START, END, 2])[0]
        assert fills == alone
        assert len({fill.tokens for fill in fills}) == len(fills) > 1
        assert [fill.score for fill in fills] == sorted((fill.score for fill in fills), reverse=True)
        for fill in fills:
            for known, token in zip(template, fill.tokens, strict=True):
                assert token == known if known is not None else token not in (START, END, 2, V)


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
        ({"order": "up"}, "`order`"),
        ({"templates": [[None, END]]}, "template 0"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make().fill(**{"templates": [[START, None, END]], **arguments})  # type: ignore[arg-type]


def test_a_nade_comes_back_from_disk_and_wants_a_dense_output(tmp_path) -> None:  # type: ignore[no-untyped-def]
    model = make().float()
    model.save(tmp_path / "nade.safetensors", dtype=None)
    loaded = NADE.load(tmp_path / "nade.safetensors", CONFIG)
    torch.testing.assert_close(dict(loaded.state_dict()), dict(model.state_dict()), rtol=0, atol=0)
    with pytest.raises(ValueError, match="`cutoffs` must be empty"):
        NADE(replace(CONFIG, cutoffs=(3,)))
