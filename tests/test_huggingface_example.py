"""The example trains, goes on after a stop as if there had been none, and fills blanks by every method compared."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bibs.evaluation import METHODS, Example

pytest.importorskip("tokenizers")
FOLDER = Path(__file__).parent.parent / "examples" / "huggingface"
WORDS = ("a big dog runs on the beach", "two small dogs are running on grass", "the man sits on a red bench outside")


@pytest.fixture(scope="module")
def example():
    """The modules of the example, which import each other by name."""
    sys.path.insert(0, str(FOLDER))
    import compare
    import train_pair

    yield SimpleNamespace(train=train_pair, compare=compare)
    sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def models(example, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    data = folder / "captions.jsonl"
    rows = [{"split": split, "captions": list(WORDS)} for split in ["train"] * 4 + ["val"]]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for kinds in ("forward,backward", "fim,mlm"):
        run(example.train, data, folder / "models", kinds)
    return folder / "models"


def run(train, data, output, kinds):
    told = f"--data {data} --output {output} --kinds {kinds} --vocab-size 300 --size 8 --layers 1 --heads 2 --epochs 4"
    before, sys.argv = sys.argv, ["train_pair.py", *told.split(), "--batch-size", "6"]
    try:
        train.main()
    finally:
        sys.argv = before


def test_a_run_that_was_stopped_ends_as_one_that_was_not(example, models, tmp_path, monkeypatch):
    from transformers import AutoModelForCausalLM

    data = models.parent / "captions.jsonl"
    monkeypatch.setattr(example.train, "SAVE_EVERY", 2)
    loss_of, calls = example.train.loss_of, []

    def stops(*given, **more):
        calls.append(given)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return loss_of(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(example.train, "loss_of", stops)
        with pytest.raises(KeyboardInterrupt):
            run(example.train, data, tmp_path, "backward")
    run(example.train, data, tmp_path, "backward")
    ended, whole = (AutoModelForCausalLM.from_pretrained(each / "backward").state_dict() for each in (tmp_path, models))
    assert all(ended[name].equal(weight) for name, weight in whole.items())


def test_every_method_that_is_compared_fills_with_so_many_words(example, models, monkeypatch):
    monkeypatch.setattr(example.compare.Infiller, "from_huggingface", unchecked(example.compare.Infiller))
    before = dict(METHODS)
    try:
        names = example.compare.enter_methods(models)
        blanks = [
            Example(key, key, "", ("a",), ("big", "dog")[:length], ("runs", "on", "the", "beach"))
            for key, length in (("one", 1), ("two", 2), ("again", 2))
        ]
        for name in names:
            if name.startswith("lstm"):
                continue
            fill = METHODS[name][1]
            found = fill(SimpleNamespace(seed=0), blanks, 3, "known")
            if name != "fim-samples":  # bytes at random may make white space
                assert [len(answer.fill.split()) for answer in found] == [1, 2, 2], name
                assert found[1].fill == found[2].fill
            if name not in example.compare.KNOWN_ONLY:
                assert all(answer.fill for answer in fill(SimpleNamespace(seed=0), blanks, 3, "unknown")), name
    finally:
        METHODS.clear()
        METHODS.update(before)


def unchecked(infiller):
    """The door without a look at directions, which models that have learnt nothing do not have."""
    load = infiller.from_huggingface
    return staticmethod(lambda *given, **how: load(*given, check_direction=False, **how))


def test_the_tables_show_values_intervals_and_speed(example):
    names = example.compare.METRICS
    numbers = {**dict.fromkeys(names, 0.5), **{f"{name}_ci": [0.4, 0.7] for name in names}}
    shown = example.compare.table([{"method": "bibs", "n": 30, "seconds": 2.0, **numbers}], {"bibs": "Ours"})
    assert shown.splitlines()[-1] == "| Ours | " + " | ".join(["0.500 ± 0.150"] * 6) + " | 15.0 |"
    difference = {"metric": "CIDEr", "other": "bibs", "difference": 0.25, "difference_ci": [-0.125, 0.5]}
    assert example.compare.differences([difference], {"bibs": "Ours"}).endswith("| Ours | +0.250 | -0.125 | +0.500 |")
