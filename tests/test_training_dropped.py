"""Weights that are dropped for one step, judged by a second network that holds the thinned weights as its own."""

from __future__ import annotations

import copy

import pytest
import torch

from bibs.models.cells import GATES
from bibs.models.recurrent import RecurrentConfig, RecurrentModel
from bibs.training.dropped import dropped_weights

TOKENS = torch.tensor([[0, 3, 4, 1], [0, 5, 3, 1], [0, 6, 2, 1]])
THINNED = ("network.weight_hh_l0", "network.weight_hh_l1", "embedding.weight")


def make_model(cell: str = "lstm") -> RecurrentModel:
    torch.manual_seed(0)
    return RecurrentModel(
        RecurrentConfig(vocab_size=7, hidden_size=6, embedding_size=5, num_layers=2, cell=cell)
    ).train()


@pytest.mark.parametrize("cell", GATES)
def test_the_gradient_is_that_of_the_thinned_weights_where_they_were_kept(cell: str) -> None:
    model = make_model(cell)
    whole = copy.deepcopy(model.state_dict())
    with dropped_weights(model, weight_dropout=0.4, word_dropout=0.3):
        thinned = copy.deepcopy(model)
        loss, _ = model.loss(TOKENS)
        loss.backward()  # type: ignore[no-untyped-call]
    judge, _ = thinned.loss(TOKENS)
    judge.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == judge.item()
    for (name, weight), thin in zip(model.named_parameters(), thinned.parameters(), strict=True):
        assert weight.grad is not None
        assert thin.grad is not None
        torch.testing.assert_close(weight.grad, thin.grad * (thin.detach() / whole[name]))  # the chain rule


def test_weights_are_dropped_one_by_one_words_as_a_whole_and_the_rest_stays() -> None:
    model = make_model()
    whole = copy.deepcopy(model.state_dict())
    factors: dict[str, list[torch.Tensor]] = {name: [] for name in whole}
    for _ in range(400):
        with dropped_weights(model, weight_dropout=0.25, word_dropout=0.5):
            for name, weight in model.state_dict().items():
                factors[name].append(weight / whole[name])
    for name, seen in factors.items():
        drawn = torch.stack(seen)
        share = {"embedding.weight": 0.5}.get(name, 0.25 if name in THINNED else 0.0)
        kept = drawn[drawn != 0]
        torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - share)))
        torch.testing.assert_close((drawn == 0).double().mean().item(), share, atol=0.03, rtol=0)
        if name == "embedding.weight":
            torch.testing.assert_close(drawn, drawn[..., :1].expand_as(drawn))


def test_the_weights_come_back_to_the_last_bit_even_after_an_error() -> None:
    model = make_model()
    whole = copy.deepcopy(model.state_dict())
    with pytest.raises(IndexError), dropped_weights(model, weight_dropout=0.5, word_dropout=0.5):
        model.loss(TOKENS + model.vocab_size)
    assert all(torch.equal(weight, whole[name]) for name, weight in model.state_dict().items())


def test_a_share_of_zero_draws_nothing() -> None:
    """So that runs without it end with the weights that they had before there was such a thing."""
    model = make_model()
    before = torch.get_rng_state()
    with dropped_weights(model, weight_dropout=0.0, word_dropout=0.0):
        pass
    assert torch.equal(torch.get_rng_state(), before)
