"""Text in, text out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bibs import Completion, Infiller, Vocabulary
from bibs.models.directory import save_pair
from bibs.models.recurrent import RecurrentConfig, RecurrentModel
from fakes import HistoryModel

CAPTIONS = [
    "A man is riding a wave.",
    "A man is riding a horse on the beach.",
    "a man riding a wave on a surfboard",
    "a woman is riding a small wave",
    "the dog is sitting on the beach",
    "a dog is running on the beach with a man",
]


@pytest.fixture(scope="module")
def infiller() -> Infiller:
    return Infiller.from_corpus(CAPTIONS)


def test_one_template_gives_completions_best_first(infiller):
    completions = infiller("A man _ _ a wave!", num_return_sequences=3)
    assert [type(completion) for completion in completions] == [Completion] * 3
    best = completions[0]
    assert best.text == "A man is riding a wave!"
    assert best.spans == ("is riding",)
    assert best.score == best.forward_score + best.backward_score == best.ranking_score
    assert infiller.vocabulary.decode(best.tokens) == ["<start>", *["a", "man", "is", "riding", "a", "wave"], "<end>"]
    assert completions == sorted(completions, key=lambda completion: -completion.score)


def test_a_list_gives_a_list_in_order(infiller):
    templates = ["a dog _ running on the beach", "no blank here", "the _ is sitting _ the beach"]
    completions = infiller(templates)
    assert [found[0].text for found in completions] == [
        "a dog is running on the beach",
        "no blank here",
        "the dog is sitting on the beach",
    ]
    assert completions[2][0].spans == ("dog", "on")
    assert completions == [infiller(template) for template in templates]


def test_words_that_models_do_not_know_stay_as_typed_and_specials_never_fill(infiller):
    for completion in infiller("A  zebra _ _  RIDING a wave", num_return_sequences=5):
        assert completion.text.startswith("A  zebra ")
        assert completion.text.endswith("  RIDING a wave")
        assert not set(completion.spans[0].split()) & {"<start>", "<end>", "<unk>"}


@pytest.mark.parametrize(
    ("templates", "message"),
    [
        ("", "the template must hold a word or a blank, but is empty"),
        (["a _", "a __ b"], r"`templates\[1\]`: template, character 3, .*`__` is no blank"),
        (["a _", 3], r"`templates\[1\]`: a template must be a string, but is 3"),
        ("_ " * 101, r"a template must have at most 100 words \(`max_words`\), but has 101"),
    ],
)
def test_a_bad_template_gets_one_clear_line(infiller, templates, message):
    with pytest.raises(ValueError, match=message) as error:
        infiller(templates)
    assert "\n" not in str(error.value)


def test_words_that_must_appear_do_and_bad_ones_do_not(infiller):
    both = ["a _ is _ on the beach", "A man ___{2,4} the beach"]
    for completions in infiller(both, must_include=["Dog"], bad_words=["sitting", "zebra"], num_return_sequences=3):
        for completion in completions:
            assert "dog" in " ".join(completion.spans).split()
            assert "sitting" not in completion.text
    each = infiller(both, must_include=[["woman"], ["dog", "running"]])
    assert "woman" in each[0][0].spans
    assert {"dog", "running"} <= set(each[1][0].spans[0].split())
    assert each[0] == infiller(both[0], must_include=["woman"])
    assert infiller(both, must_include=[[], []]) == infiller(both, must_include=[]) == infiller(both)
    # The words of a phrase stand together and in order.
    for completion in infiller("a ___{3,6} the beach", must_include=["Dog is", "on"], num_return_sequences=3):
        assert "dog is" in completion.spans[0]
        assert "on" in completion.spans[0].split()
    # Fixed words are no matter of either list.
    assert infiller("a man _ riding a wave", bad_words=["man"])[0].text == "a man is riding a wave"
    assert infiller("a man _ riding", must_include=["man"])[0].spans == ("man",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"must_include": "dog"}, "`must_include` must be a list of words, but is 'dog'"),
        ({"must_include": ["dog dog"]}, r"must have room for the words of `must_include` \(2\), but has 1 free slots"),
        ({"must_include": [""]}, "`must_include` must hold words, but holds ''"),
        ({"must_include": ["zebra"]}, "`must_include` must hold words that the model knows, but holds 'zebra'"),
        ({"must_include": ["<unk>"]}, "`must_include` must hold words that the model knows, but holds 'unk'"),
        ({"must_include": ["dog"], "bad_words": ["DOG"]}, "must hold no word of `bad_words`, but holds 'dog'"),
        (
            {"must_include": ["a", "on", "the", "dog", "is"]},
            "`must_include` must hold at most four words, or .*, but has 2 x 2 x 2 x 2 x 2 states",
        ),
        ({"must_include": ["a", "on"]}, r"must have room for the words of `must_include` \(2\), but has 1 free slots"),
        ({"must_include": [["a"], ["on"]]}, r"one list of them per template \(1\), but holds 2"),
        ({"bad_words": ["small wave"]}, "`bad_words` must hold single words, but holds 'small wave'"),
        ({"bad_words": 3}, "`bad_words` must be a list of words, but is 3"),
        ({"must_include": ["dog"], "method": "gsn"}, "`must_include` must be empty where `method` is a sampler"),
    ],
)
def test_bad_words_get_one_clear_line(infiller, options, message):
    with pytest.raises(ValueError, match=message) as error:
        infiller("a man _ riding", **options)
    assert "\n" not in str(error.value)


def test_only_blanks_is_a_template_like_any_other(infiller):
    assert len(infiller("_ _ _")[0].text.split()) == 3


def test_models_must_have_the_size_of_the_vocabulary():
    with pytest.raises(ValueError, match=r"`backward` must have the size of `vocabulary` \(5\), but has 6"):
        Infiller(forward=HistoryModel(5), backward=HistoryModel(6), vocabulary=Vocabulary(["a", "b"]))


def test_a_corpus_without_words_is_refused():
    with pytest.raises(ValueError, match="`lines` must hold at least one word"):
        Infiller.from_corpus(["...", ""])


def make_conditioned(directory, vocabulary: Vocabulary) -> None:
    config = RecurrentConfig(vocab_size=len(vocabulary), hidden_size=8, embedding_size=8, condition_size=4)
    models = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        model = RecurrentModel(config)
        for weight in model.parameters():
            torch.nn.init.normal_(weight)
        models.append(model)
    save_pair(directory, *models, vocabulary)


class Brightness:
    """An encoder that sees four grey levels."""

    name, size, calls = "brightness", 4, 0

    def encode(self, images):
        self.calls += len(images)
        return np.stack([np.full(4, np.asarray(image).mean() / 25, dtype=np.float32) for image in images])


def test_pictures_vectors_and_nothing_can_stand_in_one_call(tmp_path, infiller):
    make_conditioned(tmp_path, infiller.vocabulary)
    loaded = Infiller.from_pretrained(tmp_path)
    encoder = Brightness()
    seeing = Infiller(forward=loaded.forward, backward=loaded.backward, vocabulary=loaded.vocabulary, encoder=encoder)
    picture = np.full((2, 2, 3), 100, dtype=np.uint8)
    template = "a man _ _ _ beach"
    seen = seeing([template] * 4, images=[picture, np.full(4, 4, dtype=np.float32), None, picture])
    assert seen[0][0].text == seen[1][0].text == seen[3][0].text
    assert [seen[row][0].score for row in (1, 3)] == pytest.approx([seen[0][0].score] * 2)
    assert encoder.calls == 1
    assert seen[2][0].score == pytest.approx(seeing(template)[0].score)
    assert not math.isclose(seen[0][0].score, seen[2][0].score, abs_tol=1e-3)
    with pytest.raises(ValueError, match=r"`images` must hold one \(or None\) per template \(2\), but holds 1"):
        seeing([template, template], images=[picture])


def test_a_model_that_takes_no_picture_says_so(infiller):
    with pytest.raises(ValueError, match="`images` must be None"):
        infiller("a man _", images=np.zeros(4, dtype=np.float32))


def test_every_method_is_reached_by_name(infiller):
    from bibs.methods import METHODS

    for method in METHODS:
        (best,) = infiller("a man _ riding a wave", method=method)
        assert best.text == "a man is riding a wave"
