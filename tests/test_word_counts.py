"""Blanks of so many words, where words have several tokens: judged by every fill there is."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bibs import Gap
from bibs.constraints import Subwords, WordCount
from bibs.lengths import LengthPrior, LengthWeights
from bibs.methods import find_fills
from fakes import HistoryModel, score_from_scratch

START, END, V = 0, 1, 6
BEGINS = torch.tensor([False, False, True, True, False, False])
BY_SCORE = LengthPrior(**dict.fromkeys(("sum", "max", "forward", "backward", "join"), LengthWeights(0.0, 0.0)))
MAX_SLOTS = 4


def has_words(tokens, count):
    """Whether a blank with these tokens is so many words, counted one by one."""
    if bool(BEGINS[tokens[0]]) == count.joined:
        return False
    words = 1 + sum(bool(BEGINS[token]) for token in tokens[1:])
    return count.minimum <= words and (count.maximum is None or words <= count.maximum)


def all_fills(template, counts):
    """Every fill of every allowed length, as whole sentences with the lengths of their gaps."""
    gaps = [slot for slot in template if isinstance(slot, Gap)]
    for lengths in itertools.product(*(range(gap.minimum, gap.maximum + 1) for gap in gaps)):
        for fills in itertools.product(*(itertools.product(range(2, V), repeat=length) for length in lengths)):
            if all(map(has_words, fills, counts)):
                inside = iter(fills)
                parts = (next(inside) if isinstance(slot, Gap) else [slot] for slot in template)
                yield tuple(itertools.chain.from_iterable(parts))


@st.composite
def word_counts(draw, most):
    minimum = draw(st.integers(1, most - 1))
    maximum = draw(st.sampled_from([minimum, minimum + 1, None]))
    return WordCount(minimum, maximum, draw(st.booleans()))


@st.composite
def problems(draw):
    num_blanks = draw(st.integers(1, 2))
    most = MAX_SLOTS // num_blanks
    counts = [draw(word_counts(most)) for _ in range(num_blanks)]
    template = [START, 3]
    for count in counts:
        low = draw(st.integers(count.minimum, most))
        template += [Gap(low, draw(st.integers(low, most))), draw(st.integers(2, V - 1))]
    seeds = draw(st.integers(0, 999))
    models = HistoryModel(V, seeds), HistoryModel(V, seeds + 1000)
    return models, [*template, END], counts


def fill(models, templates, counts, method="bibs", **options):
    subwords = Subwords(BEGINS, counts, MAX_SLOTS)
    given = {"conditions": None, "must_include": None, "banned": (START, END), "length_prior": BY_SCORE}
    options = {"num_lengths": None, **given, **options}
    return find_fills(*models, templates, method=method, subwords=subwords, **options)


@given(problems(), st.sampled_from(["bibs", "exact", "rerank-sum"]))
@settings(max_examples=25, deadline=None)
def test_the_best_of_wide_beams_is_the_best_of_all_fills_with_so_many_words(problem, method):
    models, template, counts = problem
    scores = {
        tokens: score_from_scratch(models[0], tokens) + score_from_scratch(models[1], tokens[::-1])
        for tokens in all_fills(template, counts)
    }
    (found,) = fill(models, [template], [counts], method, num_beams=256)
    assert [each.score for each in found] == pytest.approx([max(scores.values())])
    assert scores[found[0].tokens] == pytest.approx(found[0].score)


@given(problems(), st.sampled_from(["bibs", "forward", "backward", "rerank-max"]), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_few_beams_find_fills_with_so_many_words_alone(problem, method, num_beams):
    models, template, counts = problem
    (found,) = fill(models, [template], [counts], method, num_beams=num_beams, num_return_sequences=4)
    assert found
    assert {each.tokens for each in found} <= set(all_fills(template, counts))


@given(st.lists(problems(), min_size=2, max_size=3))
@settings(max_examples=8, deadline=None)
def test_templates_that_count_differently_are_searched_together_as_they_are_alone(several):
    models = several[0][0]
    templates, counts = [template for _, template, _ in several], [counts for _, _, counts in several]
    together = fill(models, templates, counts, num_beams=2)
    alone = [
        fill(models, [template], [count], num_beams=2)[0] for template, count in zip(templates, counts, strict=True)
    ]
    assert [[each.tokens for each in found] for found in together] == [
        [each.tokens for each in found] for found in alone
    ]


def test_one_word_of_whatever_tokens_needs_one_group_of_beams():
    subwords = Subwords(BEGINS, [[WordCount(1, 1)], [WordCount(3, 3)], [WordCount(1, None)]], 4)
    assert [subwords.num_states(template) for template in range(3)] == [1, 2, 1]
