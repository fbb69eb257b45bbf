"""The n-gram model, judged by the formulae of Kneser-Ney written out with dictionaries."""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bibs.models import ngram
from bibs.models.kneser_ney import discounts
from bibs.models.ngram import NGramModel
from bibs.text import Vocabulary, tokenize

V = 6
law = settings(deadline=None, max_examples=50)
Corpus = list[list[int]]

tokens = st.integers(0, V - 1)
sequences = st.one_of(
    st.lists(tokens, min_size=2, max_size=9),  # anything, even START in the middle
    st.lists(st.integers(2, V - 1), max_size=7).map(lambda words: [0, *words, 1]),
)
corpora = st.lists(sequences, min_size=1, max_size=12)
contexts = st.lists(st.lists(tokens, min_size=1, max_size=7), min_size=1, max_size=5)
orders = st.integers(1, 5)
dense_rows = st.sampled_from([0, 1, 4, 1024])  # from every row scattered to every row kept ready


class SlowKneserNey:
    """The same estimates, term by term."""

    def __init__(self, corpus: Sequence[Sequence[int]], vocab_size: int, order: int) -> None:
        self.vocab_size, self.order = vocab_size, order
        self.counts: dict[int, Counter[tuple[int, ...]]] = {}
        for k in range(order, 0, -1):
            places = [(list(s), t - k + 1, t) for s in corpus for t in range(1, len(s)) if t - k + 1 >= 0]
            if k == order:
                self.counts[k] = Counter(tuple(s[first : t + 1]) for s, first, t in places)
            else:
                extended = {tuple(s[first - 1 : t + 1]) for s, first, t in places if first > 0}
                self.counts[k] = Counter(gram[1:] for gram in extended)
                self.counts[k].update(tuple(s[: t + 1]) for s, first, t in places if first == 0)

        self.counts_of_counts = {k: Counter(counts.values()) for k, counts in self.counts.items()}

    def discount(self, k: int, count: int) -> float:
        n = self.counts_of_counts[k]
        y = n[1] / (n[1] + 2 * n[2]) if n[1] and n[2] else 0.5
        if n[1] and n[2] and n[3]:
            three = [(i + 1) - (i + 2) * y * n[i + 2] / n[i + 1] for i in range(3)]
            if all(0 < d < i for i, d in enumerate(three, start=1)):
                return three[min(count, 3) - 1]
        return y

    def prob(self, history: tuple[int, ...], token: int) -> float:
        history = history[len(history) - min(len(history), self.order - 1) :]
        k = len(history) + 1
        shorter = self.prob(history[1:], token) if history else 1 / self.vocab_size
        after = {gram[-1]: count for gram, count in self.counts[k].items() if gram[:-1] == history}
        total = sum(after.values())
        if total == 0:
            return shorter
        kept = after[token] - self.discount(k, after[token]) if token in after else 0
        backoff = sum(self.discount(k, count) for count in after.values()) / total
        return kept / total + backoff * shorter


def train(corpus: Corpus, order: int, *, num_dense: int = 1024, reverse: bool = False) -> NGramModel:
    with mock.patch.object(ngram, "MAX_DENSE_ROWS", num_dense):
        return NGramModel.train(corpus, vocab_size=V, order=order, reverse=reverse, dtype=torch.float64)


@law
@given(corpora, orders, contexts, dense_rows)
def test_probabilities_are_those_of_the_formulae(corpus: Corpus, order: int, some: Corpus, num_dense: int) -> None:
    model = train(corpus, order, num_dense=num_dense)
    slow = SlowKneserNey(corpus, V, order)
    seen = [sequence[:-1] for sequence in corpus]
    log_probs, _, scores = model.start(some + seen)
    for context, row, score in zip(some + seen, log_probs, scores, strict=True):
        expected = [math.log(slow.prob(tuple(context), token)) for token in range(V)]
        assert row.tolist() == pytest.approx(expected, abs=1e-9)
        places = range(1, len(context))
        total = sum(math.log(slow.prob(tuple(context[:place]), context[place])) for place in places)
        assert score.item() == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("num_dense", [0, 20, 1024])
