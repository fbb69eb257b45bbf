"""Convergence by pass, judged by searches with fewer rounds and by the plain first pass."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from bibs.data import Features
from bibs.evaluation.captions import CaptionSettings
from bibs.evaluation.convergence import evaluate_convergence, pass_rows
from bibs.evaluation.experiment import Finished
from bibs.evaluation.methods import METHODS
from bibs.evaluation.pair import Answer, Pair
from bibs.evaluation.runs import Completion
from bibs.evaluation.tasks import Cell
from bibs.infiller import Infiller
from bibs.models.directory import load_models
from tiny_captions import make_home

pytest.importorskip("matplotlib", reason="needs the eval extra: pip install '.[eval]'")

ROUNDS = 3


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def found(home: Path) -> Finished:
    return evaluate_convergence(
        Infiller.from_pretrained(home / "model"),
        home / "data.json",
        output=home / "out",
        features=Features.load(home / "features.npy", home / "ids.json"),
        settings=CaptionSettings(removed=(50, 75), num_beams=3, num_rounds=ROUNDS),
    )


def fill(home: Path, num_rounds: int, method: str, cell: Cell) -> list[Answer]:
    pair = Pair(*load_models(home / "model"), Features.load(home / "features.npy", home / "ids.json"), num_rounds)
    _, filler = METHODS[method]
    assert filler is not None
    return filler(pair, cell.examples, 3, "known")


def test_the_first_pass_is_the_plain_backward_search(home: Path, found: Finished) -> None:
    for cell in found.run.cells:
        plain = fill(home, 0, "backward", cell)
        for trace, answer in zip(found.run.of(cell, found.run.methods[0]), plain, strict=True):
            assert trace.facts["fills"][0] == answer.fill
            assert trace.facts["scores"][0] == pytest.approx(answer.score, abs=1e-4)


def test_the_answer_after_each_round_is_at_least_the_best_so_far(home: Path, found: Finished) -> None:
    for cell in found.run.cells:
        traces = found.run.of(cell, found.run.methods[0])
        for rounds in range(ROUNDS + 1):
            answers = [fill(home, rounds, name, cell) for name in ("bibs", "bibs-backward")]
            for trace, *both in zip(traces, *answers, strict=True):
                best = max(trace.facts["scores"][: 2 * rounds + 1])
                assert all(answer.score >= best - 1e-4 for answer in both)


def test_means_never_fall_and_what_left_early_has_settled(found: Finished) -> None:
    for cell in found.run.cells:
        rows = [row for row in found.results.rows if row["removed"] == cell.removed]
        assert [row["pass"] for row in rows] == list(range(2 * ROUNDS + 1))
        for before, after in itertools.pairwise(rows):
            assert after["best"] >= before["best"]
            assert after["settled"] >= before["settled"]
        traces = found.run.of(cell, found.run.methods[0])
        assert all(trace.facts["settled"] for trace in traces if len(trace.facts["scores"]) < 2 * ROUNDS + 1)


def trace(scores: list[float], settled: bool) -> Completion:
    facts = {"fills": ["x"] * len(scores), "scores": scores, "settled": settled}
    where = {"cell": "c", "method": "bibs", "key": 1, "image_id": 1, "before": "a b", "after": "c", "truth": "d e"}
    return Completion("x", max(scores), 0.0, 0.0, facts=facts, seconds=1.0, **where)  # type: ignore[arg-type]


def test_a_settled_search_keeps_its_values() -> None:
    cell = Cell("captions", "test", 50, "known", ())
    rows = pass_rows(cell, [trace([-24.0, -12.0, -18.0], True), trace([-12.0] * 5, False)], 5)
    assert [row["top"] for row in rows] == [-1.5, -1.0, -1.25, -1.25, -1.25]  # S / 12: five words and the end, twice
    assert [row["best"] for row in rows] == [-1.5, -1.0, -1.0, -1.0, -1.0]
    assert [row["settled"] for row in rows] == [0.0, 0.0, 0.5, 0.5, 0.5]


def test_what_is_written_can_be_read(found: Finished) -> None:
    directory = found.run.directory
    assert json.loads((directory / "results.json").read_text())["rows"] == list(found.results.rows)
    assert "Init" in (directory / "table.md").read_text()
    assert "data:image/png;base64," in (directory / "report.html").read_text()
    assert (directory / "plots" / "convergence.png").stat().st_size > 1000
