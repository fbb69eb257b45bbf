"""Counts of DNA, judged by dictionaries and by the formulae written out."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bibs.models.kmers import FOLLOW_MEMORY, FOLLOW_WEIGHT, LEAST_TRUST, MAX_ORDER, KmerModel, reverse_complement

law = settings(deadline=None, max_examples=25)
texts = st.lists(st.lists(st.integers(0, 4), max_size=30), min_size=1, max_size=4).filter(
    lambda several: any(map(any, several))
)
# Stretches of one text, now and then with another letter: what is followed is followed over misses too.
contexts = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=25), min_size=1, max_size=4)
orders = st.integers(2, 6)


class SlowKmers:
    """The same estimates: dictionaries for the counts, and for what is followed the letters themselves."""

    def __init__(self, texts: list[list[int]], order: int, escape: float) -> None:
        self.order, self.escape = order, escape
        self.text = [0]
        for text in texts:
            self.text += [*text, 0]
        self.after: dict[tuple[int, ...], Counter[int]] = {}
        for place in range(1, len(self.text)):
            for k in range(order):
                context = tuple(self.text[max(0, place - k) : place])
                if len(context) == k and 0 not in context and self.text[place]:
                    self.after.setdefault(context, Counter())[self.text[place]] += 1
        stretches = (tuple(self.text[place : place + order - 1]) for place in range(len(self.text)))
        self.contexts = {stretch for stretch in stretches if 0 not in stretch}

    def interpolated(self, read: list[int], letter: int) -> float:
        prob = 1 / 4
        for k in range(min(self.order - 1, len(read)) + 1):
            context = tuple(read[len(read) - k :])
            seen = self.after.get(context, Counter())
            new = self.escape * len(seen)
            if seen:
                prob = (seen[letter] + new * prob) / (seen.total() + new)
        return prob

    def probs(self, read: list[int]) -> list[float]:
        """Of A, C, G and T after what was read."""
        followed: tuple[int, ...] | None = None
        trust = 0.0
        for number, letter in enumerate(read, start=1):
            seen = self.after.get(followed, Counter()) if followed else Counter()
            hit = letter != 0 and seen[letter] > 0
            trust = FOLLOW_MEMORY * trust + (1 - FOLLOW_MEMORY) * hit
            if followed and seen and trust >= LEAST_TRUST:
                followed = (*followed[1:], letter if hit else max((1, 2, 3, 4), key=lambda base: seen[base]))
            else:
                followed, trust = None, 0.0
            longest = tuple(read[max(0, number - self.order + 1) : number])
            if len(longest) == self.order - 1 and longest in self.contexts:
                followed, trust = longest, trust or 1.0
        seen = self.after.get(followed, Counter()) if followed else Counter()
        weight = FOLLOW_WEIGHT * trust if seen else 0.0
        copied = [seen[base] / seen.total() if seen else 0.0 for base in (1, 2, 3, 4)]
        return [weight * copied[base - 1] + (1 - weight) * self.interpolated(read, base) for base in (1, 2, 3, 4)]


def arrays(texts: list[list[int]]) -> list[np.ndarray]:
    return [np.array(text, np.uint8) for text in texts]


@law
@given(texts, contexts, orders, st.sampled_from([0.5, 1.0, 10.0]))
def test_the_table_says_what_dictionaries_say(texts, contexts, order, escape):
    model = KmerModel.count(arrays(texts), order=order, escape=escape)
    slow = SlowKmers(texts, order, escape)
    found = model.start(contexts)[0][:, 1:].exp()
    expected = torch.tensor([slow.probs(context) for context in contexts], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@law
@given(st.lists(st.integers(1, 4), min_size=12, max_size=40), st.data())
def test_places_are_followed_over_letters_that_differ(text, data):
    """A copy of the text with a letter changed here and there: contexts break, and what is followed does not."""
    copy = list(text)
    for place in data.draw(st.lists(st.integers(4, len(text) - 1), max_size=4)):
        copy[place] = data.draw(st.integers(0, 4))
    model, slow = KmerModel.count(arrays([text]), order=4), SlowKmers([text], 4, 10.0)
    prefixes = [copy[:end] for end in range(1, len(copy) + 1)]
    found = model.start(prefixes)[0][:, 1:].exp()
    torch.testing.assert_close(found, torch.tensor([slow.probs(p) for p in prefixes]).double(), rtol=1e-5, atol=1e-6)


@law
@given(texts, contexts, orders, st.booleans())
def test_probabilities_sum_to_one_and_steps_say_what_a_whole_reading_says(texts, contexts, order, both_strands):
    for model in KmerModel.count_pair(arrays(texts), order=order, both_strands=both_strands):
        whole, _, scores = model.start(contexts)
        torch.testing.assert_close(whole.exp().sum(1), torch.ones(len(contexts)).double())
        for row, context in enumerate(contexts):
            log_probs, state, score = model.start([context[:1]])
            for token in context[1:]:
                score = score + log_probs[:, token]
                log_probs, state = model.step(torch.tensor([token]), state)
            torch.testing.assert_close(log_probs[0], whole[row])
            torch.testing.assert_close(score[0], scores[row])


@law
@given(texts, contexts, orders)
def test_one_table_of_both_strands_is_two_tables(texts, contexts, order):
    """The model that reads right to left, by the complement, is one that counted both strands from right to left."""
    _, backward = KmerModel.count_pair(arrays(texts), order=order)
    strands = [*arrays(texts), *map(reverse_complement, arrays(texts))]
    turned = KmerModel.count([strand[::-1] for strand in strands], order=order)
    # Of two letters that are as frequent either may be followed, so the counts alone are compared.
    a, b = backward.start(contexts)[1][0], turned.start(contexts)[1][0]
    assert torch.equal((a[:, 1] - a[:, 0])[:, :-1], (b[:, 1] - b[:, 0])[:, :-1])


@law
@given(st.lists(st.integers(0, 4), max_size=20))
def test_the_reverse_complement_turned_back_is_the_sequence(sequence):
    array = np.array(sequence, np.uint8)
    assert reverse_complement(reverse_complement(array)).tolist() == sequence
    assert [0 if t == 0 else 5 - t for t in sequence[::-1]] == reverse_complement(array).tolist()


@law
@given(texts, contexts, orders)
def test_the_longest_match_is_the_longest_stretch_that_stands_in_the_text(texts, contexts, order):
    forward, backward = KmerModel.count_pair(arrays(texts), order=order, both_strands=False)
    whole = ["".join("NACGT"[letter] for letter in text) for text in texts]
    for context, found in zip(contexts, forward.longest_match(contexts), strict=True):
        read = "".join("NACGT"[letter] for letter in context)
        stretches = [read[a:b] for a in range(len(read)) for b in range(a + 1, len(read) + 1) if b - a < order]
        shared = [len(each) for each in stretches if "N" not in each and any(each in text for text in whole)]
        assert found == max(shared, default=0)
    assert backward.longest_match([context[::-1] for context in contexts]) == forward.longest_match(contexts)


@pytest.mark.parametrize("order", [2, MAX_ORDER])
def test_the_shortest_and_the_longest_order_work(order):
    text = np.random.default_rng(0).integers(1, 5, 200).astype(np.uint8)
    model = KmerModel.count([text], order=order)
    assert model.longest_match([text[:100].tolist()]) == [order - 1]
    assert model.start([text[:100].tolist()])[0].exp().sum().item() == pytest.approx(1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"order": 1}, "`order` must be between 2 and 27, but is 1"),
        ({"order": 28}, "`order` must be between 2 and 27, but is 28"),
        ({"escape": 0.0}, "`escape` must be above 0, but is 0.0"),
        ({"escape": math.inf}, "`escape` must be above 0, but is inf"),
        ({"sequences": [[0, 0]]}, "`sequences` must hold at least one base"),
        ({"sequences": [[1, 5]]}, "a token must be between 0 and 4, but one is 5"),
    ],
)
def test_what_cannot_be_counted_is_refused_in_one_line(options, says):
    sequences = arrays(options.pop("sequences", [[1, 2]]))
    with pytest.raises(ValueError, match=says):
        KmerModel.count(sequences, **options)


def test_what_cannot_be_read_is_refused_in_one_line():
    model = KmerModel.count(arrays([[1, 2, 3]]), order=2)
    for contexts in ([], [[]]):
        with pytest.raises(ValueError, match="`contexts` must hold at least one"):
            model.start(contexts)
    with pytest.raises(ValueError, match="between 0 and 4, but one is 7"):
        model.start([[1, 7]])
    with pytest.raises(ValueError, match="`conditions` must be None"):
        model.start([[1]], ["a picture"])
