"""A slot with a choice: of its tokens alone, one fills it, in every method and beside every other feature."""

from __future__ import annotations

import itertools

import pytest

from bibs import Gap, Infiller, fill_templates
from bibs.search import OneOf
from fakes import HistoryModel, score_from_scratch
from small_problems import METHODS, SAMPLERS, SEARCHES

SIZE = 6
FORWARD, BACKWARD = HistoryModel(SIZE, seed=1), HistoryModel(SIZE, seed=2)
CHOICE = OneOf((3, 4))
TEMPLATES = [[0, CHOICE, 1], [0, None, CHOICE, 1], [0, CHOICE, 5, None, 1], [0, OneOf((2,)), None, CHOICE, 1]]


def fits(template, tokens) -> bool:
    return len(template) == len(tokens) and all(
        token in slot.tokens if isinstance(slot, OneOf) else slot in (None, token)
        for slot, token in zip(template, tokens, strict=True)
    )


def total(tokens) -> float:
    return score_from_scratch(FORWARD, tokens) + score_from_scratch(BACKWARD, tokens[::-1])


def every_fill(template, banned=()):
    free = [token for token in range(SIZE) if token not in banned]
    slots = [
        [token for token in slot.tokens if token not in banned]
        if isinstance(slot, OneOf)
        else [slot]
        if isinstance(slot, int)
        else free
        for slot in template
    ]
    return list(itertools.product(*slots))


@pytest.mark.parametrize("method", METHODS)
def test_only_its_tokens_fill_it(method):
    found = fill_templates(FORWARD, BACKWARD, TEMPLATES, method=method, banned=(0, 1), num_beams=3)
    for template, fills in zip(TEMPLATES, found, strict=True):
        assert fills
        assert all(fits(template, fill.tokens) for fill in fills)
    alone = [
        fill_templates(FORWARD, BACKWARD, [one], method=method, banned=(0, 1), num_beams=3)[0] for one in TEMPLATES
    ]
    assert [[fill.tokens for fill in fills] for fills in found] == [[fill.tokens for fill in fills] for fills in alone]


@pytest.mark.parametrize("method", ["bibs", "rerank-sum", "exact"])
@pytest.mark.parametrize("template", TEMPLATES)
def test_with_wide_beams_the_best_of_all_fills_is_found(method, template):
    (fills,) = fill_templates(FORWARD, BACKWARD, [template], method=method, banned=(0, 1), num_beams=40)
    best = max(every_fill(template, banned=(0, 1)), key=total)
    assert fills[0].tokens == best
    assert fills[0].score == pytest.approx(total(best), abs=1e-4)


@pytest.mark.parametrize("method", ["bibs", "exact"])
@pytest.mark.parametrize("required", [[4], [3, 5], [(3, 5)], [(5, 3), 2], [(4, 2, 3)]])
def test_a_word_or_phrase_that_must_appear_may_stand_in_it(method, required):
    template = [0, CHOICE, None, OneOf((3, 5)), 1]

    def holds(tokens, phrase) -> bool:
        return any(tokens[place : place + len(phrase)] == phrase for place in range(len(tokens)))

    phrases = [each if isinstance(each, tuple) else (each,) for each in required]
    possible = [fill for fill in every_fill(template, banned=(0, 1)) if all(holds(fill, each) for each in phrases)]
    options = {"banned": (0, 1), "num_beams": 40, "num_return_sequences": max(1, len(possible))}
    (fills,) = fill_templates(FORWARD, BACKWARD, [template], method=method, must_include=[required], **options)
    assert [fill.tokens for fill in fills] == sorted(possible, key=total, reverse=True)


@pytest.mark.parametrize("method", [method for method in SEARCHES if method != "exact"])
def test_it_stands_beside_gaps_and_answers_that_differ(method):
    template = [0, CHOICE, Gap(1, 2), 1]
    options = {"banned": (0, 1), "num_beams": 40, "num_return_sequences": 3}
    for more in ({"must_include": [[4]]}, {"must_include": [[3, 5]]}, {"diversity_penalty": 2.0}, {}):
        (fills,) = fill_templates(FORWARD, BACKWARD, [template], method=method, **options, **more)
        assert len(fills) == 3
        for fill in fills:
            assert fill.tokens[1] in CHOICE.tokens
            assert all(token in fill.tokens for words in more.get("must_include", []) for token in words)


def test_nothing_is_found_where_its_tokens_are_banned():
    assert fill_templates(FORWARD, BACKWARD, [[0, CHOICE, 1]], banned=CHOICE.tokens) == [[]]


@pytest.mark.parametrize("tokens", [(), (6,), (-1,), ("a",), (True,)])
def test_a_choice_holds_ids(tokens):
    with pytest.raises(ValueError, match=r"`templates\[0\]` must have choices of ids from 0 to 5, one at least"):
        fill_templates(FORWARD, BACKWARD, [[0, OneOf(tokens), 1]])


CAPTIONS = ["a man's dog is red", "the woman's dog is old", "a red dog is old", "a man is old"]


@pytest.mark.parametrize("method", [*SEARCHES[:5], *SAMPLERS])
def test_a_blank_with_an_ending_is_filled_by_a_word_that_ends_so(method):
    infiller = Infiller.from_corpus(CAPTIONS)
    assert infiller("A _'s dog is red!", method=method)[0].text == "A man's dog is red!"
    (found,) = infiller("the _'s ___ is old", method=method)
    assert found.spans[0] in ("man's", "woman's")
    assert "spots" not in found.text
    with pytest.raises(ValueError, match="a blank that ends in 're must be filled by a word that the model knows"):
        infiller("they _'re red", method=method)
