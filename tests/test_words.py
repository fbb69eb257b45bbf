"""Words with reasons: log probabilities of either model, and P(y_t | rest) by enumeration."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bibs import Infiller, MatrixModel, Vocabulary
from bibs import words as module
from bibs.search import OneOf
from bibs.text import tokenize, words_as_typed
from bibs.words import find_reasons
from fakes import HistoryModel

VOCABULARY = Vocabulary(["a", "dog", "cat", "runs"])  # ids 3 to 6
START, END, UNK = range(3)


def infiller_of(seed: int, choices: int | None = None) -> Infiller:
    forward, backward = (HistoryModel(len(VOCABULARY), seed + turn, choices=choices) for turn in (0, 1))
    return Infiller(forward=forward, backward=backward, vocabulary=VOCABULARY)


def test_a_slot_of_two_chains_can_be_computed_by_hand():
    """START A? END: P_f(A) = 0.6, P_g(A) = 0.5; P_f(B) = 0.3, P_g(B) = 0.2; P_f(C) = 0.1, P_g(C) = 0.3."""
    a, b, c = 2, 3, 4
    ahead = [[0.2] * 5 for _ in range(5)]
    behind = [[0.2] * 5 for _ in range(5)]
    ahead[START] = [0, 0, 0.6, 0.3, 0.1]
    behind[END] = [0, 0, 0.5, 0.2, 0.3]
    (reasons,) = find_reasons(MatrixModel(ahead), MatrixModel(behind), [(START, a, END)], [(START, None, END)], count=5)
    total = 0.30 + 0.06 + 0.03
    assert reasons.forward == pytest.approx([0, math.log(0.6), math.log(0.2)])
    assert reasons.backward == pytest.approx([math.log(0.2), math.log(0.5), 0])
    choice = reasons.choices[1]
    assert choice.probability == pytest.approx(0.30 / total)
    assert [token for token, _ in choice.others] == [b, c]
    assert [value for _, value in choice.others] == pytest.approx([0.06 / total, 0.03 / total])
    (without,) = find_reasons(
        MatrixModel(ahead), MatrixModel(behind), [(START, a, END)], [(START, None, END)], count=1, banned=[b]
    )
    assert without.choices[1].probability == pytest.approx(0.30 / 0.33)
    assert without.choices[1].others == [(c, pytest.approx(0.03 / 0.33))]


sentences = st.lists(st.lists(st.integers(3, 6), max_size=5), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(sentences, st.integers(0, 50), st.data())
def test_every_slot_is_the_renormalised_product_over_the_allowed_words(words, seed, data):
    forward, backward = HistoryModel(7, seed), HistoryModel(7, seed + 1)
    rows = [(START, *row, END) for row in words]
    free = [sorted(data.draw(st.sets(st.sampled_from(range(1, 1 + len(row))))) if row else []) for row in words]
    conditions = data.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows)))
    banned = [START, END, UNK]
    choice = data.draw(st.none() | st.sets(st.integers(3, 6), min_size=1))  # what may stand in a slot
    slots = [
        [
            token if place not in own else None if choice is None else OneOf(tuple({*choice, token}))
            for place, token in enumerate(tokens)
        ]
        for tokens, own in zip(rows, free, strict=True)
    ]
    found = find_reasons(forward, backward, rows, slots, count=2, banned=banned, conditions=conditions)
    for tokens, places, condition, reasons in zip(rows, free, conditions, found, strict=True):
        ahead = [forward.log_probs_after(tokens[:t], condition) for t in range(1, len(tokens))]
        behind = [backward.log_probs_after(tokens[:t:-1], condition) for t in range(len(tokens) - 1)]
        assert reasons.forward == pytest.approx([0, *(float(p[t]) for p, t in zip(ahead, tokens[1:], strict=True))])
        assert reasons.backward == pytest.approx([*(float(p[t]) for p, t in zip(behind, tokens[:-1], strict=True)), 0])
        assert list(reasons.choices) == places
        for place in places:
            allowed = range(3, 7) if choice is None else {*choice, tokens[place]}
            product = {y: math.exp(ahead[place - 1][y] + behind[place][y]) for y in allowed}
            probability = {y: value / sum(product.values()) for y, value in product.items()}
            others = sorted((y for y in probability if y != tokens[place]), key=lambda y: -probability[y])[:2]
            assert reasons.choices[place].probability == pytest.approx(probability[tokens[place]])
            assert [token for token, _ in reasons.choices[place].others] == others
            assert dict(reasons.choices[place].others) == pytest.approx({y: probability[y] for y in others})


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 50), st.sampled_from(["a _ _ runs", "___ dog", "_ dog ___{0,2} a _", "The dog runs.", "_"]))
def test_the_words_of_a_completion_add_up_to_its_scores(seed, template):
    wanted = 3 if "_" in template else 1
    completions = infiller_of(seed)(template, alternatives=3, num_return_sequences=wanted)
    assert len(completions) == wanted
    for completion in completions:
        forward = sum(word.forward for word in completion.words) + completion.end_score
        backward = sum(word.backward for word in completion.words) + completion.start_score
        assert forward == pytest.approx(completion.forward_score)
        assert backward == pytest.approx(completion.backward_score)
        filled = [word for word in completion.words if word.blank is not None]
        for number, span in enumerate(completion.spans):
            assert " ".join(word.text for word in filled if word.blank == number) == span
        for word in filled:
            assert word.probability + sum(value for _, value in word.alternatives) <= 1 + 1e-9
            assert len(word.alternatives) == 3
            assert word.text not in dict(word.alternatives)


def test_words_stand_as_they_were_typed():
    (completion,) = infiller_of(1)("'A' Dog's  house, _\t_ (A)!", alternatives=0)
    assert [word.text for word in completion.words][:3] == ["A", "Dog's", "house"]
    assert [word.before for word in completion.words][:4] == ["'", "' ", "  ", ", "]
    assert "".join(word.before + word.text for word in completion.words) + ")!" == completion.text
    assert [word.known for word in completion.words] == [True, False, False, True, True, True]
    assert [word.blank for word in completion.words] == [None, None, None, 0, 0, None]
    assert all(word.alternatives == () for word in completion.words)
    assert [word.probability is None for word in completion.words] == [True, True, True, False, False, True]


def test_a_word_with_an_ending_stands_as_it_was_typed_and_so_do_its_alternatives():
    vocabulary = Vocabulary(["dog's", "cat's", "house", "dog"])
    forward, backward = (HistoryModel(len(vocabulary), seed) for seed in (0, 1))
    (completion,) = Infiller(forward=forward, backward=backward, vocabulary=vocabulary)("_'S house", alternatives=9)
    word, other = completion.words[0], completion.words[0].alternatives
    assert word.text in ("dog'S", "cat'S")
    assert completion.text == f"{word.text} house"
    assert [word.text.lower(), *dict(other)] in (["dog's", "cat's"], ["cat's", "dog's"])
    assert word.probability + other[0].probability == pytest.approx(1)


def test_bad_words_and_specials_are_never_alternatives_and_the_others_are_renormalised():
    infiller = infiller_of(3)
    (plain,) = infiller("a _ runs", alternatives=9)
    (without,) = infiller("a _ runs", alternatives=9, bad_words=[plain.words[1].alternatives[0].text])
    assert {plain.words[1].text, *dict(plain.words[1].alternatives)} == {"a", "dog", "cat", "runs"}
    assert plain.words[1].probability + sum(dict(plain.words[1].alternatives).values()) == pytest.approx(1)
    assert plain.words[1].alternatives[0].text not in dict(without.words[1].alternatives)
    assert without.words[1].probability + sum(dict(without.words[1].alternatives).values()) == pytest.approx(1)


def test_zeros_of_a_model_give_no_alternative_and_no_nan():
    completions = infiller_of(5, choices=5)("_ dog _", alternatives=9, num_return_sequences=2)
    assert any(len(word.alternatives) < 3 for word in completions[0].words if word.blank is not None)
    for completion in completions:
        for word in (completion.words[0], completion.words[2]):
            assert word.probability > 0
            assert all(value > 0 for _, value in word.alternatives)
    impossible = MatrixModel([[0.0, 1.0], [0.0, 1.0]])
    (reasons,) = find_reasons(impossible, impossible, [(1, 0, 1)], [(1, None, 1)], count=1, banned=[1])
    assert reasons.choices[1] == (0.0, [])


def test_nobody_who_did_not_ask_pays():
    (completion,) = infiller_of(1)("a _")
    assert completion.words == ()
    assert completion.start_score is None
    assert completion.end_score is None


def test_a_batch_read_in_parts_is_the_batch(monkeypatch):
    templates = ["a _ _", "_", "the dog", "___ runs _"]
    whole = infiller_of(2)(templates, alternatives=2)
    monkeypatch.setattr(module, "MAX_NUMBERS", 1)
    assert infiller_of(2)(templates, alternatives=2) == whole


def test_a_bad_template_in_a_list_moves_no_word_of_the_others():
    infiller = infiller_of(2)
    first, error, last = infiller(["a _ _", "a __", "_ runs"], alternatives=2, on_error="return")
    assert isinstance(error, ValueError)
    assert first == infiller("a _ _", alternatives=2)
    assert last == infiller("_ runs", alternatives=2)


@pytest.mark.parametrize("wrong", [-1, 1.0, True, "5"])
def test_alternatives_are_counted_in_whole_numbers(wrong):
    with pytest.raises(ValueError, match=r"^`alternatives` must be None or a whole number of at least 0, but is"):
        infiller_of(1)("a _", alternatives=wrong)


@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from("aAbK'İ1 _.'"))))
def test_words_as_typed_are_what_tokenize_reads(text):
    typed = words_as_typed(text)
    assert [word for part in typed for word in tokenize(part)] == tokenize(text)
    position = 0
    for word in typed:
        position = text.index(word, position) + len(word)
