"""The template language: the fixed text comes back byte for byte, and the slots say what the text says."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bibs.search import Gap, OneOf
from bibs.text import Template, Vocabulary, escape, tokenize

law = settings(deadline=None)
VOCABULARY = Vocabulary(["a", "man", "riding", "wave", "dog", "on", "surfboard"])
START, END, UNK = VOCABULARY.start, VOCABULARY.end, VOCABULARY.unk

MARKS = {
    "_": Gap(1, 1),
    "___": Gap(1, None),
    "______": Gap(1, None),
    "___{2,6}": Gap(2, 6),
    "___{0,4}": Gap(0, 4),
    "___{ 1 , 2 }": Gap(1, 2),
    "___{3}": Gap(3, 3),
    "___{2,}": Gap(2, None),
}

# Text that may stand between two blanks: its outer characters are neither letters, digits nor apostrophes, it
# is not white space alone (which would join `_` to `_`), and no brace looks like a range.
edges = st.sampled_from([" ", "  ", ", ", " (", ". ", "\n- ", ' "', "-", "\\_", " \t", "…"])
middles = st.text(st.one_of(st.sampled_from("aDog man's9é\\_ \n,.'"), st.characters(exclude_categories=["Cs"])))
inner = st.tuples(edges, middles.map(escape), edges).map("".join).filter(lambda text: not text.isspace())


@st.composite
def templates(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Literals as typed (one more than marks), and marks."""
    marks = draw(st.lists(st.sampled_from(sorted(MARKS)), min_size=1, max_size=4))
    literals = [draw(inner) for _ in range(len(marks) + 1)]
    if draw(st.booleans()):
        literals[0] = ""
    if draw(st.booleans()):
        literals[-1] = ""
    return literals, marks


def weave(outer: list[str], between: list[str]) -> str:
    return outer[0] + "".join(mark + literal for mark, literal in zip(between, outer[1:], strict=True))


def unescape(text: str) -> str:
    r"""`\_` and `\\` read from left to right."""
    read, rest = "", text
    while rest:
        taken = 2 if rest[:2] in (r"\_", r"\\") else 1
        read, rest = read + rest[taken - 1 : taken], rest[taken:]
    return read


def draw_fills(data: st.DataObject, blanks: tuple[Gap, ...], *, minimum: int = 0) -> list[list[str]]:
    """Words for each blank, as many as it allows."""
    word = st.sampled_from(VOCABULARY.words[3:])
    fills = []
    for blank in blanks:
        low = max(blank.minimum, minimum)
        high = low + 3 if blank.maximum is None else max(blank.maximum, low)
        fills.append(data.draw(st.lists(word, min_size=low, max_size=high)))
    return fills


@law
@given(templates(), st.data())
def test_rendering_keeps_the_fixed_text_byte_for_byte(made: tuple[list[str], list[str]], data: st.DataObject) -> None:
    literals, marks = made
    template = Template.parse(weave(literals, marks))
    assert template.blanks == tuple(MARKS[mark] for mark in marks)
    fills = draw_fills(data, template.blanks, minimum=1)
    text, spans = template.render(fills)
    assert spans == tuple(" ".join(fill) for fill in fills)
    assert text == weave([unescape(literal) for literal in literals], list(spans))


@law
@given(templates(), st.data())
def test_the_finished_text_reads_as_the_filled_slots(made: tuple[list[str], list[str]], data: st.DataObject) -> None:
    """Empty fills too: no two words grow together, none is lost."""
    template = Template.parse(weave(*made))
    fills = draw_fills(data, template.blanks)
    text, _ = template.render(fills)
    lengths = [len(fill) for fill, blank in zip(fills, template.blanks, strict=True) if blank.minimum != blank.maximum]
    slots = template.slots(VOCABULARY, lengths)
    ids = VOCABULARY.encode([word for fill in fills for word in fill])
    assert slots.count(None) == len(ids)
    remaining = iter(ids)
    filled = [next(remaining) if slot is None else slot for slot in slots]
    assert filled == [START, *VOCABULARY.encode(tokenize(text)), END]

    cut = template.cut(filled, lengths)
    assert cut == [VOCABULARY.encode(fill) for fill in fills]
    assert [VOCABULARY.decode(tokens) for tokens in cut] == fills


@law
@given(templates(), st.data())
def test_an_empty_fill_changes_nothing_but_white_space(made: tuple[list[str], list[str]], data: st.DataObject) -> None:
    literals, marks = made
    template = Template.parse(weave(literals, marks))
    fills = draw_fills(data, template.blanks)
    text, spans = template.render(fills)
    expected = weave([unescape(literal) for literal in literals], list(spans))
    assert "".join(text.split()) == "".join(expected.split())


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("a ___{0,4} dog", "a dog"),
        ("a ___{0,4}, dog", "a, dog"),
        ("a dog ___{0,4}", "a dog"),
        ("a dog ___{0,4}.", "a dog."),
        ("___{0,4} a dog", "a dog"),
        ("(___{0,1} dog)", "(dog)"),
        ("a ___{0,1} ___{0,1} dog", "a dog"),
        ("a\n___{0,1}\ndog\n", "a\ndog\n"),
        ("  ___{0,1} dog", "  dog"),
        ("a (___{0,1}) dog", "a () dog"),
        ("___{0,1}", ""),
    ],
)
def test_an_empty_fill_leaves_no_doubled_space(source: str, text: str) -> None:
    template = Template.parse(source)
    assert template.render([[]] * len(template.blanks)) == (text, ("",) * len(template.blanks))


