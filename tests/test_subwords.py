"""Templates in tokens: marks of three kinds, edges that no token crosses, and text that comes back as it was typed."""

from __future__ import annotations

from functools import cache

import pytest

from bibs import Gap, Template

pytest.importorskip("transformers")
from bibs.text import SubwordTokenizer
from tiny_transformers import make_tokenizer

KINDS = ("Ġ", "Ġ unmarked first", "▁", "##")
TEXTS = [
    "The dog runs, barks and (sometimes) sleeps.",
    "two dogs running on the beach",
    "He said: the dog's bone isn't here!",
    "over and over again, the dogs",
]


@cache
def tokenizer_of(kind):
    made = make_tokenizer(kind)
    return SubwordTokenizer(made, len(made))


def blanked(text, place, length):
    words = text.split()
    return " ".join([*words[:place], *["_"] * length, *words[place + length :]])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS)
def test_a_filled_template_has_the_tokens_of_the_whole_text_and_reads_as_typed(kind, text):
    tokenizer = tokenizer_of(kind)
    whole = tokenizer.tokenizer(text, add_special_tokens=False).input_ids
    words = text.split()
    for place in range(len(words)):
        for length in range(1, min(3, len(words) - place) + 1):
            template = tokenizer.read(Template.parse(blanked(text, place, length)))
            (blank,) = template.blanks
            left = [token for part in template.parts[: template.parts.index(blank)] for token in part]
            right = [token for part in template.parts[template.parts.index(blank) + 1 :] for token in part]
            row = [tokenizer.start, *whole, tokenizer.end]
            assert left == row[: len(left)]
            assert right == row[len(row) - len(right) :]
            inside = row[len(left) : len(row) - len(right)]
            (fill,) = template.cut(row, [len(inside)])
            assert fill == inside
            assert tokenizer.begins[inside[0]] != blank.joined
            if kind != "##":  # which forgets what was apart
                assert tokenizer.decode(fill) == words[place : place + length]
                assert 1 + sum(tokenizer.begins[token] for token in inside[1:]) == length
                assert template.template.render([tokenizer.decode(fill)])[0] == text


@pytest.mark.parametrize("kind", ["Ġ", "▁"])
def test_punctuation_may_touch_a_blank_on_either_side(kind):
    tokenizer = tokenizer_of(kind)
    template = tokenizer.read(Template.parse("the dogs (_) run, _."))
    assert [blank.joined for blank in template.blanks] == [True, False]
    fills = ["a", "b"]
    text, _ = template.template.render([[fill] for fill in fills])
    whole = tokenizer.tokenizer(text, add_special_tokens=False).input_ids
    fixed = [token for part in template.parts[1:-1] if isinstance(part, list) for token in part]
    assert [token for token in whole if token in fixed] == fixed


def test_a_blank_with_an_ending_is_a_word_with_fixed_text_behind_it():
    tokenizer = tokenizer_of("Ġ")
    template = tokenizer.read(Template.parse("the _ _'s bone"))
    (blank,) = template.blanks
    assert blank.gap == Gap(2, 2)
    whole = tokenizer.tokenizer("the big dog's bone", add_special_tokens=False).input_ids
    row = [tokenizer.start, *whole, tokenizer.end]
    length = len(row) - sum(len(part) for part in template.parts if isinstance(part, list))
    (fill,) = template.cut(row, [length])
    assert tokenizer.decode(fill) == ["big", "dog's"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_special_and_no_white_space_fills_a_blank(kind):
    tokenizer = tokenizer_of(kind)
    made = tokenizer.tokenizer
    assert set(made.all_special_ids) <= set(tokenizer.banned)
    for token in set(range(len(made))) - set(tokenizer.banned):
        assert len(made.decode([token]).split()) == 1


def test_what_cannot_be_read_is_said_in_one_line():
    with pytest.raises(ValueError, match=r"words that `tokenizer` can read, but holds 'über'$"):
        tokenizer_of("##").read(Template.parse("the über _"))
    with pytest.raises(ValueError, match="a word between them for models of sub-words, but two have none"):
        tokenizer_of("Ġ").read(Template.parse("the _ ___{2,3} dog"))
    with pytest.raises(ValueError, match="one word at least for models of sub-words, but one may have none"):
        tokenizer_of("Ġ").read(Template.parse("the ___{0,3} dog"))
    with pytest.raises(ValueError, match=r"no more tokens than the models \(5\), but has"):
        SubwordTokenizer(tokenizer_of("Ġ").tokenizer, 5)
