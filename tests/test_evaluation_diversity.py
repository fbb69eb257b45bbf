"""The diversity experiment, judged by counting on a handful of fills."""

from __future__ import annotations

import json

import pytest

from bibs.data import Features
from bibs.evaluation.diversity import (
    COLUMNS,
    DiversitySettings,
    accuracies_of,
    count_distinct,
    evaluate_diversity,
    share_found,
)
from bibs.evaluation.experiment import Finished
from bibs.evaluation.runs import Completion
from bibs.infiller import Infiller
from tiny_captions import make_home

pytest.importorskip("matplotlib", reason="needs the eval extra: pip install '.[eval]'")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    home = make_home(tmp_path_factory.mktemp("home"))
    return evaluate_diversity(
        Infiller.from_pretrained(home / "model"),
        home / "data.json",
        output=home / "out",
        features=Features.load(home / "features.npy", home / "ids.json"),
        settings=DiversitySettings(
            removed=(50,), num_beams=2, num_rounds=2, penalties=(0.5, 50.0), num_return_sequences=3
        ),
    )


def several(fills: list[str], truth: str) -> Completion:
    where = {"cell": "c", "method": "bibs", "key": 1, "image_id": 1, "before": "a", "after": "b", "truth": truth}
    return Completion(fills[0], 0.0, 0.0, 0.0, facts={"fills": fills}, seconds=1.0, **where)  # type: ignore[arg-type]


def test_words_are_counted_once_and_places_matter() -> None:
    record = several(["a red dog", "a dog red"], "the red dog")
    assert count_distinct(record) == 3
    assert accuracies_of(record) == [2 / 3, 0.0]
    assert share_found(record) == 2 / 3


def test_the_rows_are_means_of_what_was_filled(found: Finished) -> None:
    assert [row["method"] for row in found.results.rows] == ["bibs", "bibs@6", "bibs+0.5", "bibs+50"]
    (cell,) = found.run.cells
    for method, row in zip(found.run.methods, found.results.rows, strict=True):
        records = found.run.of(cell, method)
        assert all(len(set(record.facts["fills"])) == 3 for record in records)
        assert row["n"] == len(records) == len(cell.examples)
        words = [len({word for fill in record.facts["fills"] for word in fill.split()}) for record in records]
        assert row["distinct"] == pytest.approx(sum(words) / len(words))
        assert row["times"] == pytest.approx(row["distinct"] / found.results.rows[0]["distinct"])
        assert row["best"] == pytest.approx(sum(max(record.facts["scores"]) for record in records) / len(records))
        assert row["mean"] <= row["best"]
        for name in [column.name for column in COLUMNS if column.name != "seconds"]:
            low, high = row[f"{name}_ci"]
            assert low <= row[name] <= high


def test_a_penalty_makes_words_differ_and_costs_the_best_fill_nothing(found: Finished) -> None:
    (cell,) = found.run.cells
    plain, _, *penalised = found.run.methods
    for method in penalised:
        for before, after in zip(found.run.of(cell, plain), found.run.of(cell, method), strict=True):
            assert max(after.facts["scores"]) >= max(before.facts["scores"]) - 1e-4
    assert found.results.rows[-1]["distinct"] > found.results.rows[0]["distinct"]


def test_what_is_written_can_be_read(found: Finished) -> None:
    directory = found.run.directory
    assert json.loads((directory / "results.json").read_text())["rows"] == list(found.results.rows)
    assert "penalty 50" in (directory / "table.md").read_text()
    assert "data:image/png;base64," in (directory / "report.html").read_text()
    assert (directory / "plots" / "diversity.png").stat().st_size > 1000
    (table,) = found.report.tables
    assert [label for label, _ in table.rows] == [method.label.removeprefix("penalty ") for method in found.run.methods]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalties": ()}, "`penalties` must be distinct numbers of at least 0, but are"),
        ({"penalties": (1.0, 1.0)}, "`penalties` must be distinct numbers of at least 0, but are"),
        ({"penalties": (-1.0,)}, "`penalties` must be distinct numbers of at least 0, but are"),
        ({"penalties": (1.0,), "num_return_sequences": 1}, "`num_return_sequences` must be at least 2, but is 1"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        DiversitySettings(**options)
