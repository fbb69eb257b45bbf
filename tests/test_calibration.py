"""The length prior is fitted by maximum likelihood, kept beside the models, and its errors are reported whole."""

from __future__ import annotations

import json
import math
import random
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bibs import Infiller
from bibs.cli import main
from bibs.data import Features
from bibs.evaluation import calibration as calibration_module
from bibs.evaluation import results as results_module
from bibs.evaluation.calibration import Calibration, CalibrationSettings, calibrate
from bibs.evaluation.captions import CaptionSettings, evaluate_captions
from bibs.evaluation.experiment import Finished
from bibs.evaluation.meteor import NoMeteorError
from bibs.evaluation.results import LengthErrors
from bibs.lengths import UNFITTED, LengthPrior, LengthWeights
from bibs.models.directory import LENGTHS, load_length_prior, save_length_prior
from bibs.training.length_fit import LEAST_SCALE, RIDGE, Observation, fit_prior
from tiny_captions import make_home

PRIOR = LengthPrior(sentence_counts=(0, 0, 1, 5, 20, 30, 25, 12, 5, 2, 1))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_home(tmp_path_factory.mktemp("home"))


def draw(count: int, scale: float, weights: LengthWeights, seed: int = 0) -> list[Observation]:
    """Blanks whose lengths follow the model that is fitted."""
    generator = random.Random(seed)
    observations = []
    for _ in range(count):
        given, lengths = generator.randint(0, 4), tuple(range(1, generator.randint(4, 7)))
        scores = tuple(generator.gauss(-3.0 * length, 4.0) for length in lengths)
        each = Observation(50, given, 0, lengths, {"sum": scores})
        ranking = each.ranking("sum", replace(PRIOR, sum=weights))
        shares = [math.exp(scale * ranking[length]) for length in lengths]
        observations.append(replace(each, true=generator.choices(lengths, shares)[0]))
    return observations


@pytest.mark.parametrize(("scale", "word", "sentence"), [(0.3, 1.5, 2.0), (1.0, 3.0, 0.0), (0.2, -1.0, 5.0)])
def test_the_fit_finds_the_weights_that_lengths_were_drawn_by(scale, word, sentence):
    fitted = fit_prior(draw(3000, scale, LengthWeights(word, sentence)), PRIOR, ("sum",)).sum
    assert fitted.word == pytest.approx(word, abs=0.4)
    assert fitted.sentence == pytest.approx(sentence, abs=0.8)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 50), st.floats(0.02, 1.0), st.floats(-1, 3), st.floats(0, 4))
def test_no_weights_near_the_fitted_ones_are_likelier(seed, scale, word, sentence):
    observations = draw(20, scale, LengthWeights(word, sentence), seed)
    fitted = fit_prior(observations, PRIOR, ("sum",))

    def likelihood(scale: float, a: float, b: float) -> float:
        """Of the true lengths, less the ridge; the weights as they are before the scale is taken out."""
        total = 0.0
        for each in observations:
            logits = {
                length: scale * score + a * length + b * PRIOR.log_share(each.given + length)
                for length, score in zip(each.lengths, each.scores["sum"], strict=True)
            }
            largest = max(logits.values())
            total += logits[each.true] - largest - math.log(sum(math.exp(logit - largest) for logit in logits.values()))
        return total / len(observations) - RIDGE * (scale**2 + a**2 + b**2)

    # The scale is not kept: it is where the likelihood is highest along the fitted direction.
    direction = fitted.sum

    def along(scale: float) -> float:
        return likelihood(scale, scale * direction.word, scale * direction.sentence)

    low, high = LEAST_SCALE, 5.0
    for _ in range(60):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (a, high) if along(a) < along(b) else (low, b)
    best = (low, low * direction.word, low * direction.sentence)
    for place in range(1 if low < LEAST_SCALE * 1.001 else 0, 3):
        for step in (-1e-3, 1e-3):
            other = list(best)
            other[place] += step
            assert likelihood(*other) <= likelihood(*best) + 1e-7


