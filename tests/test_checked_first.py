"""What can be checked is checked before any work is done, and what is wrong is named, not carried along."""

from __future__ import annotations

import json
import os
import sys
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest

from bibs.cli import main
from bibs.data import Features
from bibs.evaluation import calibration as calibration_module
from bibs.evaluation.captions import CaptionSettings, caption_cells
from bibs.evaluation.comparison import metric_table
from bibs.evaluation.methods import parse_methods
from bibs.training import FeatureFiles, Sources, TrainingSettings, train
from tiny_captions import make_home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_home(tmp_path)


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["bibs", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def refuse(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert call(monkeypatch, *arguments) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert said.out == ""
    return said.err


# What tables say


def test_another_width_is_bold_where_it_is_the_best() -> None:
    rows = [
        {"removed": 50, "method": method, "CIDEr": value}
        for method, value in (("forward", 1.0), ("bibs", 2.0), ("bibs@10", 3.0), ("ncca", 9.0))
    ]
    table = metric_table("", rows, ["CIDEr"], itemgetter("method"))
    assert [label for label, entries in table.rows if entries[0][0].best] == ["bibs@10"]


def test_data_without_a_training_split_has_none_to_compare_with(home: Path) -> None:
    data = json.loads((home / "data.json").read_text())
    data["images"] = [image for image in data["images"] if image["split"] == "test"]
    (home / "data.json").write_text(json.dumps(data))
    _, notes = caption_cells(home / "data.json", CaptionSettings(removed=(50,)))
    assert notes == ["The data has no training split to look for the captions in."]


# Features


@pytest.fixture
def broken(home: Path) -> Path:
    """Features in which the picture 11, row 10, is not a number."""
    vectors = np.load(home / "features.npy")
    vectors[10, 3] = np.nan
    np.save(home / "features.npy", vectors)
    return home


NAMED = "the features of picture 11 (row 10) must be finite numbers, but hold nan"


def test_features_that_are_not_finite_are_named_by_picture_and_row(broken: Path) -> None:
    features = Features.load(broken / "features.npy", broken / "ids.json")
    features.rows([1, 2])
    for take in (lambda: features.rows([1, 11]), lambda: features[11]):
        with pytest.raises(ValueError, match="features") as error:
            take()
        assert str(error.value) == NAMED


def test_every_command_names_features_that_are_not_finite(broken, monkeypatch, capsys, tmp_path):
    given = [
        "--data",
        broken / "data.json",
        "--features",
        broken / "features.npy",
        "--feature-ids",
        broken / "ids.json",
    ]
    model = ["--model", broken / "model"]
    for command in (
        ["eval", "nll", *model, "--split", "train"],
        ["eval", "captions", *model, "--split", "train", "--output", tmp_path / "out", "--workers", 1],
        ["calibrate", *model, "--split", "train", "--workers", 1],
    ):
        assert NAMED in refuse(monkeypatch, capsys, *command, *given)


@pytest.mark.parametrize("row", [10, 5])
def test_training_names_features_that_are_not_finite_before_it_begins(home: Path, tmp_path: Path, row: int) -> None:
    data = json.loads((home / "data.json").read_text())
    for image in data["images"]:
        image["split"] = image["split"].replace("test", "val")
    (home / "data.json").write_text(json.dumps(data))
    vectors = np.load(home / "features.npy")
    vectors[row] = np.inf
    np.save(home / "features.npy", vectors)
    sources = Sources(
        (home / "data.json",), features=FeatureFiles(home / "features.npy", home / "ids.json"), min_count=1
    )
    with pytest.raises(ValueError, match=rf"the features of picture {row + 1} \(row {row}\) must be finite"):
        train(sources, TrainingSettings(hidden_size=4, embedding_size=4, epochs=1), tmp_path / "new")
    assert not (tmp_path / "new").exists()


# Options


def test_cutoffs_beyond_the_vocabulary_are_refused_before_training(home: Path, tmp_path: Path) -> None:
    data = json.loads((home / "data.json").read_text())
    for image in data["images"]:
        image["split"] = image["split"].replace("test", "val")
    (home / "data.json").write_text(json.dumps(data))
    sources = Sources((home / "data.json",), min_count=1)
    settings = TrainingSettings(hidden_size=4, embedding_size=4, epochs=1, cutoffs=(5, 100))
    with pytest.raises(ValueError, match=r"`cutoffs` must be below the number of words \(1[0-9]\), but hold 100"):
        train(sources, settings, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("missing", [[], ["--missing", 0.5]])
def test_cutoffs_that_were_typed_must_fit_and_those_that_were_not_are_left_out(
    missing: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("a man rides\nthe dog sits down\n" * 20 + "a dog\nthe man\n")
    small = ["--hidden", 4, "--embedding", 4, "--epochs", 1, "--no-parallel", "--no-calibrate", "--val-share", 0.6]
    output = tmp_path / "model"
    command = ["train", "--data", tmp_path / "notes.txt", "--output", output, "--min-count", 1, *small, *missing]
    assert call(monkeypatch, *command, "--cutoffs", "500,2000") == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "`--cutoffs` must be below the number of words (6), but hold 500" in err
    assert not output.exists()
    assert call(monkeypatch, *command) == 0
    again = ["train", "--output", output, "--resume", "--epochs", 2, "--no-parallel", "--no-calibrate"]
    assert call(monkeypatch, *again) == 0


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--workers", 0], "`--workers` must be at least 1, but is 0"),
        (["--workers", -1], "`--workers` must be at least 1, but is -1"),
        (["--images", "nowhere"], "`--images` must be a folder, but nowhere is none"),
        (["--methods", "nade"], "`--methods` hold 'nade', which needs `--nade`"),
    ],
)
def test_an_option_is_refused_before_anything_is_filled(home, monkeypatch, capsys, tmp_path, options, line):
    common = ["--data", home / "data.json", "--model", home / "model", "--output", tmp_path / "out"]
    assert line in refuse(monkeypatch, capsys, "eval", "captions", *common, *options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("package", "use"), [("matplotlib", "plots"), ("jinja2", "reports"), ("pycocoevalcap", "caption metrics")]
)
def test_a_missing_extra_is_named_before_anything_is_filled(home, monkeypatch, capsys, tmp_path, package, use):
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    common = ["--data", home / "data.json", "--model", home / "model", "--output", tmp_path / "out", "--workers", 1]
    said = refuse(monkeypatch, capsys, "eval", "captions", *common)
    assert said == f'bibs: {use} need {package}: pip install ".[eval]"\n'
    assert not (tmp_path / "out").exists()


def test_nade_is_named_with_its_option() -> None:
    with pytest.raises(ValueError, match="needs `--nade`"):
        parse_methods("bibs,nade@3", num_beams=5)


# Calibration


def calibrating(home: Path) -> list[object]:
    return ["calibrate", "--model", home / "model", "--data", home / "data.json", "--split", "train", "--limit", 1]


def test_weights_go_to_a_file_of_any_name(home, monkeypatch, capsys, tmp_path):
    path = tmp_path / "new" / "weights.json"
    assert call(monkeypatch, *calibrating(home), "--workers", 1, "--output", path) == 0
    assert set(json.loads(path.read_text())) >= {"sum", "join", "sentence_counts"}
    assert str(path) in capsys.readouterr().out.replace("\n", "")


def test_a_place_that_cannot_be_written_to_is_refused_before_fitting(home, monkeypatch, capsys, tmp_path):
    def never(*_: object, **__: object) -> None:
        raise AssertionError("was fitted")

    monkeypatch.setattr(calibration_module, "_observe", never)
    (tmp_path / "file").write_text("")
    said = refuse(monkeypatch, capsys, *calibrating(home), "--workers", 1, "--output", tmp_path / "file" / "here")
    assert f"{tmp_path / 'file'}" in said
    may = os.access  # root may write anywhere
    monkeypatch.setattr("os.access", lambda path, mode, **more: mode != os.W_OK and may(path, mode, **more))
    said = refuse(monkeypatch, capsys, *calibrating(home), "--workers", 1)
    assert f"{home / 'model'} cannot be written to" in said


def test_weights_that_cannot_be_written_are_told(home, monkeypatch, capsys):
    def full(*_: object, **__: object) -> None:
        raise ValueError("No space left on device")

    monkeypatch.setattr(calibration_module, "save_length_prior", full)
    said = refuse(monkeypatch, capsys, *calibrating(home), "--workers", 1)
    assert "No space left on device" in said
    assert '"sum": {"word": ' in said
