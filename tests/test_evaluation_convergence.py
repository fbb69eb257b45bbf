"""Convergence by pass, judged by searches with fewer rounds and by the plain first pass."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from bibs.data import Features
from bibs.evaluation.captions import CaptionSettings
from bibs.evaluation.convergence import Convergence, Trace, evaluate_convergence, pass_rows
from bibs.evaluation.convergence_report import write_convergence
from bibs.evaluation.methods import Method, PairFiller
from bibs.evaluation.runs import Cell
from bibs.models.directory import load_models
from tiny_captions import make_home

pytest.importorskip("matplotlib", reason="needs the eval extra: pip install '.[eval]'")

ROUNDS = 3


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def found(home: Path) -> Convergence:
    return evaluate_convergence(
        data=home / "data.json",
        model=home / "model",
        output=home / "out",
        features=Features.load(home / "features.npy", home / "ids.json"),
        settings=CaptionSettings(removed=(50, 75), num_beams=3, num_rounds=ROUNDS),
    )


def filler(home: Path, num_rounds: int) -> PairFiller:
    features = Features.load(home / "features.npy", home / "ids.json")
    return PairFiller(*load_models(home / "model"), features, num_rounds)


def test_the_first_pass_is_the_plain_backward_search(home: Path, found: Convergence) -> None:
    for cell in found.cells:
        plain = filler(home, 0)(Method("backward", 3), cell.examples, "known")
        for trace, answer in zip(found.run.of(cell, found.method), plain, strict=True):
            assert trace.fills[0].split() == list(answer.words)
            assert trace.scores[0] == pytest.approx(answer.score, abs=1e-4)


def test_the_answer_after_each_round_is_at_least_the_best_so_far(home: Path, found: Convergence) -> None:
    for cell in found.cells:
        traces = found.run.of(cell, found.method)
        for rounds in range(ROUNDS + 1):
            answers = filler(home, rounds)(Method("bibs", 3), cell.examples, "known")
            for trace, answer in zip(traces, answers, strict=True):
                assert answer.score >= max(trace.scores[: 2 * rounds + 1]) - 1e-4


def test_means_never_fall_and_what_left_early_has_settled(found: Convergence) -> None:
    for cell in found.cells:
        rows = [row for row in found.rows if row["removed"] == cell.removed]
        assert [row["pass"] for row in rows] == list(range(2 * ROUNDS + 1))
        for before, after in itertools.pairwise(rows):
            assert after["best"] >= before["best"]
            assert after["settled"] >= before["settled"]
        traces = found.run.of(cell, found.method)
        assert all(trace.settled for trace in traces if len(trace.scores) < 2 * ROUNDS + 1)


def trace(scores: list[float], settled: bool) -> Trace:
    return Trace("c", "bibs", 1, "a b", "c", "d e", ["x"] * len(scores), scores, settled, "x", max(scores), 0, True, 1)


def test_a_settled_search_keeps_its_values() -> None:
    cell = Cell("captions", "test", 50, "known", ())
    rows = pass_rows(cell, [trace([-24.0, -12.0, -18.0], True), trace([-12.0] * 5, False)], 5)
    assert [row["top"] for row in rows] == [-1.5, -1.0, -1.25, -1.25, -1.25]  # S / 12: five words and the end, twice
    assert [row["best"] for row in rows] == [-1.5, -1.0, -1.0, -1.0, -1.0]
    assert [row["settled"] for row in rows] == [0.0, 0.0, 0.5, 0.5, 0.5]


def test_what_is_written_can_be_read(found: Convergence) -> None:
    write_convergence(found)
    directory = found.run.directory
    assert json.loads((directory / "results.json").read_text())["rows"] == list(found.rows)
    assert "Init" in (directory / "table.md").read_text()
    assert "data:image/png;base64," in (directory / "report.html").read_text()
    assert (directory / "plots" / "convergence.png").stat().st_size > 1000