def test_a_score_that_says_nothing_of_lengths_leaves_the_prior_to_decide():
    observations = [replace(each, scores={"sum": (0.0,) * len(each.lengths)}) for each in draw(50, 0.3, UNFITTED.sum)]
    fitted = fit_prior(observations, PRIOR, ("sum",)).sum
    assert all(map(math.isfinite, (fitted.word, fitted.sentence)))
    with pytest.raises(ValueError, match="must see the true length of at least one blank, but sees none"):
        fit_prior([replace(each, true=99) for each in observations], PRIOR)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1))
def test_errors_are_counted_whole(pairs):
    chosen, true = zip(*pairs, strict=True)
    errors = LengthErrors.of(chosen, true)
    assert sum(errors.histogram.values()) == errors.n == len(pairs)
    assert errors.mean == pytest.approx(sum(int(e) * count for e, count in errors.histogram.items()) / len(pairs))
    for most, share in enumerate(errors.within):
        near = sum(count for error, count in errors.histogram.items() if abs(int(error)) <= most)
        assert share == pytest.approx(near / len(pairs))


# A whole calibration


def run(home: Path, output: Path) -> Calibration:
    return calibrate(
        data=home / "data.json",
        model=home / "model",
        output=output,
        features=Features.load(home / "features.npy", home / "ids.json"),
        settings=CalibrationSettings(split="train", num_rounds=1, num_beams=2),
    )


@pytest.fixture(scope="module")
def calibrated(home: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Calibration, Path]:
    output = tmp_path_factory.mktemp("calibrated")
    return run(home, output), output


def test_what_was_fitted_is_written_with_what_it_was_fitted_on(calibrated):
    result, output = calibrated
    assert load_length_prior(output) == result.prior
    assert result.prior != LengthPrior(sentence_counts=result.prior.sentence_counts)
    assert set(result.before) == set(result.after) == {25, 50, 75}
    assert all(errors.n == 3 for errors in result.after.values())  # three training pictures
    assert sum(result.prior.sentence_counts) == 9  # with three captions each
    told = json.loads((output / LENGTHS).read_text())["fitted"]
    assert told["settings"]["split"] == "train"
    assert told["length_errors"]["50"]["mean"] == result.after[50].mean


def test_slices_do_not_change_the_fit(home, tmp_path, monkeypatch, calibrated):
    whole, _ = calibrated
    monkeypatch.setattr(calibration_module, "SLICE", 4)
    parts = run(home, tmp_path)
    for kind in ("sum", "forward", "join"):
        assert asdict(getattr(parts.prior, kind)) == pytest.approx(asdict(getattr(whole.prior, kind)), rel=1e-2)


