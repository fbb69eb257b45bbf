"""Law 9: a pair of one-directional models and the network that adds their scores are one thing. In float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bibs.models.birnn import BiRNN
from bibs.models.recurrent import RecurrentConfig, RecurrentModel

V = 9


def pair(cell: str, layers: int = 1, condition_size: int = 0) -> tuple[RecurrentModel, RecurrentModel]:
    torch.manual_seed(4)
    models = []
    for hidden in (6, 5):  # the two sides need not be of one size
        config = RecurrentConfig(V, hidden, 4, num_layers=layers, cell=cell, condition_size=condition_size)
        model = RecurrentModel(config).double().eval()
        for weight in model.parameters():
            nn.init.normal_(weight, std=0.7)
        models.append(model)
    return models[0], models[1]


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("condition_size", [0, 3])
def test_a_birnn_from_a_pair_is_the_renormalised_product(cell: str, condition_size: int) -> None:
    forward, backward = pair(cell, layers=2, condition_size=condition_size)
    sentences = torch.randint(V, (3, 7)).tolist()
    pictures = [torch.randn(3, dtype=torch.float64), None, torch.randn(3, dtype=torch.float64)]
    conditions = pictures if condition_size else None
    found = BiRNN.from_pair(forward, backward).log_probs(sentences, conditions)  # (3, 5, V)
    for row, sentence in enumerate(sentences):
        for slot in range(1, 6):
            one = [pictures[row]] if condition_size else None
            left = forward.start([sentence[:slot]], one)[0][0]
            right = backward.start([sentence[:slot:-1]], one)[0][0]
            product = left.exp() * right.exp()
            torch.testing.assert_close(found[row, slot - 1].exp(), product / product.sum(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_splitting_and_joining_gives_the_network_back(cell: str) -> None:
    network = BiRNN.from_pair(*pair(cell))
    again = BiRNN.from_pair(*network.split())
    torch.testing.assert_close(dict(again.state_dict()), dict(network.state_dict()), rtol=0, atol=0)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_the_halves_of_a_network_multiply_to_it(cell: str) -> None:
    network = BiRNN.from_pair(*pair(cell))
    forward, backward = network.split()
    sentence = [0, 3, 5, 2, 1]
    left = torch.stack([forward.start([sentence[:slot]])[0][0] for slot in (1, 2, 3)])
    right = torch.stack([backward.start([sentence[:slot:-1]])[0][0] for slot in (1, 2, 3)])
    torch.testing.assert_close(network.log_probs([sentence])[0], (left + right).log_softmax(-1))


@settings(max_examples=20, deadline=None)
@given(sentence=st.lists(st.integers(0, V - 1), min_size=3, max_size=6), data=st.data())
def test_what_stands_in_a_slot_does_not_change_its_own_probabilities(sentence: list[int], data: st.DataObject) -> None:
    network = BiRNN.from_pair(*pair("gru"))
    slot = data.draw(st.integers(1, len(sentence) - 2))
    other = [*sentence[:slot], data.draw(st.integers(0, V - 1)), *sentence[slot + 1 :]]
    before, after = network.log_probs([sentence, other])[:, slot - 1]
    torch.testing.assert_close(before, after)
    torch.testing.assert_close(before.exp().sum(), torch.tensor(1.0, dtype=torch.float64))


def test_from_pair_copies_the_weights() -> None:
    forward, backward = pair("lstm")
    network = BiRNN.from_pair(forward, backward)
    before = network.log_probs([[0, 3, 1]])
    with torch.no_grad():
        forward.embedding.weight.add_(1)
    torch.testing.assert_close(network.log_probs([[0, 3, 1]]), before)


def test_what_cannot_be_added_is_refused_in_one_line() -> None:
    forward, backward = pair("lstm")
    adaptive = RecurrentModel(RecurrentConfig(V, 6, 4, cutoffs=(3,)))
    larger = RecurrentModel(RecurrentConfig(V + 1, 6, 4))
    with pytest.raises(ValueError, match="`backward` model has an adaptive softmax"):
        BiRNN.from_pair(forward, adaptive)
    with pytest.raises(ValueError, match="one `vocab_size`"):
        BiRNN.from_pair(forward, larger)
    network = BiRNN.from_pair(forward, backward)
    with pytest.raises(ValueError, match="one length"):
        network.log_probs([[0, 2, 1], [0, 1]])
    with pytest.raises(ValueError, match="a slot between"):
        network.log_probs([[0, 1]])
