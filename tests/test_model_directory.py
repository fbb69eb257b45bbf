"""A model directory is loaded whole and as it was written, or refused in one line that names what is wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bibs import Infiller
from bibs.evaluation.nll import evaluate_likelihood
from bibs.lengths import UNFITTED
from bibs.models.directory import load_models, save_length_prior
from tiny_captions import make_home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_home(tmp_path)


@pytest.fixture
def model(home: Path) -> Path:
    return home / "model"


def refuse(directory: Path) -> str:
    with pytest.raises(ValueError, match=str(directory)) as error:
        Infiller.from_pretrained(directory)
    assert "\n" not in str(error.value)
    return str(error.value)


def change(directory: Path, **values: object) -> None:
    """Change the configuration; what names no entry of its own is that of both models."""
    config = json.loads((directory / "config.json").read_text())
    for name, value in values.items():
        for part in [config] if name in ("format", "vocabulary") else [config["forward"], config["backward"]]:
            part[name] = value
    (directory / "config.json").write_text(json.dumps(config))


def test_words_in_another_order_are_refused_with_both_fingerprints(home: Path, model: Path) -> None:
    path = model / "vocabulary.txt"
    fingerprint = Infiller.from_pretrained(model).vocabulary.fingerprint()
    change(model, vocabulary=fingerprint)
    Infiller.from_pretrained(model)
    words = path.read_text().splitlines()
    path.write_text("\n".join([*words[:3], *words[3:][::-1]]) + "\n")
    said = refuse(model)
    assert str(path) in said
    assert str(model / "config.json") in said
    assert fingerprint in said
    for load in (load_models, lambda folder: evaluate_likelihood(folder, home / "data.json", split="train")):
        with pytest.raises(ValueError, match=fingerprint):
            load(model)


def test_a_vocabulary_of_another_size_is_refused_by_name(model: Path) -> None:
    with (model / "vocabulary.txt").open("a") as file:
        file.write("zebra\n")
    assert refuse(model).startswith(f"{model / 'vocabulary.txt'} must hold 18 words, as the models, but holds 19")


@pytest.mark.parametrize("number", [2, "1", None])
def test_another_format_is_refused(model: Path, number: object) -> None:
    change(model, format=number)
    assert refuse(model) == f"{model / 'config.json'}: `format` must be 1, but is {number!r}"


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("num_layers", 10**9, "`num_layers` must be at most"),
        ("hidden_size", 10**15, "`hidden_size` must be at most"),
        ("embedding_size", 10**30, "`embedding_size` must be at most"),
        ("condition_size", 10**12, "`condition_size` must be at most"),
        ("condition_axes", 10**12, "`condition_axes` must be at most"),
        ("vocab_size", 10**12, "`vocab_size` must be at most"),
        ("cutoffs", list(range(1, 15)), "`cutoffs` must be at most"),
        ("cutoffs", 3, "`cutoffs` must be a list of whole numbers, but is 3"),
        ("cutoffs", ["a"], "`cutoffs` must be a list of whole numbers, but is ['a']"),
        ("hidden_size", "8", "`hidden_size` must be a whole number of at least 1, but is '8'"),
        ("hidden_size", 8.0, "`hidden_size` must be a whole number of at least 1, but is 8.0"),
        ("condition_size", None, "`condition_size` must be a whole number of at least 0, but is None"),
        ("dropout", "none", "`dropout` must be at least 0 and below 1, but is 'none'"),
        ("cell", ["lstm"], "`cell` must be one of"),
    ],
)
def test_a_number_that_the_weights_do_not_allow_is_refused_before_anything_is_made(
    model: Path, name: str, value: object, rule: str
) -> None:
    change(model, **{name: value})
    said = refuse(model)
    assert rule in said


def test_a_configuration_nested_too_deeply_is_refused(model: Path) -> None:
    (model / "config.json").write_text('{"a":' * 100_000 + "1" + "}" * 100_000)
    assert refuse(model) == f"{model / 'config.json'} is not valid JSON (nested too deeply)"


@pytest.mark.parametrize("name", ["forward.safetensors", "vocabulary.txt", "config.json", "lengths.json"])
def test_what_is_no_file_is_refused(model: Path, name: str) -> None:
    weights = model / name
    weights.unlink(missing_ok=True)
    weights.mkdir()
    assert refuse(model) == f"{weights} could not be read: it is not a file"
    weights.rmdir()
    if os.path.exists("/dev/zero"):
        weights.symlink_to("/dev/zero")  # would be read for ever
        assert refuse(model) == f"{weights} could not be read: it is not a file"


@pytest.mark.parametrize("number", [2, "1"])
def test_lengths_of_another_format_are_refused(model: Path, number: object) -> None:
    save_length_prior(model, UNFITTED, details={"format": number})
    assert refuse(model) == f"{model / 'lengths.json'}: `format` must be 1, but is {number!r}"
