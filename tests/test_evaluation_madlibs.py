"""The Madlibs experiment on a tiny pair: retrieval beside search, the official layout, sentences to train on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bibs.data import Features, Madlib, read_captions
from bibs.evaluation import experiment as experiment_module
from bibs.evaluation import results as results_module
from bibs.evaluation.experiment import Finished
from bibs.evaluation.madlibs import MadlibsSettings, evaluate_madlibs, write_captions
from bibs.evaluation.meteor import NoMeteorError
from bibs.evaluation.tasks import split_by_picture
from bibs.infiller import Infiller
from tiny_captions import SIZE, make_home

pytest.importorskip("pycocoevalcap", reason="needs the eval extra: pip install '.[eval]'")

ANSWERS = ["rides", "sits on", "in"]
NUM_MADLIBS = 60


def refuse(pairs: object) -> None:
    raise NoMeteorError("no Java")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Madlibs whose picture tells the answer, in both layouts."""
    home = make_home(tmp_path_factory.mktemp("home"))
    generator = np.random.default_rng(0)
    kinds = generator.integers(len(ANSWERS), size=NUM_MADLIBS)
    centres = 4 * generator.normal(size=(len(ANSWERS), SIZE))
    np.save(home / "pictures.npy", (centres[kinds] + generator.normal(size=(NUM_MADLIBS, SIZE))).astype(np.float32))
    (home / "pictures.json").write_text(json.dumps([100 + k for k in range(NUM_MADLIBS)]))
    (home / "boxes.json").write_text(json.dumps(list(range(NUM_MADLIBS))))
    splits = ["train"] * 40 + ["val"] * 10 + ["test"] * 10
    lines = [
        {"id": k, "image_id": 100 + k, "type": 12, "split": splits[k], "left": "The man", "right": "the red mat."}
        | {"blank": ANSWERS[kind]}
        for k, kind in enumerate(kinds)
    ]
    (home / "type12.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    official = [
        {"image_id": 100 + k, "prompt": ["The man", "the mat."], "fitbs": [ANSWERS[kind], "in", "on"]}
        for k, kind in enumerate(kinds)
    ]
    (home / "tr_object_affordances.json").write_text(json.dumps({"tr_object_affordances": official}))
    return home


def evaluate(home: Path, output: Path, data: str = "type12.jsonl", **changes: object) -> Finished:
    settings = MadlibsSettings(**{"methods": "forward,bibs,ncca,ncca-box", "num_rounds": 1, **changes})  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results_module, "count_matches", refuse)
        patch.setattr(experiment_module, "write_outputs", lambda *_, **__: None)
        return evaluate_madlibs(
            Infiller.from_pretrained(home / "model"),
            home / data,
            output=output,
            features=Features.load(home / "pictures.npy", home / "pictures.json"),
            box_features=Features.load(home / "pictures.npy", home / "boxes.json"),
            settings=settings,
        )


@pytest.fixture(scope="module")
def finished(home: Path) -> Finished:
    return evaluate(home, home / "out")


def test_retrieval_finds_the_answer_that_the_picture_tells(finished: Finished) -> None:
    (cell,) = finished.run.cells
    for method in finished.run.methods[-2:]:
        assert method.key in ("ncca", "ncca-box")
        found = finished.run.of(cell, method)
        assert sum(each.fill == each.truth for each in found) >= 9
        assert all(each.fill in ANSWERS for each in found)
        assert all(each.score == pytest.approx(each.forward_score + each.backward_score) for each in found)


def test_rows_and_comparisons_hold_every_method(finished: Finished) -> None:
    assert [row["method"] for row in finished.results.rows] == ["forward", "bibs", "ncca", "ncca-box"]
    assert {row["task"] for row in finished.results.rows} == {"madlibs-12"}
    assert {row["removed"] for row in finished.results.rows} == {None}
    assert {row["n"] for row in finished.results.rows} == {10}
    others = {each["other"] for each in finished.results.comparisons}
    assert others == {"forward", "ncca", "ncca-box"}
    assert any("chosen on val" in note for note in finished.results.notes)


def test_the_official_layout_is_split_by_picture_and_evaluated(home: Path, tmp_path: Path) -> None:
    found = evaluate(home, tmp_path / "out", data="tr_object_affordances.json", type=7, methods="bibs,ncca")
    assert {row["task"] for row in found.results.rows} == {"madlibs-7"}
    with pytest.raises(ValueError, match="holds type 7"):
        evaluate(home, tmp_path / "other", data="tr_object_affordances.json")


def test_all_madlibs_of_a_picture_share_a_split_and_given_splits_stay() -> None:
    madlibs = [Madlib(k, k // 3, 7, "train", "a", "b", ("c",)) for k in range(600)]
    split = split_by_picture(madlibs)
    assert [madlib.id for madlib in split] == list(range(600))
    by_picture: dict[int, set[str]] = {}
    for madlib in split:
        by_picture.setdefault(madlib.image_id, set()).add(madlib.split)
    assert all(len(splits) == 1 for splits in by_picture.values())
    counts = [sum("train" in s for s in by_picture.values()), sum("test" in s for s in by_picture.values())]
    assert 140 <= counts[0] <= 180
    assert 10 <= counts[1] <= 32
    given = [Madlib(1, 1, 7, "train", "a", "b", ("c",)), Madlib(2, 2, 7, "test", "a", "b", ("c",))]
    assert split_by_picture(given) == given


def test_sentences_to_train_on_can_be_read_as_captions(home: Path, tmp_path: Path) -> None:
    counts = write_captions(home / "type12.jsonl", tmp_path / "captions.jsonl", type=12)
    assert counts == {"train": 40, "val": 10, "test": 10}
    first = next(read_captions(tmp_path / "captions.jsonl", split="test"))
    assert first.image_id == 150
    assert first.captions[0][:2] == ("the", "man")
    assert first.captions[0][-2:] == ("red", "mat")


def test_bad_inputs_are_named_in_one_line(home: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`lengths` must be among known, paper, unknown, but hold 'short'"):
        evaluate(home, tmp_path / "a", lengths=("short",))
    with pytest.raises(ValueError, match=r"`methods` must be among all, .*, but hold 'ncca'"):
        evaluate_madlibs(
            Infiller.from_pretrained(home / "model"),
            home / "type12.jsonl",
            output=tmp_path / "c",
            settings=MadlibsSettings(methods="ncca"),
        )
    assert not list(tmp_path.iterdir())
