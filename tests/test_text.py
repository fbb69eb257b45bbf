"""The tokeniser and the vocabulary: what goes in comes out, in an order that depends on the counts alone."""

from __future__ import annotations

import json
import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bibs.text import Template, Vocabulary, tokenize, words_as_typed

law = settings(deadline=None)
WORD_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789'"
words = st.text(WORD_CHARACTERS, min_size=1, max_size=4)
sentences = st.lists(st.lists(words, max_size=8), max_size=8)


def is_mark(character: str) -> bool:
    """An accent or a vowel sign that stands behind its letter."""
    return unicodedata.category(character) in ("Mn", "Mc", "Me")


def slow_tokenize(text: str) -> list[str]:
    """The rule in words: every other character is a space, then outer apostrophes go, and marks without a letter."""
    spaced = "".join(c if c.isalnum() or c == "'" or is_mark(c) else " " for c in text.lower())
    words = []
    for word in spaced.split():
        while word and not word[0].isalnum():
            word = word[1:]
        words.append(unicodedata.normalize("NFC", word.rstrip("'")))
    return [word for word in words if word]


any_text = st.text(st.one_of(st.characters(), st.sampled_from("aZ9' ._éÄßІяनीสี\u0301\u0130\ufe0f")))


@law
@given(any_text)
def test_tokenize_keeps_runs_of_letters_digits_and_inner_apostrophes(text: str) -> None:
    assert tokenize(text) == slow_tokenize(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Der Müller fährt über die Brücke.", ["der", "müller", "fährt", "über", "die", "brücke"]),
        ("l'Été, cafe\u0301!", ["l'été", "café"]),
        ("Мама мыла раму", ["мама", "мыла", "раму"]),
        ("यह हिन्दी है।", ["यह", "हिन्दी", "है"]),
        ("snake_case", ["snake", "case"]),
    ],
)
def test_words_of_any_alphabet_stay_whole(text: str, words: list[str]) -> None:
    assert tokenize(text) == [unicodedata.normalize("NFC", word) for word in words]


@law
@given(any_text)
def test_what_was_typed_reads_as_the_words_that_it_became(text: str) -> None:
    assert [tokenize(word) for word in words_as_typed(text)] == [[word] for word in tokenize(text)]


@pytest.mark.parametrize("touching", ["é_", "e\u0301_", "я_", "ी_", "_é", "_я"])
def test_a_blank_stands_apart_from_letters_of_any_alphabet(touching: str) -> None:
    with pytest.raises(ValueError, match="must stand apart"):
        Template.parse(f"a {touching} b" if touching[0] == "_" else f"a न{touching} b")


@law
@given(any_text)
def test_tokenize_of_its_own_words_changes_nothing(text: str) -> None:
    once = tokenize(text)
    assert tokenize(" ".join(once)) == once


@pytest.mark.slow
def test_tokenize_agrees_with_the_tokens_of_the_real_data() -> None:
    path = Path(os.environ.get("BIBS_DATA", "../shared/data")) / "coco" / "dataset_coco.json"
    if not path.exists():
        pytest.skip("needs coco/dataset_coco.json under BIBS_DATA")
    images = json.loads(path.read_text(encoding="utf-8"))["images"]
    some = [sentence for image in images[::50] for sentence in image["sentences"]]
    assert len(some) > 1000
    assert all(tokenize(sentence["raw"]) == sentence["tokens"] for sentence in some)


@law
@given(sentences, st.integers(1, 3))
def test_build_sorts_by_falling_count_then_alphabet_and_drops_rare_words(
    corpus: list[list[str]], min_count: int
) -> None:
    flat = [word for sentence in corpus for word in sentence]
    vocabulary = Vocabulary.build(corpus, min_count=min_count)
    ordinary = vocabulary.words[3:]
    assert set(ordinary) == {word for word in flat if flat.count(word) >= min_count}
    assert list(ordinary) == sorted(ordinary, key=lambda word: (-flat.count(word), word))
    assert vocabulary == Vocabulary.build(corpus[::-1], min_count=min_count)


@law
@given(sentences)
def test_decode_undoes_encode_for_known_words(corpus: list[list[str]]) -> None:
    vocabulary = Vocabulary.build(corpus)
    for sentence in corpus:
        assert vocabulary.decode(vocabulary.encode(sentence)) == sentence
    everything = list(range(len(vocabulary)))
    assert vocabulary.encode(vocabulary.decode(everything)) == everything


