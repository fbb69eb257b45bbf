"""Text without pictures is data like any other: it trains, is held out, calibrated on and evaluated without ids."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from bibs import Infiller
from bibs.cli import main
from bibs.data import VAL_SHARE, hold_out, read_captions
from bibs.evaluation.calibration import CalibrationSettings, calibrate
from bibs.evaluation.captions import CaptionSettings, caption_cells
from bibs.evaluation.nll import evaluate_likelihood
from bibs.lengths import UNFITTED
from bibs.models.directory import load_length_prior
from bibs.training import Sources, TrainingSettings, train

SETTINGS = TrainingSettings(hidden_size=6, embedding_size=6, epochs=1, batch_size=16, warmup_steps=2)


def write_lines(path: Path, count: int = 200) -> Path:
    draw = random.Random(0)
    words = ["a", "the", "man", "dog", "rides", "sits", "on", "wave", "mat", "red"]
    path.write_text("".join(" ".join(draw.choices(words, k=draw.randint(6, 10))) + "\n" for _ in range(count)))
    return path


def test_captions_without_ids_are_numbered(tmp_path: Path) -> None:
    lines = [{"split": "test", "caption": "a man rides on the same wave"}] * 3
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    cells, _ = caption_cells(tmp_path / "data.jsonl", CaptionSettings(removed=(50,)))
    assert len({example.key for example in cells[0].examples}) == 3


def test_a_share_of_the_lines_is_held_out_where_no_split_is(tmp_path: Path) -> None:
    images = list(read_captions(write_lines(tmp_path / "notes.txt")))
    once, again = hold_out(images, 0.2), hold_out(images[::-1], 0.2)[::-1]
    assert once == again  # by the line itself, wherever it stands
    held = [image for image in once if image.split == "val"]
    assert 20 <= len(held) <= 60
    assert [image.captions for image in once] == [image.captions for image in images]
    splits: dict[object, set[str]] = {}
    for image in once:
        splits.setdefault(image.captions, set()).add(image.split)
    assert all(len(names) == 1 for names in splits.values())  # a line that stands twice is in one split
    assert hold_out(once, 0.5) == once  # what has a split is left as it is


def test_plain_text_trains_is_calibrated_and_knows_its_lengths(tmp_path: Path) -> None:
    notes = write_lines(tmp_path / "notes.txt")
    train(Sources((notes,), min_count=1, val_share=0.2), SETTINGS, tmp_path / "model", in_parallel=False)
    counts = load_length_prior(tmp_path / "model").sentence_counts
    held = [image for image in hold_out(read_captions(notes), 0.2) if image.split == "val"]
    assert sum(counts) == 200 - len(held)
    assert set(counts[:6]) == {0}
    assert len(counts) == 11
    assert Infiller.from_pretrained(tmp_path / "model").length_prior.sentence_counts == counts
    settings = CalibrationSettings(num_rounds=1, num_beams=2, limit=2, removed=(50,))
    calibrate(data=notes, model=tmp_path / "model", settings=settings)
    assert load_length_prior(tmp_path / "model").sentence_counts != ()


def test_text_is_evaluated_on_the_lines_that_training_held_out(tmp_path: Path) -> None:
    notes = write_lines(tmp_path / "notes.txt")
    held = [image for image in hold_out(read_captions(notes), VAL_SHARE) if image.split == "val"]
    (cell,), _ = caption_cells(notes, CaptionSettings(split="val", removed=(50,)))
    assert sorted(example.filled(example.blank) for example in cell.examples) == sorted(i.captions[0] for i in held)
    counted = Infiller.from_corpus(notes.read_text().splitlines())
    counted.save(tmp_path / "model")
    assert evaluate_likelihood(tmp_path / "model", notes).captions == len(held) > 0


def test_too_little_text_to_hold_out_is_said(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("a man\n")
    with pytest.raises(ValueError, match=r"there is nothing to validate on: .* no split `val`, and .* `val_share`"):
        train(Sources((tmp_path / "notes.txt",), min_count=1, val_share=0.01), SETTINGS, tmp_path / "model")
    with pytest.raises(ValueError, match="`val_share` must be above 0 and below 1, but is 1"):
        Sources((tmp_path / "notes.txt",), val_share=1)


def test_the_command_names_its_own_options_and_the_next_step(tmp_path, monkeypatch, capsys):
    def call(*arguments: object) -> int:
        monkeypatch.setattr("sys.argv", ["bibs", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        return int(caught.value.code or 0)

    notes = write_lines(tmp_path / "notes.txt", 60)
    common = ["train", "--data", notes, "--output", tmp_path / "model", "--no-parallel", "--val-share", 0.2]
    for option, line in (
        ("--hidden", "`--hidden` must be at least 1, but is 0"),
        ("--embedding", "`--embedding` must be at least 1, but is 0"),
        ("--layers", "`--layers` must be at least 1, but is 0"),
    ):
        assert call(*common, option, 0) == 2
        assert line in capsys.readouterr().err
    assert call(*common, "--features", tmp_path / "F.npy") == 2
    assert "`--feature-ids` must name the file" in capsys.readouterr().err
    small = ["--hidden", 4, "--embedding", 4, "--epochs", 1, "--min-count", 1, "--cutoffs", ""]
    assert call(*common, *small, "--no-calibrate") == 0
    said = capsys.readouterr().out.replace("\n", "")
    first = (tmp_path / "model" / "vocabulary.txt").read_text().splitlines()[3]
    assert f"Next: bibs fill --model {tmp_path / 'model'} '{first} ___'" in said
    assert f"bibs calibrate --model {tmp_path / 'model'} --data {notes}" in said
    assert load_length_prior(tmp_path / "model").sum == UNFITTED.sum
    assert "--data` must name the captions" in (call("train", "--output", tmp_path / "b"), capsys.readouterr().err)[1]


def test_training_fits_the_lengths_in_the_end(tmp_path, monkeypatch, capsys):
    notes = write_lines(tmp_path / "notes.txt", 60)
    small = ["--hidden", 4, "--embedding", 4, "--epochs", 1, "--min-count", 1, "--val-share", 0.1, "--no-parallel"]
    arguments = ["train", "--data", notes, "--output", tmp_path / "model", *small]
    monkeypatch.setattr("bibs.cli.eval_display.count_cores", lambda: 1)
    monkeypatch.setattr("sys.argv", ["bibs", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert not caught.value.code
    fitted = json.loads((tmp_path / "model" / "lengths.json").read_text())["fitted"]
    held = [image for image in hold_out(read_captions(notes), 0.1) if image.split == "val"]
    assert fitted["length_errors"]["50"]["n"] == len({image.captions for image in held})
    said = capsys.readouterr().out
    assert "Next: bibs fill --model" in said
    assert "bibs calibrate" not in said


def test_lengths_that_cannot_be_fitted_leave_a_whole_model(tmp_path, monkeypatch, capsys):
    (tmp_path / "notes.txt").write_text("a man\nthe dog\n" * 20 + "a dog\nthe man\n")
    small = ["--hidden", 4, "--embedding", 4, "--epochs", 1, "--min-count", 1, "--val-share", 0.6, "--no-parallel"]
    arguments = ["train", "--data", tmp_path / "notes.txt", "--output", tmp_path / "model", *small]
    monkeypatch.setattr("sys.argv", ["bibs", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert not caught.value.code
    said = capsys.readouterr()
    assert "bibs: the model is whole, but how long `___` is could not be fitted: no caption is long enough" in said.err
    assert "To fit how long `___` is: bibs calibrate" in said.out
    assert Infiller.from_pretrained(tmp_path / "model")("a _")


def test_short_sentences_are_calibrated_on_by_the_shares_that_they_can_lose(tmp_path: Path) -> None:
    lines = ["the red dog sits", "a man rides on", "the old man sits", "a dog rides on"]
    (tmp_path / "notes.txt").write_text("".join(f"{line}\n" for line in lines * 10))
    train(Sources((tmp_path / "notes.txt",), min_count=1, val_share=0.6), SETTINGS, tmp_path / "m", in_parallel=False)
    settings = CalibrationSettings(num_rounds=1, num_beams=2)
    assert settings.removed == (25, 50, 75)
    result = calibrate(data=tmp_path / "notes.txt", model=tmp_path / "m", settings=settings, val_share=0.6)
    assert list(result.after) == [25, 50]  # of four words, three leave no word on either side
