"""Two causal language models of sub-words behind one door: words in, words out, and one line for what cannot be."""

from __future__ import annotations

import itertools
import json
import sys

import pytest
import torch

from bibs import Infiller, MatrixModel

pytest.importorskip("transformers")
from bibs.models.huggingface import reads_backward
from tiny_transformers import make_tokenizer, network, whole_pass


def networks(family="gpt2", vocab_size=None):
    size = len(make_tokenizer("Ġ")) if vocab_size is None else vocab_size
    return network(family, size, 5), network(family, size, 6)


def make(**how):
    forward, backward = networks()
    return Infiller.from_huggingface(forward, backward, make_tokenizer("Ġ"), check_direction=False, **how)


@pytest.fixture(scope="module")
def infiller():
    return make()


def score(made, tokens):
    log_probs = whole_pass(made, list(tokens))
    return sum(float(log_probs[place, token]) for place, token in enumerate(tokens[1:]))


@pytest.mark.parametrize("template", ["the _ _ runs.", "_ dog's (_)", "The ___{2,3} here!", "two ___ beach"])
@pytest.mark.parametrize("method", ["bibs", "forward", "backward", "rerank-sum"])
def test_fills_have_the_words_that_were_asked_for_and_their_exact_scores(infiller, template, method):
    for found in infiller(template, method=method, num_beams=3, num_return_sequences=2, max_length=4):
        text = found.text
        for literal in infiller.parse(template).template.literals:
            assert literal in text
        ends = {"the _ _ runs.": (2, 2), "_ dog's (_)": (1, 1), "The ___{2,3} here!": (2, 3), "two ___ beach": (1, 4)}
        least, most = ends[template]
        assert all(least <= len(span.split()) <= most for span in found.spans)
        assert found.forward_score == pytest.approx(score(infiller.forward.network, found.tokens), abs=1e-2)
        assert found.backward_score == pytest.approx(score(infiller.backward.network, found.tokens[::-1]), abs=1e-2)


def test_one_word_is_the_best_of_all_words_of_one_or_two_tokens():
    infiller = make(extra_tokens=1)
    (found,) = infiller("the _ runs", num_beams=400)
    tokenizer = infiller.tokenizer
    row = infiller.parse("the _ runs").row(0)
    before, after = row[:2], row[3:]
    allowed = set(range(len(tokenizer.begins))) - set(tokenizer.banned)
    first = [token for token in allowed if tokenizer.begins[token]]
    others = [token for token in allowed if not tokenizer.begins[token]]
    fills = [(token,) for token in first] + list(itertools.product(first, others))
    rows = torch.tensor([[*before, *fill, *after] for fill in fills if len(fill) == 2])
    short = torch.tensor([[*before, *fill, *after] for fill in fills if len(fill) == 1])

    def best(sentences):
        total = torch.zeros(len(sentences))
        for made, tokens in ((infiller.forward.network, sentences), (infiller.backward.network, sentences.flip(1))):
            with torch.no_grad():
                log_probs = made(tokens).logits.log_softmax(2)[:, :-1]
            total += log_probs.gather(2, tokens[:, 1:, None]).sum((1, 2))
        return float(total.max())

    assert found.score == pytest.approx(max(best(rows), best(short)), abs=1e-2)


def test_a_list_is_filled_as_its_items_are(infiller):
    templates = ["the _ _ runs.", "The ___ here!", "_ dog and _ here", "again _"]
    together = infiller(templates, num_beams=2, max_length=3)
    assert [[each.text for each in found] for found in together] == [
        [each.text for each in infiller(template, num_beams=2, max_length=3)] for template in templates
    ]


def test_a_saved_pair_fills_as_it_did(infiller, tmp_path):
    for name, made in zip(("forward", "backward"), networks(), strict=True):
        made.save_pretrained(tmp_path / name)
    make_tokenizer("Ġ").save_pretrained(tmp_path / "tokenizer")
    paths = {name: tmp_path / name for name in ("forward", "backward", "tokenizer")}
    loaded = Infiller.from_huggingface(**paths, check_direction=False)
    assert [each.text for each in loaded("the _ _ runs")] == [each.text for each in infiller("the _ _ runs")]


class Ring(MatrixModel):
    """A walk on a ring that mostly goes up, or down."""

    device = torch.device("cpu")

    def __init__(self, step: int) -> None:
        super().__init__([[0.9 if b == (a + step) % 9 else 0.0125 for b in range(9)] for a in range(9)])


def test_a_model_reads_backward_if_it_likes_what_the_other_writes_from_its_end():
    assert reads_backward(Ring(+1), Ring(-1), 0, [])
    assert not reads_backward(Ring(+1), Ring(+1), 0, [])


def test_bad_pairs_are_refused_in_one_line(tmp_path):
    from transformers import AutoModelForCausalLM

    forward, backward = networks()
    tokenizer = make_tokenizer("Ġ")
    larger, _ = networks(vocab_size=len(tokenizer) + 1)
    with torch.device("meta"):
        elsewhere = AutoModelForCausalLM.from_config(backward.config)
    (tmp_path / "other").mkdir()
    forward.save_pretrained(tmp_path / "other")
    make_tokenizer("Ġ", 300).save_pretrained(tmp_path / "other")
    for rule, given in {
        r"share one vocabulary, but have \d+ and \d+ tokens": (forward, larger, tokenizer),
        r"share one vocabulary, but their tokens differ": (forward, tmp_path / "other", tokenizer),
        r"`backward` must read from right to left": (forward, forward, tokenizer),
        r"must be on one device, but are on cpu and meta": (forward, elsewhere, tokenizer),
        r"`forward` must be a directory or a name on the hub": (tmp_path / "none", backward, tokenizer),
        r"`tokenizer` must be given": (forward, backward, None),
        r"`tokenizer` must have no more tokens than the models": (*networks(vocab_size=20), tokenizer),
    }.items():
        with pytest.raises(ValueError, match=rule) as error:
            Infiller.from_huggingface(*given)
        assert "\n" not in str(error.value)


def test_bad_templates_and_options_are_refused_in_one_line(infiller):
    for template, options, rule in [
        ("the dog " * 20 + "_", {}, "at most 32 tokens, the positions of `forward`, but may have"),
        ("the _ dog", {"method": "gsn"}, "must be no sampler for models of sub-words, but is 'gsn'"),
        ("the _ dog", {"method": "none"}, "`method` must be one of"),
        ("the _ dog", {"num_beams": 0}, "`num_beams` must be a whole number of at least 1"),
        (7, {}, "`templates` must be a string or a list of strings"),
        (["the _ dog", 7], {}, r"`templates\[1\]`: a template must be a string, but is 7"),
    ]:
        with pytest.raises(ValueError, match=rule) as error:
            infiller(template, **options)
        assert "\n" not in str(error.value)


def test_a_missing_extra_says_what_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r'pip install "\.\[hf\]"'):
        Infiller.from_huggingface("a", "b")


def test_a_directory_cannot_bring_code_of_its_own(tmp_path, monkeypatch):
    trace = tmp_path / "it ran"
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "own.py").write_text(f"import pathlib\npathlib.Path({str(trace)!r}).touch()\nclass Own: ...\n")
    names = {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"}
    (directory / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": names}))
    monkeypatch.setattr("builtins.input", lambda prompt="": "y")  # whoever is asked may say yes
    with pytest.raises(ValueError, match="`forward` must be a directory") as error:
        Infiller.from_huggingface(directory, directory, make_tokenizer("Ġ"))
    assert "\n" not in str(error.value)
    assert not trace.exists()