@law
@given(st.text(min_size=1))
def test_an_escaped_text_is_a_template_that_reads_as_the_text(text: str) -> None:
    assume(text.strip())
    template = Template.parse(escape(text))
    assert template.blanks == ()
    assert template.render([]) == (text, ())
    assert template.slots(VOCABULARY) == [START, *VOCABULARY.encode(tokenize(text)), END]


@law
@given(st.lists(st.sampled_from([" ", "  ", "\n", "\t "]), max_size=4))
def test_marks_apart_by_white_space_alone_are_one_blank(gaps: list[str]) -> None:
    length = len(gaps) + 1
    template = Template.parse("a " + "_" + "".join(gap + "_" for gap in gaps) + " wave")
    assert template.blanks == (Gap(length, length),)
    assert template.num_words == length + 2
    assert template.slots(VOCABULARY) == [START, *VOCABULARY.encode(["a"]), *[None] * length, 6, END]
    text, spans = template.render([["dog"] * length])
    assert text == "a " + "dog" + "".join(gap + "dog" for gap in gaps) + " wave"
    assert spans == (" ".join(["dog"] * length),)


def test_the_examples_of_the_design() -> None:
    wave = Template.parse("A man _ _ _ a Wave.")
    a, man, unknown_a, wave_id = VOCABULARY.encode(["a", "man", "a", "wave"])
    assert wave.slots(VOCABULARY) == [START, a, man, None, None, None, unknown_a, wave_id, END]
    assert not wave.has_unknown_lengths
    assert wave.render([["riding", "on", "a"]])[0] == "A man riding on a a Wave."

    tracks = Template.parse("the ___ was _ down the tracks")
    assert tracks.blanks == (Gap(1, None), Gap(1, 1))
    assert tracks.has_unknown_lengths
    assert tracks.num_words == 7
    assert tracks.slots(VOCABULARY, lengths=(2,)) == [START, UNK, None, None, UNK, None, *[UNK] * 3, END]
    assert str(tracks) == "the ___ was _ down the tracks"


@pytest.mark.parametrize(
    ("source", "num_blanks"),
    [
        ("a _, _ dog.", 2),
        ("(_)", 1),
        ("'_'", 1),
        ("_-_", 2),
        ("_/___", 2),
        ('"___{2,4}"!', 1),
        (r"\__", 1),
        (r"\\_", 1),
        (r"\\\__", 1),
        ("_'", 1),
        ("_.", 1),
    ],
)
def test_punctuation_may_touch_a_blank(source: str, num_blanks: int) -> None:
    template = Template.parse(source)
    assert len(template.blanks) == num_blanks
    text, _ = template.render([["dog"] * blank.minimum for blank in template.blanks])
    assert set(tokenize(text)) <= {"a", "dog"}