def test_a_corpus_large_enough_for_three_discounts_also_agrees(order: int, num_dense: int) -> None:
    generator = np.random.default_rng(7)
    corpus = [
        [0, *(int(word) for word in np.minimum(generator.zipf(1.5, size) + 1, 29)), 1]
        for size in generator.integers(1, 9, 150)
    ]
    slow = SlowKneserNey(corpus, 30, order)
    assert len({slow.discount(order, count) for count in (1, 2, 3)}) == 3
    with mock.patch.object(ngram, "MAX_DENSE_ROWS", num_dense):
        model = NGramModel.train(corpus, vocab_size=30, order=order, dtype=torch.float64)
    some = [sequence[:-1] for sequence in corpus[:12]]
    log_probs, _, _ = model.start(some)
    for context, row in zip(some, log_probs, strict=True):
        expected = [slow.prob(tuple(context), token) for token in range(30)]
        assert row.exp().tolist() == pytest.approx(expected, abs=1e-12)


@law
@given(corpora, orders, dense_rows)
def test_every_state_has_probabilities_above_zero_that_sum_to_one(corpus: Corpus, order: int, num_dense: int) -> None:
    model = train(corpus, order, num_dense=num_dense)
    every = [list(context) for size in (1, 2) for context in itertools.product(range(V), repeat=size)]
    log_probs, _, _ = model.start(every + corpus)
    assert torch.isfinite(log_probs).all()
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(len(log_probs), dtype=torch.float64))


@law
@given(corpora, orders, dense_rows)
def test_no_more_rows_are_kept_ready_than_allowed(corpus: Corpus, order: int, num_dense: int) -> None:
    assert len(train(corpus, order, num_dense=num_dense)._rows) <= 1 + num_dense  # the unigrams are always there


@law
@given(corpora, orders, contexts, st.data(), dense_rows)
def test_stepping_equals_starting_from_the_longer_context(
    corpus: Corpus, order: int, some: Corpus, data: st.DataObject, num_dense: int
) -> None:
    model = train(corpus, order, num_dense=num_dense)
    log_probs, state, scores = model.start(some)
    for _ in range(3):
        new = data.draw(st.lists(tokens, min_size=len(some), max_size=len(some)))
        before = state.clone()
        scores = scores + log_probs[range(len(some)), new]
        log_probs, next_state = model.step(torch.tensor(new), state)
        assert torch.equal(state, before), "step must leave the old state as it was"
        state = next_state
        some = [[*context, token] for context, token in zip(some, new, strict=True)]
        expected, expected_state, expected_scores = model.start(some)
        torch.testing.assert_close(log_probs, expected)
        torch.testing.assert_close(scores, expected_scores)
        assert torch.equal(state, expected_state)


@law
@given(corpora, orders, contexts, st.data())
def test_scoring_given_tokens_equals_starting_from_the_longer_context(
    corpus: Corpus, order: int, some: Corpus, data: st.DataObject
) -> None:
    model = train(corpus, order)
    ahead = [data.draw(st.lists(tokens, min_size=1, max_size=5)) for _ in some]
    scores = model.score(ahead, model.start(some)[1])
    shorter = model.start([[*context, new[0]] for context, new in zip(some, ahead, strict=True)])[2]
    longer = model.start([[*context, *new] for context, new in zip(some, ahead, strict=True)])[2]
    torch.testing.assert_close(scores, longer - shorter)


@law
@given(corpora, orders, contexts)
def test_a_batch_equals_its_rows_one_by_one(corpus: Corpus, order: int, some: Corpus) -> None:
    model = train(corpus, order)
    log_probs, state, scores = model.start(some)
    for n, context in enumerate(some):
        alone = model.start([context])
        torch.testing.assert_close(log_probs[n : n + 1], alone[0])
        assert torch.equal(state[n : n + 1], alone[1])
        torch.testing.assert_close(scores[n : n + 1], alone[2])


@law
@given(corpora, orders, contexts)
def test_backward_is_forward_on_reversed_sequences(corpus: Corpus, order: int, some: Corpus) -> None:
    forward, backward = NGramModel.train_pair(corpus, vocab_size=V, order=order, dtype=torch.float64)
    turned = [sequence[::-1] for sequence in corpus]
    for model, same in [
        (forward, train(corpus, order)),
        (backward, train(turned, order)),
        (backward, train(corpus, order, reverse=True)),
    ]:
        for got, expected in zip(model.start(some), same.start(some), strict=True):
            torch.testing.assert_close(got, expected)


