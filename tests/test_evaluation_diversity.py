"""The diversity experiment, judged by counting on a handful of fills."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bibs.data import Features
from bibs.evaluation.captions import CaptionSettings
from bibs.evaluation.diversity import MEASURES, Diversity, Several, evaluate_diversity
from bibs.evaluation.diversity_report import diversity_table, write_diversity
from tiny_captions import make_home

pytest.importorskip("matplotlib", reason="needs the eval extra: pip install '.[eval]'")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Diversity:
    home = make_home(tmp_path_factory.mktemp("home"))
    return evaluate_diversity(
        data=home / "data.json",
        model=home / "model",
        output=home / "out",
        penalties=(0.5, 50.0),
        num_return_sequences=3,
        features=Features.load(home / "features.npy", home / "ids.json"),
        settings=CaptionSettings(removed=(50,), num_beams=2, num_rounds=2),
    )


def several(fills: list[str], truth: str) -> Several:
    return Several("c", "bibs", 1, "a", "b", truth, fills, [0.0] * len(fills), 1.0)


def test_words_are_counted_once_and_places_matter() -> None:
    record = several(["a red dog", "a dog red"], "the red dog")
    assert record.distinct == 3
    assert record.accuracies == [2 / 3, 0.0]
    assert record.found == 2 / 3


def test_the_rows_are_means_of_what_was_filled(found: Diversity) -> None:
    assert [row["method"] for row in found.rows] == ["bibs", "bibs@6", "bibs+0.5", "bibs+50"]
    (cell,) = found.cells
    for method, row in zip(found.methods, found.rows, strict=True):
        records = found.run.of(cell, method)
        assert all(len(set(record.fills)) == 3 for record in records)
        assert row["n"] == len(records) == len(cell.examples)
        words = [len({word for fill in record.fills for word in fill.split()}) for record in records]
        assert row["distinct"] == pytest.approx(sum(words) / len(words))
        assert row["times"] == pytest.approx(row["distinct"] / found.rows[0]["distinct"])
        assert row["best"] == pytest.approx(sum(max(record.scores) for record in records) / len(records))
        assert row["mean"] <= row["best"]
        for name in MEASURES:
            low, high = row[f"{name}_ci"]
            assert low <= row[name] <= high


def test_a_penalty_makes_words_differ_and_costs_the_best_fill_nothing(found: Diversity) -> None:
    (cell,) = found.cells
    plain, _, *penalised = found.methods
    for method in penalised:
        for before, after in zip(found.run.of(cell, plain), found.run.of(cell, method), strict=True):
            assert max(after.scores) >= max(before.scores) - 1e-4
    assert found.rows[-1]["distinct"] > found.rows[0]["distinct"]


def test_what_is_written_can_be_read(found: Diversity) -> None:
    write_diversity(found)
    directory = found.run.directory
    assert json.loads((directory / "results.json").read_text())["rows"] == list(found.rows)
    assert "penalty 50" in (directory / "table.md").read_text()
    assert "data:image/png;base64," in (directory / "report.html").read_text()
    assert (directory / "plots" / "diversity.png").stat().st_size > 1000
    assert [label for label, _ in diversity_table(found).rows] == [method.label for method in found.methods]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalties": ()}, "`penalties` must be distinct numbers of at least 0, but are"),
        ({"penalties": (1.0, 1.0)}, "`penalties` must be distinct numbers of at least 0, but are"),
        ({"penalties": (-1.0,)}, "`penalties` must be distinct numbers of at least 0, but are"),
        ({"penalties": (1.0,), "num_return_sequences": 1}, "`num_return_sequences` must be at least 2, but is 1"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate_diversity(
            data=tmp_path, model=tmp_path, output=tmp_path / "out", settings=CaptionSettings(), **options
        )
