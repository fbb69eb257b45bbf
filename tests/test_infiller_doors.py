"""What a newcomer hands to an `Infiller`: each mistake is one line that names it, and nothing is lost in silence."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from bibs import Infiller, Vocabulary, from_next_token
from bibs.lengths import LengthPrior, LengthWeights
from bibs.models.recurrent import RecurrentConfig, RecurrentModel
from fakes import HistoryModel

CAPTIONS = ["a man is riding a wave", "a man is riding a horse", "the dog is sitting on the beach"]


@pytest.fixture(scope="module")
def infiller() -> Infiller:
    return Infiller.from_corpus(CAPTIONS)


class Brightness:
    name, size = "brightness", 4

    def encode(self, images):
        from bibs.vision.images import load_image

        return np.stack([np.full(4, np.asarray(load_image(each)).mean() / 25, dtype=np.float32) for each in images])


@pytest.fixture(scope="module")
def seeing() -> Infiller:
    vocabulary = Vocabulary(["a", "man", "wave", "dog", "beach"])
    config = RecurrentConfig(vocab_size=len(vocabulary), hidden_size=8, embedding_size=8, condition_size=4)
    models = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        models.append(RecurrentModel(config).eval())
    return Infiller(forward=models[0], backward=models[1], vocabulary=vocabulary, encoder=Brightness())


def refuse(call) -> str:
    with pytest.raises(ValueError, match="`") as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


# What comes in


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ("one string", "`lines` must be a list of sentences, but is one string: 'one string'"),
        (None, "`lines` must be a list of sentences, but is None"),
        (["a man", b"a dog"], "`lines[1]` must be a string, but is b'a dog'"),
        (["a man", 3], "`lines[1]` must be a string, but is 3"),
    ],
)
def test_a_corpus_is_a_list_of_sentences(lines, line):
    assert refuse(lambda: Infiller.from_corpus(lines)) == line


@pytest.mark.parametrize(
    ("templates", "options", "line"),
    [
        (None, {}, "`templates` must be a string or a list of strings, but is None"),
        (3, {}, "`templates` must be a string or a list of strings, but is 3"),
        (b"a _", {}, "`templates` must be a string or a list of strings, but is b'a _'"),
        ("a _", {"must_include": 3}, "`must_include` must be a list of words, but is 3"),
        ("a _", {"must_include": None}, "`must_include` must be a list of words, but is None"),
        ("a _", {"diversity_penalty": "x"}, "`diversity_penalty` must be a number of at least 0, but is 'x'"),
        ("a _", {"max_length": 0}, "`max_length` must be a whole number of at least 1, but is 0"),
        ("a _", {"on_error": "ignore"}, "`on_error` must be 'raise' or 'return', but is 'ignore'"),
        (["a _", "b _"], {"images": "cat.jpg"}, "but is one picture: 'cat.jpg'"),
        (["a _", "b _"], {"images": Path("cat.jpg")}, "but is one picture: "),
        ("a _", {"images": np.zeros(4)}, "`images` must be None for models that were trained on words alone"),
        ("a _", {"must_include": b"dog"}, "`must_include` must be a list of words, but is b'dog'"),
        ("a _", {"must_include": [b"dog"]}, "`must_include` must be a list of words, but is b'dog'"),
        ("a _", {"method": ["bibs"]}, "`method` must be one of bibs, "),
        ("a ___", {"length_prior": None}, "`length_prior` must be a LengthPrior, but is None"),
        ("a ___", {"length_prior": "paper"}, "`length_prior` must be a LengthPrior, but is 'paper'"),
    ],
)
def test_a_wrong_argument_is_named_in_one_line(infiller, templates, options, line):
    assert line in refuse(lambda: infiller(templates, **options))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"forward": None}, "`forward` must be a model with a whole number `vocab_size`, but is None"),
        ({"backward": 3}, "`backward` must be a model with a whole number `vocab_size`, but is 3"),
        ({"vocabulary": None}, "`vocabulary` must be a Vocabulary, but is None"),
        ({"vocabulary": ["a"]}, "`vocabulary` must be a Vocabulary, but is ['a']"),
        ({"length_prior": None}, "`length_prior` must be a LengthPrior, but is None"),
        ({"max_words": True}, "`max_words` must be a whole number of at least 1, but is True"),
        ({"device": "nowhere"}, "`device` must be one that torch can use here, but is 'nowhere'"),
        ({"device": 3.5}, "`device` must be one that torch can use here, but is 3.5"),
        ({"device": "meta"}, "`device` must be one that torch can use here, but is 'meta'"),
    ],
)
def test_what_an_infiller_is_made_of_is_checked(infiller, arguments, line):
    parts = {"forward": infiller.forward, "backward": infiller.backward, "vocabulary": infiller.vocabulary}
    assert line in refuse(lambda: Infiller(**{**parts, **arguments}))


@pytest.mark.parametrize("place", [3, None, b"model", ["model"]])
def test_a_directory_is_a_path(infiller, place):
    line = f"`directory` must be a path, but is {place!r}"
    assert refuse(lambda: infiller.save(place)) == line
    if place is not None:  # which is the bundled one
        assert refuse(lambda: Infiller.from_pretrained(place)) == line


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"order": "3"}, "`order` must be a whole number of at least 1, but is '3'"),
        ({"order": 1.5}, "`order` must be a whole number of at least 1, but is 1.5"),
        ({"order": None}, "`order` must be a whole number of at least 1, but is None"),
        ({"min_count": "x"}, "`min_count` must be a whole number of at least 1, but is 'x'"),
        ({"min_count": 1.5}, "`min_count` must be a whole number of at least 1, but is 1.5"),
        ({"min_count": 100}, "`min_count` must leave at least one word, but is 100"),
    ],
)
def test_how_a_corpus_is_counted_is_checked(options, line):
    assert refuse(lambda: Infiller.from_corpus(CAPTIONS, **options)) == line


def test_an_order_beyond_the_longest_sentence_sees_nothing_more():
    high, highest = (Infiller.from_corpus(CAPTIONS, order=order)("a man _ _ a wave") for order in (9, 10**9))
    assert high == highest


def test_whole_numbers_of_numpy_are_whole_numbers(infiller):
    assert Infiller.from_corpus(CAPTIONS, order=np.int64(2), max_words=np.int64(5)).max_words == 5
    found = infiller("a man _ _ a wave", num_beams=np.int64(5), num_return_sequences=np.int32(2))
    assert found == infiller("a man _ _ a wave", num_beams=5, num_return_sequences=2)


def test_templates_may_come_from_anywhere(infiller):
    assert infiller(text for text in ["a man _ riding"]) == infiller(["a man _ riding"])


def test_the_bound_on_words_is_an_option_and_named(infiller):
    text = "_ " * 101
    assert refuse(lambda: infiller(text)) == "a template must have at most 100 words (`max_words`), but has 101"
    longer = Infiller.from_corpus(CAPTIONS, max_words=101)
    assert len(longer(text, num_beams=1)[0].text.split()) == 101
    assert "`max_words` must be a whole number" in refuse(lambda: Infiller.from_corpus(CAPTIONS, max_words=0))


# Pictures


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_vector_that_is_not_finite_is_named(seeing, number):
    good, bad = np.zeros(4, dtype=np.float32), np.array([0, number, 0, 0], dtype=np.float32)
    line = f"`images[1]` must hold finite numbers, but holds {number}"
    assert refuse(lambda: seeing(["a _", "a _"], images=[good, bad])) == line
    assert refuse(lambda: seeing("a _", images=torch.from_numpy(bad))).startswith("`images` must hold finite numbers")


def test_a_vector_of_another_size_is_named(seeing):
    assert refuse(lambda: seeing("a _", images=np.zeros(3))) == "`images` must hold 4 numbers, but holds 3"


def test_a_vector_of_another_encoder_is_the_fault_of_its_own_template():
    infiller = Infiller.from_pretrained()
    noise = torch.rand(1280, generator=torch.Generator().manual_seed(0)) * torch.linspace(0, 2, 1280)
    for vector in (noise, noise.numpy().astype(np.float16)):
        found = infiller(["a _", "a _"], images=[vector, None], on_error="return")
        assert str(found[0]) == "`images[0]` must be a vector of efficientnet-lite2-rms, but cannot be one"
        assert found[1] == infiller("a _")


@pytest.mark.parametrize("vector", [np.array(["a"] * 4), np.zeros(4, dtype=object), np.zeros(4, dtype=complex)])
def test_a_vector_that_holds_no_numbers_is_named(seeing, vector):
    assert refuse(lambda: seeing("a _", images=vector)) == f"`images` must hold numbers, but holds {vector.dtype}"


def test_a_picture_is_a_file_bytes_an_open_file_or_a_tensor(seeing, tmp_path):
    pillow = pytest.importorskip("PIL.Image", reason="needs the vision extra: pip install '.[vision]'")
    pixels = np.full((4, 6, 3), 100, dtype=np.uint8)
    pillow.fromarray(pixels).save(tmp_path / "grey.png")
    data = (tmp_path / "grey.png").read_bytes()
    forms = [tmp_path / "grey.png", str(tmp_path / "grey.png"), data, io.BytesIO(data), pixels]
    forms += [torch.from_numpy(pixels), torch.from_numpy(pixels).permute(2, 0, 1)]
    found = seeing(["a _ _ wave"] * len(forms), images=forms)
    assert all(each == found[0] for each in found)
    with (tmp_path / "grey.png").open("rb") as file:
        (alone,) = seeing("a _ _ wave", images=file)
    assert (alone.text, alone.score) == (found[0][0].text, pytest.approx(found[0][0].score))
    assert "`images`: it cannot be read as a picture: no known" in refuse(lambda: seeing("a _", images=b"no picture"))


def test_an_infiller_that_has_seen_a_picture_is_pickled_and_copied():
    pytest.importorskip("onnxruntime", reason="needs the vision extra: pip install '.[vision]'")
    from bibs.vision import make_encoder

    encoder = make_encoder("lite2", batch_size=3)
    picture = np.full((8, 8, 3), 100, dtype=np.uint8)
    for twin in (pickle.loads(pickle.dumps(encoder)), copy.deepcopy(encoder), copy.copy(encoder)):
        np.testing.assert_array_equal(twin.encode([picture]), encoder.encode([picture]))
    infiller = Infiller.from_pretrained()
    seen = infiller("a _", images=picture)
    for whole in (pickle.loads(pickle.dumps(infiller)), copy.deepcopy(infiller), copy.copy(infiller)):
        assert whole("a _", images=picture) == seen


# One bad template of many


def test_a_bad_template_gives_its_error_in_its_place(infiller, seeing):
    texts = ["a man _ riding", "a __ b", 3, "the _ is sitting", "_ " * 101]
    found = infiller(texts, on_error="return")
    assert [type(each) for each in found] == [list, ValueError, ValueError, list, ValueError]
    assert [found[0], found[3]] == infiller([texts[0], texts[3]])
    assert "`__` is no blank" in str(found[1])
    found = infiller(["a _", "a _"], must_include=[["zebra"], ["dog"]], on_error="return")
    assert "zebra" in str(found[0])
    assert found[1] == infiller("a _", must_include=["dog"])
    vector = np.zeros(4, dtype=np.float32)
    found = seeing(["a _"] * 3, images=[vector, "nowhere.jpg", vector * np.nan], on_error="return")
    assert found[0] == seeing("a _", images=vector)
    assert "nowhere.jpg" in str(found[1])
    assert "finite" in str(found[2])
    assert infiller(["a __ b"], on_error="return")[0].args
    assert infiller([], on_error="return") == []


def test_a_bad_option_is_no_fault_of_a_template(infiller):
    assert "`max_length`" in refuse(lambda: infiller(["a ___"], max_length=0, on_error="return"))
    assert "zebra" in refuse(lambda: infiller(["a ___"], must_include=["zebra"], on_error="return"))


def test_nothing_found_is_said_with_what_to_change(infiller):
    everything = [word for word in infiller.vocabulary.words if word.isalpha()]
    with pytest.warns(UserWarning, match=r"nothing was found for `templates\[1\]`.*`bad_words`") as said:
        found = infiller(["no blank", "a _ man"], bad_words=everything)
    assert found[1] == []
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        infiller("a man _ riding")


# What goes out


def test_what_is_saved_comes_back(infiller, seeing, tmp_path):
    prior = LengthPrior(sum=LengthWeights(2.0, 0.5), sentence_counts=(0, 3, 4))
    infiller.length_prior = prior
    infiller.save(tmp_path / "ngrams")
    loaded = Infiller.from_pretrained(tmp_path / "ngrams")
    assert loaded.length_prior == prior
    for template in ("a man _ _ a wave", "the ___ beach"):
        assert loaded(template, num_return_sequences=3) == infiller(template, num_return_sequences=3)
    seeing.save(tmp_path / "recurrent")
    once = Infiller.from_pretrained(tmp_path / "recurrent")
    once.save(tmp_path / "again")
    twice = Infiller.from_pretrained(tmp_path / "again")
    assert once("a _ _ wave") == twice("a _ _ wave")
    assert once("a _ _ wave")[0].score == pytest.approx(seeing("a _ _ wave")[0].score, abs=1e-2)


def test_a_pair_of_ones_own_cannot_be_saved_and_says_so(tmp_path):
    own = Infiller(forward=HistoryModel(5), backward=HistoryModel(5), vocabulary=Vocabulary(["a", "b"]))
    with pytest.raises(ValueError, match="two recurrent or two n-gram models to be saved, but is HistoryModel and"):
        own.save(tmp_path / "own")
    assert not (tmp_path / "own").exists()


def test_models_in_double_and_single_precision_fill_together(infiller):
    def uniform(precision):
        size = len(infiller.vocabulary)
        return from_next_token(lambda tokens: torch.full((size,), 1 / size, dtype=precision).log(), size)

    for forward, backward in ((torch.float64, torch.float64), (torch.float64, torch.float32)):
        own = Infiller(forward=uniform(forward), backward=uniform(backward), vocabulary=infiller.vocabulary)
        for method in ("bibs", "rerank-sum", "gsn"):
            assert len(own("a _ _ wave", method=method)) == 1