def test_a_model_directory_carries_its_prior(home):
    assert load_length_prior(home / "model") == UNFITTED
    assert Infiller.from_pretrained(home / "model").length_prior == UNFITTED
    prior = LengthPrior(sum=LengthWeights(2.0, 0.5), sentence_counts=(0, 3, 4))
    save_length_prior(home / "model", prior)
    try:
        assert Infiller.from_pretrained(home / "model").length_prior == prior
    finally:
        (home / "model" / LENGTHS).unlink()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"sum": 3.0}, "`sum` must hold `word` and `sentence`, but is 3.0"),
        ({"max": {"word": 1.0}}, "`max` must hold `word` and `sentence`, but is {'word': 1.0}"),
        ({"sum": {"word": "much", "sentence": 1.0}}, "`word` must be a finite number, but is 'much'"),
        ({"sentence_counts": [1, 2.5]}, "`sentence_counts` must be whole numbers from 0, but hold 2.5"),
        ({"sentence_counts": 7}, "`sentence_counts` must be a list, but is 7"),
    ],
)
def test_a_broken_prior_is_named(tmp_path, change, line):
    save_length_prior(tmp_path, UNFITTED, details=change)
    with pytest.raises(ValueError, match=r"lengths\.json: ") as error:
        load_length_prior(tmp_path)
    assert line in str(error.value)
    assert "\n" not in str(error.value)
    (tmp_path / LENGTHS).write_text("{}")
    with pytest.raises(ValueError, match=r"lengths\.json: `sum` must hold `word` and `sentence`, but is None"):
        load_length_prior(tmp_path)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--split", "test"], "`--split` must not be 'test': nothing is tuned on what results are reported on"),
        (["--split", "val"], "has no split 'val', only test, train"),
        (["--split", "train", "--removed", ""], "`--removed` must be at least one percentage, but are none"),
        (["--split", "train", "--removed", "0"], "`--removed` must be a whole percentage from 1 to 99, but is 0"),
        (["--split", "train", "--limit", "0"], "`--limit` must be at least 1, but is 0"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(home, monkeypatch, capsys, options, line):
    arguments = ["calibrate", "--model", str(home / "model"), "--data", str(home / "data.json"), "--workers", "1"]
    monkeypatch.setattr("sys.argv", ["bibs", *arguments, *options])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1
    assert not (home / "model" / LENGTHS).exists()


def test_the_command_says_what_it_measured(home, tmp_path, monkeypatch, capsys):
    arguments = [
        "--model",
        home / "model",
        "--data",
        home / "data.json",
        "--split",
        "train",
        "--workers",
        1,
        "--limit",
        1,
    ]
    monkeypatch.setattr("sys.argv", ["bibs", "calibrate", *map(str, [*arguments, "--output", tmp_path])])
    with pytest.raises(SystemExit) as caught:
        main()
    assert not caught.value.code
    said = capsys.readouterr().out
    assert "Fitted weights" in said
    assert str(tmp_path / LENGTHS) in said.replace("\n", "")
    assert (tmp_path / LENGTHS).exists()


# What an evaluation says of lengths


def test_an_evaluation_reports_the_lengths_that_were_chosen(home, tmp_path, monkeypatch):
    pytest.importorskip("pycocoevalcap", reason="needs the eval extra: pip install '.[eval]'")
    pytest.importorskip("matplotlib", reason="needs the eval extra: pip install '.[eval]'")

    def refuse(pairs: object) -> None:
        raise NoMeteorError("no Java")

    monkeypatch.setattr(results_module, "count_matches", refuse)
    told = CaptionSettings(methods="forward,bibs", lengths=("known", "unknown"), removed=(50,), num_rounds=1)

    def evaluate() -> Finished:
        infiller = Infiller.from_pretrained(home / "model")
        return evaluate_captions(infiller, home / "data.json", output=tmp_path / "out", settings=told)

    finished = evaluate()
    for row in finished.results.rows:
        assert ("length_errors" in row) == (row["lengths"] == "unknown")
        if row["lengths"] == "unknown":
            cell = finished.run.cells[1]
            (method,) = (method for method in finished.run.methods if method.key == row["method"])
            errors = [len(each.fill.split()) - len(each.truth.split()) for each in finished.run.of(cell, method)]
            assert row["length_errors"]["mean"] == pytest.approx(sum(errors) / len(errors))
            assert row["length_errors"]["histogram"][str(errors[0])] == errors.count(errors[0])
    assert "Chosen lengths, unknown length" in (tmp_path / "out" / "table.md").read_text()
    assert "CIDEr / known" in (tmp_path / "out" / "report.html").read_text()
    assert (tmp_path / "out" / "plots" / "lengths-unknown.png").exists()
    # Another prior would give other lengths: such a run does not go on.
    save_length_prior(home / "model", LengthPrior(sum=LengthWeights(9.0, 0.0)))
    try:
        with pytest.raises(ValueError, match="cannot go on with other settings: `length_prior` was"):
            evaluate()
    finally:
        (home / "model" / LENGTHS).unlink()


def test_a_candidate_is_chosen_as_a_search_would():
    each = Observation(50, 3, 2, (1, 2, 3), {"join": (-1.0, -2.0, -9.0), "sum": (-5.0, -4.0, 0.0)})
    prior = LengthPrior(sum=LengthWeights(0.0, 0.0), join=LengthWeights(0.0, 0.0))
    assert each.chosen("sum", prior, 3) == 3
    assert each.chosen("sum", prior, 2) == 2
    assert each.chosen("sum", prior, 1) == 1