@law
@given(corpora, contexts)
def test_order_one_sees_no_context_and_counts_every_token_but_the_first(corpus: Corpus, some: Corpus) -> None:
    model = train(corpus, 1)
    log_probs, state, _ = model.start(some)
    assert state.shape == (len(some), 0)
    events = Counter(token for sequence in corpus for token in sequence[1:])
    removed = {token: discounts(np.array(list(events.values())))[min(events[token], 3)] for token in events}
    shared = sum(removed.values()) / V
    expected = [(events[token] - removed.get(token, 0) + shared) / sum(events.values()) for token in range(V)]
    for row in log_probs:
        assert row.exp().tolist() == pytest.approx(expected)


@law
@given(corpora, orders, contexts)
def test_float32_is_near_float64(corpus: Corpus, order: int, some: Corpus) -> None:
    single = NGramModel.train(corpus, vocab_size=V, order=order)
    for got, expected in zip(single.start(some), train(corpus, order).start(some), strict=True):
        if got.is_floating_point():
            assert got.dtype == torch.float32
        torch.testing.assert_close(got, expected, check_dtype=False, atol=1e-4, rtol=0)


def test_words_never_seen_share_a_small_probability() -> None:
    model = NGramModel.train([[0, 3, 4, 3, 1]] * 5, vocab_size=10, order=2)
    probs = model.start([[0]])[0][0].exp()
    unseen = probs[[0, 2, 5, 6, 7, 8, 9]]  # START among them: it stands first, and is never an event
    assert (unseen == unseen[0]).all()
    assert 0 < unseen[0] < probs[[1, 3, 4]].min()


def test_a_word_of_one_context_is_a_poor_guess_in_others() -> None:
    """The point of Kneser-Ney: `francisco` is frequent, but only ever after `san`."""
    start, end, san, francisco, tea, a, b, c, d = range(9)
    corpus = [[start, san, francisco, end]] * 20 + [[start, before, tea, end] for before in (a, b, c)]
    probs = NGramModel.train(corpus, vocab_size=9, order=2).start([[start, d]])[0][0].exp()
    assert probs[tea] > 2 * probs[francisco]
    assert NGramModel.train(corpus, vocab_size=9, order=1).start([[start]])[0][0].argmax() == end


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        # n1 to n4 = 4, 2, 1, 1: Y = 4 / 8; 1 - 2 Y 2/4, 2 - 3 Y 1/2, 3 - 4 Y 1/1
        ([1, 1, 1, 1, 2, 2, 3, 4], [0, 0.5, 1.25, 1.0]),
        ([1, 1, 2], [0, 0.5, 0.5, 0.5]),  # no count of 3: one discount, Y = 2 / 4
        ([1, 2, 3, 3, 3, 4], [0, 1 / 3, 1 / 3, 1 / 3]),  # 2 - 3 Y 3/1 is below 0
        ([1, 1], [0, 0.5, 0.5, 0.5]),
        ([7, 9], [0, 0.5, 0.5, 0.5]),
    ],
)
def test_discounts_on_counts_worked_by_hand(counts: list[int], expected: list[float]) -> None:
    assert discounts(np.array(counts)).tolist() == pytest.approx(expected)