@pytest.mark.parametrize("source", ["_ ___", "___ _", "___{3} _", "_ ___{3}", "___ ___"])
def test_only_single_marks_join_into_one_blank(source: str) -> None:
    assert len(Template.parse(source).blanks) == 2


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "must hold a word or a blank, but is empty"),
        (" \n\t", "must hold a word or a blank, but is empty"),
        ("a __ dog", r'character 3, "a __ dog": `__` is no blank'),
        ("foo_bar", r'character 4, "foo_bar": a blank must stand apart .*`\\_`'),
        ("_ing", r'character 1, "_ing": a blank must stand apart'),
        ("é_", "a blank must stand apart"),
        ("9_", "a blank must stand apart"),
        ("___{2,3}dog", "a blank must stand apart"),
        ("a ___'s dog", r"only `_`, one word, can end in 's: write `_'s`"),
        ("dogs'_", "a blank must stand apart"),
        ("_'9", "a blank must stand apart"),
        ("_'s9", "a blank must stand apart"),
        ("_'s'x", "a blank must stand apart"),
        ("_'s_", "a blank must stand apart"),
        ("_'_", "a blank must stand apart"),
        ("___{2,3}___", "a blank must stand apart"),
        ("_ _x", "a blank must stand apart"),
        ("___{6,2}", r'character 1, "___\{6,2\}": the upper end'),
        ("___{0}", "the upper end of a range must be at least 1"),
        ("___{a}", "a range is"),
        ("___{}", "a range is"),
        ("___{,4}", "a range is"),
        ("___{-1,2}", "a range is"),
        ("___{1,-2}", "a range is"),
        ("___{1,2,3}", "a range is"),
        ("___{²}", "a range is"),
        ("___{2,6 dogs", "a range is"),
        ("_{2}", "takes no range"),
    ],
)
def test_what_cannot_be_meant_gets_one_clear_line(source: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        Template.parse(source)
    assert "\n" not in str(raised.value)


def test_an_error_in_a_long_template_shows_the_place_only() -> None:
    with pytest.raises(ValueError, match="character 402") as raised:
        Template.parse("\n" + "word " * 80 + "__" + " word" * 80)
    assert len(str(raised.value)) < 200
    assert "\n" not in str(raised.value)


@law
@given(st.lists(st.sampled_from(["_", "___", "{2}", "{0,1}", "a", "9", "'", "'s", " ", ", ", "\\", "."])).map("".join))
def test_whatever_parses_reads_as_its_words_and_fills(source: str) -> None:
    try:
        template = Template.parse(source)
    except ValueError:
        return
    fills = [
        [f"dog{ending}" for ending in endings] or ["dog"] * max(blank.minimum, 1)
        for blank, endings in zip(template.blanks, template.endings, strict=True)
    ]
    text, _ = template.render(fills)
    filled = [word for fill in fills for word in fill]
    assert len(tokenize(text)) == len(tokenize("".join(f" {x} " for x in template.literals))) + len(filled)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (r"a \\ b", "a \\ b"),
        (r"\\_", "\\dog"),
        (r"\_", "_"),
        (r"\\\_", "\\_"),
        (r"\n \a \ ", r"\n \a \ "),
        (r"C:\dir", r"C:\dir"),
    ],
)
def test_a_backslash_stands_for_itself_unless_it_escapes(source: str, text: str) -> None:
    template = Template.parse(source)
    assert template.render([["dog"]] * len(template.blanks))[0] == text


def test_a_blank_with_an_ending_is_one_word_that_ends_so() -> None:
    words = Vocabulary(["a", "man's", "dog", "dog's", "s", "don't", "'s"])
    template = Template.parse("a _ _'s dog, _'S _")
    assert template.blanks == (Gap(2, 2), Gap(2, 2))
    possessive = OneOf(tuple(words.encode(["man's", "dog's"])))
    assert template.row(words) == [0, 3, None, possessive, words.encode(["dog"])[0], possessive, None, 1]
    fills = [["dog", "man's"], ["dog's", "dog"]]
    text, spans = template.render(fills)
    assert text == "a dog man's dog, dog'S dog"  # what was typed stays as it was typed
    assert spans == ("dog man's", "dog's dog")
    assert words.encode(tokenize(text)) == words.encode(["a", *fills[0], "dog", *fills[1]])
    assert template.cut([0, *words.encode(tokenize(text)), 1]) == [words.encode(fill) for fill in fills]
    with pytest.raises(ValueError, match="must hold a word that ends in 's here, but hold 'dog'"):
        template.render([["dog", "dog"], ["dog's", "dog"]])
    with pytest.raises(ValueError, match="a blank that ends in 're must be filled by a word that the model knows"):
        Template.parse("a _'re").row(words)


def test_lengths_and_fills_that_do_not_fit_are_refused() -> None:
    template = Template.parse("a ___{2,4} dog _")
    with pytest.raises(ValueError, match=r"`lengths` must hold one length .* \(1\), but holds 0"):
        template.slots(VOCABULARY)
    with pytest.raises(ValueError, match="but holds 2"):
        template.slots(VOCABULARY, lengths=(2, 1))
    with pytest.raises(ValueError, match=r"`lengths\[0\]` must be 2 to 4, but is 5"):
        template.slots(VOCABULARY, lengths=(5,))
    with pytest.raises(ValueError, match="`tokens` must hold 7 items for this template, but hold 3"):
        template.cut([1, 2, 3], lengths=(2,))
    with pytest.raises(ValueError, match=r"one per blank \(2\), but hold 1"):
        template.render([["a", "man"]])
    with pytest.raises(ValueError, match=r"`fills\[0\]` must have a length of 2 to 4, but has 1"):
        template.render([["a"], ["dog"]])
    with pytest.raises(ValueError, match=r"`fills\[1\]` must have a length of exactly 1, but has 0"):
        template.render([["a", "man"], []])
    with pytest.raises(ValueError, match=r"`lengths\[0\]` must be 1 or more, but is 0"):
        Template.parse("___").slots(VOCABULARY, lengths=(0,))


def test_a_template_does_not_change() -> None:
    template = Template.parse("a _")
    with pytest.raises(FrozenInstanceError):
        template.source = "another"  # type: ignore[misc]
    assert template == Template.parse("a _")
    assert hash(template) == hash(Template.parse("a _"))


@pytest.mark.parametrize("bounds", ["{0,1000000}", "{1000000}", "{1000000,}", "{1,%s}" % ("9" * 5000)])
def test_a_range_that_is_too_large_is_called_so(bounds):
    with pytest.raises(ValueError, match="a range must end below 1,000,000"):
        Template.parse(f"a ___{bounds} b")
