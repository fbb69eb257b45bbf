"""Few captions need no options of their own: `bibs train` takes steps enough of them, and many are read as ever."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bibs.cli import main
from bibs.training import Report, Sources, TrainingSettings, train, train_nade

SMALL = TrainingSettings(hidden_size=16, embedding_size=16)


class Killed(BaseException):
    """Stands for a kill: nothing in the code may catch it."""


def write_sentences(path: Path, count: int = 300) -> Path:
    draw = random.Random(0)
    who, what, where = ["the cat", "a dog", "my horse"], ["sleeps", "runs", "sits down"], ["at home", "in town"]
    path.write_text("".join(" ".join(map(draw.choice, (who, what, where))) + "\n" for _ in range(count)))
    return path


def test_a_default_run_on_few_lines_learns_more_than_how_often_each_word_stands(tmp_path: Path) -> None:
    notes = write_sentences(tmp_path / "notes.txt")
    tokens = [word for line in notes.read_text().splitlines() for word in [*line.split(), "END"]]
    shares = [count / len(tokens) for count in Counter(tokens).values()]
    frequencies = -sum(share * math.log(share) for share in shares)  # nats a token
    settings = TrainingSettings(hidden_size=128, embedding_size=128)
    result = train(Sources((notes,), val_share=0.2), settings, tmp_path / "model", in_parallel=False)
    assert result.forward.val_loss < 0.5 * frequencies
    assert result.backward.val_loss < 0.5 * frequencies


@pytest.mark.parametrize("num_captions", [1, 50, 950, 5_000, 20_000, 1_000_000])
@pytest.mark.parametrize("epochs", [2, 7])
def test_the_learning_rate_becomes_high_however_few_captions_there_are(num_captions: int, epochs: int) -> None:
    settings = TrainingSettings(epochs=epochs).fitted(num_captions=num_captions, vocab_size=9)
    assert settings.batch_size is not None
    total = epochs * -(-num_captions // settings.batch_size)
    highest = max(settings.learning_rate_at(step, total) for step in range(total))
    assert 0.85 * settings.learning_rate <= highest <= settings.learning_rate


@pytest.mark.parametrize(
    ("num_captions", "batch_size"), [(1, 16), (950, 16), (2_400, 16), (4_800, 32), (19_200, 128), (10**6, 128)]
)
def test_few_captions_are_read_in_small_batches(num_captions: int, batch_size: int) -> None:
    assert TrainingSettings().fitted(num_captions=num_captions, vocab_size=9).batch_size == batch_size


def test_large_data_is_read_as_with_the_numbers_that_were_once_fixed() -> None:
    before = TrainingSettings(cutoffs=(500, 2000), batch_size=128, warmup_steps=200)
    fitted = TrainingSettings(cutoffs=None).fitted(num_captions=36_600, vocab_size=5_000)  # 2,002 steps
    assert fitted == replace(before, warmup_steps=None)
    for step in (0, 1, 199, 200, 201, 2_001):
        assert fitted.learning_rate_at(step, 2_002) == before.learning_rate_at(step, 2_002)


def test_what_was_asked_for_is_taken_whatever_the_data(tmp_path: Path) -> None:
    asked = TrainingSettings(batch_size=100, warmup_steps=50)
    assert asked.fitted(num_captions=10, vocab_size=9) == asked
    assert asked.learning_rate_at(0, 14) == asked.learning_rate / 51
    for name in ("batch_size", "warmup_steps"):
        with pytest.raises(ValueError, match=f"`{name}` must be at least [01], but is -1"):
            TrainingSettings(**{name: -1})  # type: ignore[arg-type]


def test_a_run_whose_numbers_the_data_decided_is_resumed_and_takes_more_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = Sources((write_sentences(tmp_path / "notes.txt"),), val_share=0.2)

    def kill(report: Report) -> None:
        if len(report.val_losses) == 3:
            raise Killed

    for name in ("whole", "killed"):
        train(sources, replace(SMALL, epochs=2), tmp_path / name, in_parallel=False)
    longer = replace(SMALL, epochs=4)
    train(sources, longer, tmp_path / "whole", resume=True, in_parallel=False)
    with pytest.raises(Killed):
        train(sources, longer, tmp_path / "killed", resume=True, in_parallel=False, report=kill)
    arguments = ["train", "--output", str(tmp_path / "killed"), "--resume", "--no-parallel", "--no-calibrate"]
    monkeypatch.setattr("sys.argv", ["bibs", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    assert not caught.value.code
    for direction in ("forward", "backward"):
        weights = [(tmp_path / name / f"{direction}.safetensors").read_bytes() for name in ("whole", "killed")]
        assert weights[0] == weights[1]
    assert "batches of 16 sentences" in (tmp_path / "killed" / "model-card.md").read_text()
    assert json.loads((tmp_path / "killed" / "config.json").read_text())["training"]["batch_size"] == 16


def test_a_nade_is_fitted_to_its_data_too(tmp_path: Path) -> None:
    sources = Sources((write_sentences(tmp_path / "notes.txt", 60),), val_share=0.2)
    train_nade(sources, replace(SMALL, epochs=1), tmp_path / "model")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["training"]["batch_size"] == 16
