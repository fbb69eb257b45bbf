"""Words that are read by the vectors that predict them, judged by what the output itself says of those vectors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from bibs.models.recurrent import RecurrentConfig
from bibs.training import Sources, TrainingSettings, train, train_nade
from bibs.training.tied import TiedModel

TOKENS = torch.tensor([[0, 3, 4, 10, 1], [0, 8, 3, 11, 1], [0, 6, 2, 5, 1]])
CUTOFFS = [(), (5,), (4, 9)]


def make_model(cutoffs: tuple[int, ...], cell: str = "lstm") -> TiedModel:
    torch.manual_seed(0)
    return TiedModel(
        RecurrentConfig(vocab_size=12, hidden_size=8, embedding_size=8, condition_size=3, cell=cell, cutoffs=cutoffs)
    )


@pytest.mark.parametrize("cutoffs", CUTOFFS)
def test_a_word_is_read_by_the_vector_whose_product_predicts_it(cutoffs: tuple[int, ...]) -> None:
    """Within a cluster, log probabilities differ by products (and by biases, which are taken away by a zero state)."""
    model = make_model(cutoffs).eval()
    vectors = model.read_words(torch.arange(12)) / model.gain  # (V, E)
    hidden = torch.randn(1, 8)
    said = (model.output.log_probs(hidden) - model.output.log_probs(torch.zeros(1, 8)))[0]  # (V,)
    products = (hidden @ vectors.t())[0]
    for low, high in zip((0, *cutoffs), (*cutoffs, 12), strict=True):
        expected = products[low:high] - products[low]
        torch.testing.assert_close(said[low:high] - said[low], expected)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("cutoffs", CUTOFFS)
def test_the_ordinary_network_says_the_same(cutoffs: tuple[int, ...], cell: str) -> None:
    model = make_model(cutoffs, cell).eval()
    pictures = torch.randn(3, 3)
    ordinary = model.untied()
    torch.testing.assert_close(ordinary(TOKENS, pictures), model(TOKENS, pictures))
    contexts = [row[:4].tolist() for row in TOKENS]
    log_probs, _, scores = ordinary.start(contexts, pictures)
    expected = model(TOKENS, pictures)
    torch.testing.assert_close(log_probs, expected[:, 3])
    given = expected[:, :3].gather(2, TOKENS[:, 1:4, None])[..., 0]
    torch.testing.assert_close(scores, given.sum(1))


@pytest.mark.parametrize("cutoffs", CUTOFFS)
def test_reading_a_word_teaches_the_vector_that_predicts_it(cutoffs: tuple[int, ...]) -> None:
    """The gradient through what is read alone, by the chain rule through a table of vectors."""
    model = make_model(cutoffs).train()
    table = model.read_words(torch.arange(12)).detach().requires_grad_()
    model.read_words = lambda words: F.embedding(words, table)  # type: ignore[method-assign]
    loss, _ = model.loss(TOKENS)
    (of_table,) = torch.autograd.grad(loss, table)
    del model.read_words
    loss, _ = model.loss(TOKENS)
    weights = dict(model.output.named_parameters())
    whole = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    frozen = model.read_words(torch.arange(12))
    through = torch.autograd.grad((frozen * of_table).sum(), list(weights.values()), allow_unused=True)
    model.read_words = lambda words: F.embedding(words, table.detach())  # type: ignore[method-assign]
    loss, _ = model.loss(TOKENS)
    rest = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    for weight, *parts in zip(weights.values(), whole, through, rest, strict=True):
        found, read, predicted = (torch.zeros_like(weight) if part is None else part for part in parts)
        torch.testing.assert_close(found, read + predicted)
    assert any(part is not None and bool(part.any()) for part in through)


SETTINGS = TrainingSettings(hidden_size=8, embedding_size=8, cutoffs=(), epochs=1, batch_size=4, tied=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embedding_size": 7}, "`embedding_size` must be `hidden_size` where words are `tied`, but they are 7 and 8"),
        ({"word_dropout": 0.1}, r"`word_dropout` must be 0 where words are `tied`, but is 0\.1"),
    ],
)
def test_what_tied_words_cannot_have_is_named(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        replace(SETTINGS, **changes)  # type: ignore[arg-type]


def test_weights_that_have_word_vectors_of_their_own_stay_untied(tmp_path: Path) -> None:
    text = tmp_path / "lines.txt"
    text.write_text("".join(f"a {animal} sits on a {place}\n" for animal in ("cat", "dog") for place in "pqrstuvwxy"))
    sources = Sources((text,), min_count=1, val_share=0.2)
    train(sources, SETTINGS, tmp_path / "pair", in_parallel=False)
    with pytest.raises(ValueError, match=r"^`tied` must be left out with `init`$"):
        train(sources, SETTINGS, tmp_path / "more", init=tmp_path / "pair", in_parallel=False)
    with pytest.raises(ValueError, match=r"^`tied` must be left out with `missing`$"):
        train_nade(sources, SETTINGS, tmp_path / "nade")
    assert not (tmp_path / "more").exists()
    train(sources, replace(SETTINGS, tied=False), tmp_path / "more", init=tmp_path / "pair", in_parallel=False)
    card = (tmp_path / "pair" / "model-card.md").read_text()
    assert "(tied words)" in card