def test_specials_have_the_first_ids_and_unknown_words_become_unk() -> None:
    vocabulary = Vocabulary(["man", "a"])
    assert (vocabulary.start, vocabulary.end, vocabulary.unk) == (0, 1, 2)
    assert vocabulary.words == ("<start>", "<end>", "<unk>", "man", "a")
    assert vocabulary.encode(["a", "zebra", "man"]) == [4, 2, 3]
    assert len(vocabulary) == 5
    assert "man" in vocabulary
    assert "zebra" not in vocabulary


def test_text_that_names_a_special_does_not_add_a_second_one() -> None:
    assert Vocabulary.build([["a", "<unk>", "<start>"]]).words == ("<start>", "<end>", "<unk>", "a")


any_word = st.text(st.characters(codec="utf-8"), min_size=1).filter(
    lambda word: word.split() == [word] and word not in Vocabulary([])
)


@law
@given(some=st.lists(any_word, unique=True))
def test_load_gives_back_what_save_wrote(tmp_path_factory: pytest.TempPathFactory, some: list[str]) -> None:
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.txt"
    vocabulary = Vocabulary(some)
    vocabulary.save(path)
    loaded = Vocabulary.load(path)
    assert loaded == vocabulary
    assert hash(loaded) == hash(vocabulary)
    assert loaded.fingerprint() == vocabulary.fingerprint()
    assert [entry.name for entry in path.parent.iterdir()] == ["vocabulary.txt"]


def test_the_file_is_one_word_a_line_specials_first(tmp_path: Path) -> None:
    Vocabulary(["man", "café"]).save(tmp_path / "v.txt")
    assert (tmp_path / "v.txt").read_bytes() == "<start>\n<end>\n<unk>\nman\ncafé\n".encode()


def test_a_file_with_windows_line_ends_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_bytes(b"<start>\r\n<end>\r\n<unk>\r\nman\r\n")
    assert Vocabulary.load(tmp_path / "v.txt") == Vocabulary(["man"])


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "v.txt"
    Vocabulary(["old"]).save(path)

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(ValueError, match=r"v\.txt could not be written: No space left on device"):
        Vocabulary(["new"]).save(path)
    assert Vocabulary.load(path) == Vocabulary(["old"])
    assert [entry.name for entry in tmp_path.iterdir()] == ["v.txt"]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"v\.txt could not be read: No such file"):
        Vocabulary.load(tmp_path / "v.txt")


def test_the_fingerprint_tells_orders_apart() -> None:
    assert Vocabulary(["a", "b"]).fingerprint() != Vocabulary(["b", "a"]).fingerprint()
    assert Vocabulary(["a", "b"]) != Vocabulary(["b", "a"])
    assert Vocabulary(["a"]) != ("<start>", "<end>", "<unk>", "a")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (["a", "b", "a"], "'a' stands twice"),
        (["<unk>"], "'<unk>' stands twice"),
        ([""], "must not be empty"),
        (["two words"], "white space"),
        (["line\nend"], "white space"),
    ],
)
def test_words_that_would_not_survive_saving_are_refused(bad: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Vocabulary(bad)


def test_bad_arguments_get_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`min_count` must be at least 1, but is 0"):
        Vocabulary.build([["a"]], min_count=0)
    with pytest.raises(ValueError, match="from 0 to 3, but hold 4"):
        Vocabulary(["a"]).decode([0, 4])
    with pytest.raises(ValueError, match="but hold -1"):
        Vocabulary(["a"]).decode([-1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"man\na\n", "must begin with the lines <start>, <end>, <unk>"),
        (b"", "must begin with"),
        (b"<start>\n<end>\n<unk>\nman\nman\n", "damaged: .*'man' stands twice"),
        (b"<start>\n<end>\n<unk>\nman\n\na\n", "damaged"),
        (b"<start>\n<end>\n<unk>\n\xff\n", "not UTF-8"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "v.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message) as raised:
        Vocabulary.load(tmp_path / "v.txt")
    assert "v.txt" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ([3], "`words` must be strings, but one is 3"),
        ("abc", "`words` must be a list of words, but is 'abc'"),
        (None, "`words` must be a list of words, but is None"),
    ],
)
def test_a_vocabulary_is_a_list_of_strings(given: object, line: str) -> None:
    with pytest.raises(ValueError, match="`words`") as error:
        Vocabulary(given)  # type: ignore[arg-type]
    assert str(error.value) == line