@law
@given(st.lists(st.integers(1, 9), min_size=1))
def test_a_discount_is_above_zero_and_below_its_count(counts: list[int]) -> None:
    assert all(0 < d < count for count, d in enumerate(discounts(np.array(counts))[1:], start=1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_load_gives_back_what_save_wrote(tmp_path: Path, dtype: torch.dtype) -> None:
    corpus = [[0, 2, 3, 1], [0, 3, 3, 4, 1], [0, 2, 4, 1]]
    for order in (1, 3, 9):
        model = NGramModel.train(corpus, vocab_size=V, order=order, dtype=dtype)
        model.save(tmp_path / "forward.safetensors")
        loaded = NGramModel.load(tmp_path / "forward.safetensors")
        assert (loaded.order, loaded.vocab_size) == (order, V)
        for got, expected in zip(loaded.start(corpus), model.to("cpu").start(corpus), strict=True):
            assert torch.equal(got, expected)
            assert got.dtype == expected.dtype
        assert [entry.name for entry in tmp_path.iterdir()] == ["forward.safetensors"]


def test_a_file_that_is_no_whole_n_gram_model_is_named(tmp_path: Path) -> None:
    path = tmp_path / "forward.safetensors"
    NGramModel.train([[0, 2, 1]], vocab_size=V, order=2).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    with pytest.raises(ValueError, match=r"forward\.safetensors is not a whole safetensors file"):
        NGramModel.load(path)
    for other in ({"weight": torch.zeros(3)}, {"order_and_vocab_size": torch.tensor([2, 6])}):
        ngram.save_tensors(path, other)
        with pytest.raises(ValueError, match=r"forward\.safetensors does not hold an n-gram model"):
            NGramModel.load(path)


@pytest.mark.parametrize("empty", [[], [[]], [[0]], [[0], [1]]])
def test_an_empty_corpus_is_refused(empty: Corpus) -> None:
    with pytest.raises(ValueError, match="`sequences` must hold at least one of two tokens or more"):
        NGramModel.train(empty, vocab_size=V)


def test_bad_arguments_get_one_clear_line() -> None:
    for wrong in (-1, V):
        with pytest.raises(ValueError, match=f"between 0 and 5, but one is {wrong}"):
            NGramModel.train([[0, wrong, 1]], vocab_size=V)
    with pytest.raises(ValueError, match="`order` must be at least 1, but is 0"):
        NGramModel.train([[0, 1]], vocab_size=V, order=0)
    with pytest.raises(ValueError, match="`dtype` must be a floating-point type"):
        NGramModel.train([[0, 1]], vocab_size=V, dtype=torch.int64)
    model = NGramModel.train([[0, 2, 1]], vocab_size=V)
    with pytest.raises(ValueError, match="between 0 and 5, but one is 6"):
        model.start([[0, V]])
    _, state, _ = model.start([[0]])
    with pytest.raises(ValueError, match="between 0 and 5, but one is -1"):
        model.step(torch.tensor([-1]), state)
    for nothing in ([], [[]], [[0], []]):
        with pytest.raises(ValueError, match="`contexts` must hold at least one context"):
            model.start(nothing)


def test_a_condition_is_refused_rather_than_ignored() -> None:
    model = NGramModel.train([[0, 2, 1]], vocab_size=V)
    assert torch.equal(model.start([[0], [0]], [None, None])[0], model.start([[0], [0]])[0])
    with pytest.raises(ValueError, match="`conditions` must be None for an n-gram model"):
        model.start([[0], [0]], [None, torch.zeros(3)])
    with pytest.raises(ValueError, match="`conditions` must be None for an n-gram model"):
        model.start([[0]], torch.zeros(1, 3))


@pytest.mark.slow
def test_longer_n_grams_predict_real_captions_better() -> None:
    path = Path(os.environ.get("BIBS_DATA", "../shared/data")) / "coco" / "captions_without_images.txt"
    if not path.exists():
        pytest.skip("needs coco/captions_without_images.txt under BIBS_DATA")
    lines = [tokenize(line) for line in path.read_text(encoding="utf-8").splitlines()[:30_000]]
    held_out, train_lines = lines[::30], [line for n, line in enumerate(lines) if n % 30]
    vocabulary = Vocabulary.build(train_lines, min_count=2)
    corpus, test = (
        [[vocabulary.start, *vocabulary.encode(line), vocabulary.end] for line in part]
        for part in (train_lines, held_out)
    )
    num_events = sum(len(sequence) - 1 for sequence in test)
    for reverse in (False, True):
        test = [sequence[::-1] for sequence in test] if reverse else test
        perplexities = []
        for order in (1, 2, 3):
            model = NGramModel.train(corpus, vocab_size=len(vocabulary), order=order, reverse=reverse)
            perplexities.append(math.exp(-float(model.start(test)[2].sum()) / num_events))
        assert perplexities[0] > 2 * perplexities[1] > 2 * perplexities[2]
