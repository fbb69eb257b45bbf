"""Training on tiny made-up captions: a kill changes nothing, bad input is one line, and the models do learn."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from bibs.cli.eval import app as eval_app
from bibs.data import Features
from bibs.evaluation.nll import evaluate_likelihood
from bibs.models import kind, storage
from bibs.models.directory import load_pair
from bibs.models.nade import load_nade
from bibs.text import Vocabulary
from bibs.training import FeatureFiles, Report, Sources, TrainingSettings, train, train_nade
from bibs.training import loop as training_loop
from bibs.training.batches import epoch_batches, make_batch
from bibs.training.corpus import read_corpus
from bibs.training.loop import Run, train_direction
from bibs.training.normalisation import SPREAD, count_normalisation

ANIMALS = ("cat", "dog", "horse", "bird")
PLACES = ("mat", "chair", "field", "roof", "boat")
SETTINGS = TrainingSettings(
    hidden_size=12, embedding_size=8, cutoffs=(6, 10), epochs=3, batch_size=8, warmup_steps=2, dropout=0.2
)


class Killed(BaseException):
    """Stands for a kill: nothing in the code may catch it."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """Captions of pictures whose vector says which animal they show."""
    folder = tmp_path_factory.mktemp("data")
    draw = random.Random(0)
    images, vectors = [], []
    for image_id in range(40):
        animal = draw.randrange(len(ANIMALS))
        captions = [_caption(draw, ANIMALS[animal]) for _ in range(2)]
        images.append(
            {
                "cocoid": image_id,
                "filename": f"{image_id}.jpg",
                "split": "val" if image_id % 5 == 4 else "restval" if image_id % 5 == 3 else "train",
                "sentences": [{"raw": caption, "tokens": caption.split()} for caption in captions],
            }
        )
        vectors.append(4 * np.eye(len(ANIMALS), 6)[animal] + 0.01 * image_id / 40)
    (folder / "captions.json").write_text(json.dumps({"images": images}))
    (folder / "text.txt").write_text("\n".join(_caption(draw, draw.choice(ANIMALS)) for _ in range(20)) + "\n")
    np.save(folder / "vectors.npy", np.array(vectors, dtype=np.float16))
    (folder / "ids.json").write_text(json.dumps(list(range(40))))
    features = FeatureFiles(folder / "vectors.npy", folder / "ids.json")
    return Sources((folder / "captions.json",), (folder / "text.txt",), features, min_count=2)


def _caption(draw: random.Random, animal: str) -> str:
    colour = draw.choice(["", "black ", "small brown "])
    return f"a {colour}{animal} sits on the {draw.choice(PLACES)}"


def make_run(sources: Sources, folder: Path, settings: TrainingSettings = SETTINGS, **changes: object) -> Run:
    assert sources.features is not None
    features = sources.features.load()
    corpus = read_corpus(sources.data, sources.texts, features=features, min_count=sources.min_count)
    folder.mkdir(exist_ok=True)
    config = settings.model_config(vocab_size=len(corpus.vocabulary), condition_size=features.size)
    run = Run("backward", settings, config, corpus.train, corpus.val, folder, name="settings a, vocabulary b")
    return replace(run, checkpoint_seconds=0.0, report_seconds=0.0, **changes)  # type: ignore[arg-type]


def features_of(sources: Sources) -> Features:
    assert sources.features is not None
    return sources.features.load()


def weights(path: Path) -> dict[str, torch.Tensor]:
    return storage.load_tensors(path)


def same(left: Path, right: Path) -> bool:
    first, second = weights(left), weights(right)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


# -- a kill changes nothing --


@pytest.fixture(scope="module")
def whole(sources: Sources, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that nothing has stopped."""
    run = make_run(sources, tmp_path_factory.mktemp("whole") / "run")
    train_direction(run, features_of(sources))
    return run


@pytest.mark.parametrize("changes", [{"cell": "lstm"}, {"cell": "gru"}, {"embedding_size": 12, "tied": True}])
def test_a_run_stopped_at_any_steps_ends_with_the_same_weights_to_the_last_bit(
    sources: Sources, tmp_path: Path, changes: dict[str, object]
) -> None:
    settings = replace(SETTINGS, **changes)  # type: ignore[arg-type]
    whole = make_run(sources, tmp_path / "whole", settings)
    expected = train_direction(whole, features_of(sources))
    assert expected.step == whole.total_steps
    broken = make_run(sources, tmp_path / "broken", settings)
    draw = random.Random(1)
    stops = {*draw.sample(range(1, broken.total_steps), 6), broken.steps_per_epoch}
    for stop in sorted(stops):

        def kill(report: Report, stop: int = stop) -> None:
            if report.step >= stop:
                raise Killed

        with pytest.raises(Killed):
            train_direction(broken, features_of(sources), kill)
    progress = train_direction(broken, features_of(sources))
    assert progress.val_losses == expected.val_losses
    assert same(whole.checkpoint, broken.checkpoint)
    assert same(whole.best, broken.best)


def test_a_weight_that_no_batch_has_used_yet_survives_a_kill(sources: Sources, tmp_path: Path) -> None:
    # Without text and without withheld pictures the learnt "no picture" input has no gradient.
    pictured = replace(sources, texts=())
    settings = replace(SETTINGS, picture_dropout=0.0, epochs=2)
    whole = make_run(pictured, tmp_path / "whole", settings)
    train_direction(whole, features_of(sources))
    broken = make_run(pictured, tmp_path / "broken", settings)

    def kill(report: Report) -> None:
        if report.step == 3:
            raise Killed

    with pytest.raises(Killed):
        train_direction(broken, features_of(sources), kill)
    train_direction(broken, features_of(sources))
    assert same(whole.checkpoint, broken.checkpoint)


@pytest.mark.parametrize("call", [1, 2, 5, 13])
def test_a_kill_in_the_middle_of_a_write_loses_nothing(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Run, call: int
) -> None:
    broken = make_run(sources, tmp_path / "broken")
    calls = 0
    replace_file = os.replace

    def kill(source: Path, target: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise Killed
        replace_file(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(storage.os, "replace", kill)
        with pytest.raises(Killed):
            train_direction(broken, features_of(sources))
    train_direction(broken, features_of(sources))
    assert same(whole.best, broken.best)
    assert same(whole.checkpoint, broken.checkpoint)


@pytest.mark.slow
def test_kill_9_of_the_command_loses_nothing(sources: Sources, tmp_path: Path) -> None:
    assert sources.features is not None
    arguments = f"--data {sources.data[0]} --text {sources.texts[0]} --features {sources.features.vectors} "
    arguments += f"--feature-ids {sources.features.ids} --min-count 2 --hidden 12 --embedding 8 --cutoffs 6,10 "
    arguments += "--epochs 10 --batch-size 8 --patience 0 --checkpoint-every 0"
    settings = TrainingSettings(hidden_size=12, embedding_size=8, cutoffs=(6, 10), epochs=10, batch_size=8, patience=0)
    train(sources, settings, tmp_path / "whole", in_parallel=False)

    output = tmp_path / "killed"
    command = [
        sys.executable,
        "-c",
        "from bibs.cli import main; main()",
        "train",
        *arguments.split(),
        "--output",
        str(output),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and process.poll() is None:
        if (output / "training" / "checkpoint-forward.safetensors").exists():
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "training was over before it could be killed"
    assert not (output / "model-card.md").exists()  # which is written last
    train(sources, settings, output, resume=True, in_parallel=False)
    for name in ("forward", "backward"):
        assert same(tmp_path / "whole" / f"{name}.safetensors", output / f"{name}.safetensors")
    assert not list((output / "training").glob(".*"))


@pytest.mark.slow
def test_what_goes_wrong_in_a_worker_is_one_line_of_the_command(sources: Sources, tmp_path: Path) -> None:
    reckless = replace(SETTINGS, learning_rate=1e30, clip_norm=1e30)  # the loss becomes NaN in the worker
    with pytest.raises(ValueError, match="try a lower `learning_rate`") as error:
        train(sources, reckless, tmp_path / "model")
    one_line(error)


# -- batches --


def test_an_epoch_holds_every_caption_once_in_batches_of_like_length(sources: Sources, tmp_path: Path) -> None:
    captions = make_run(sources, tmp_path / "run").train
    for epoch in (0, 1):
        batches = epoch_batches(captions, 8, seed=3, epoch=epoch)
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(captions)))
        spreads = [np.ptp(captions.lengths[rows]) for rows in batches]
        assert sum(spreads) <= np.ptp(captions.lengths)
    assert [rows.tolist() for rows in batches] != [
        rows.tolist() for rows in epoch_batches(captions, 8, seed=3, epoch=0)
    ]
    assert [rows.tolist() for rows in batches] == [
        rows.tolist() for rows in epoch_batches(captions, 8, seed=3, epoch=1)
    ]


def test_a_batch_reads_backwards_and_withholds_pictures(sources: Sources, tmp_path: Path) -> None:
    captions = make_run(sources, tmp_path / "run").train
    features = features_of(sources)
    rows = np.array([0, 1, len(captions) - 1])
    withheld = np.array([True, False, False])
    forward = make_batch(captions, rows, reverse=False, features=features)
    backward = make_batch(captions, rows, reverse=True, features=features, withheld=withheld)
    lengths = captions.lengths[rows]
    assert forward.count == backward.count == lengths.sum() - 3
    for row, length in enumerate(lengths):
        assert forward.tokens[row, :length].tolist() == backward.tokens[row, :length].flip(0).tolist()
    assert forward.conditions is not None
    assert backward.conditions is not None
    assert [one is None for one in forward.conditions] == [False, False, True]  # the last is text alone
    assert [one is None for one in backward.conditions] == [True, False, True]
    np.testing.assert_array_equal(backward.conditions[1], features[captions.image_ids[0]])


# -- the model that comes out --


def test_training_learns_the_captions_and_their_pictures(sources: Sources, tmp_path: Path) -> None:
    settings = replace(SETTINGS, epochs=40, batch_size=16, hidden_size=32, learning_rate=0.03, dropout=0.0, patience=0)
    seen: list[Report] = []
    result = train(sources, settings, tmp_path / "model", in_parallel=False, report=seen.append, command=["bibs"])
    for one in (result.forward, result.backward):
        assert one.val_loss < 1.0
        assert one.val_loss < one.val_loss_without_pictures - 0.05  # the picture tells the animal
        assert one.val_loss == min(one.val_losses)
    assert result.train_captions == 84
    assert result.train_captions_with_pictures == 64
    forward, _ = load_pair(tmp_path / "model")
    words = Vocabulary.load(tmp_path / "model" / "vocabulary.txt")
    picture = features_of(sources)[0]
    context = words.encode(["<start>", "a"])
    log_probs = forward.start([context], [picture])[0][0]
    assert log_probs.exp().sum() == pytest.approx(1, abs=1e-5)
    measured = evaluate_likelihood(tmp_path / "model", sources.data[0], features=features_of(sources))
    for name in ("forward", "backward"):  # weights are float16 on disk
        assert getattr(measured, name).with_pictures == pytest.approx(getattr(result, name).val_loss, abs=5e-3)
        assert getattr(measured, name).without_pictures == pytest.approx(
            getattr(result, name).val_loss_without_pictures, abs=5e-3
        )
    assert measured.unknown_share == result.unknown_share
    card = (tmp_path / "model" / "model-card.md").read_text()
    assert f"{result.forward.val_loss:.3f}" in card
    assert str(tmp_path) not in card


def test_the_likelihood_is_that_of_stepping_through_every_caption(sources: Sources, tmp_path: Path) -> None:
    train(sources, SETTINGS, tmp_path / "model", in_parallel=False)
    forward, backward = load_pair(tmp_path / "model")
    words = Vocabulary.load(tmp_path / "model" / "vocabulary.txt")
    features = features_of(sources)
    assert sources.features is not None
    runner = CliRunner()
    options = f"nll --model {tmp_path / 'model'} --data {sources.data[0]} --features {sources.features.vectors} "
    options += f"--feature-ids {sources.features.ids} --split val --json"
    found = json.loads(runner.invoke(eval_app, options.split()).stdout)
    total, count = {"forward": 0.0, "backward": 0.0}, 0
    for image in json.loads(sources.data[0].read_text())["images"]:
        if image["split"] != "val":
            continue
        for sentence in image["sentences"]:
            tokens = [words.start, *words.encode(sentence["tokens"]), words.end]
            picture = [features[image["cocoid"]]]
            for name, model, order in (("forward", forward, 1), ("backward", backward, -1)):
                first, *rest = tokens[::order]
                log_probs, state, _ = model.start([[first]], picture)
                for token in rest:
                    total[name] -= log_probs[0, token].item()
                    log_probs, state = model.step(torch.tensor([token]), state)
            count += len(tokens) - 1
    assert found["tokens"] == count
    for name, score in total.items():
        assert found[name]["with_pictures"] == pytest.approx(score / count, abs=1e-4)


def test_early_stopping_keeps_the_best_weights(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([3.0, 2.0, 2.5, 2.6, 1.0])
    monkeypatch.setattr(training_loop, "mean_loss", lambda *_, **__: next(losses))
    run = make_run(sources, tmp_path / "run", replace(SETTINGS, epochs=5, patience=2))
    progress = train_direction(run, features_of(sources))
    assert progress.val_losses == (3.0, 2.0, 2.5, 2.6)
    assert progress.best_epoch == 1
    short = make_run(sources, tmp_path / "short", replace(SETTINGS, epochs=5, patience=2))

    def kill(report: Report) -> None:
        if len(report.val_losses) == 2:
            raise Killed

    monkeypatch.setattr(training_loop, "mean_loss", lambda *_, **__: -time.monotonic())  # always better
    with pytest.raises(Killed):
        train_direction(short, features_of(sources), kill)
    assert same(run.best, short.best)  # the weights after the second epoch


def test_the_learning_rate_climbs_and_then_falls_to_nothing() -> None:
    settings = replace(SETTINGS, learning_rate=1.0, warmup_steps=9)
    rates = [settings.learning_rate_at(step, 100) for step in range(100)]
    top = rates.index(max(rates))
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert 5 <= top <= 10
    assert 0 < rates[-1] < 0.02


# -- pictures: their mean is taken away --


def test_mean_and_spread_are_those_of_the_training_pictures_each_counted_once(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bibs.training.normalisation._CHUNK", 7)
    assert sources.features is not None
    named = replace(sources, features=replace(sources.features, encoder="some-encoder"))
    train(named, replace(SETTINGS, epochs=1), tmp_path / "model", in_parallel=False)
    shown = [image_id for image_id in range(40) if image_id % 5 != 4]
    vectors = np.load(sources.features.vectors)[shown].astype(np.float64)  # (32, 6)
    spread = np.sqrt(np.square(vectors - vectors.mean(0)).mean())
    for model in load_pair(tmp_path / "model"):
        np.testing.assert_allclose(model.condition_mean, vectors.mean(0), rtol=1e-3)  # float16 on disk
        np.testing.assert_allclose(model.condition_scale, SPREAD / spread, rtol=1e-3)
        assert model.config.encoder == "some-encoder"
    first = tmp_path / "model"
    train(named, replace(SETTINGS, epochs=1), tmp_path / "second", init=first, in_parallel=False)
    assert load_pair(tmp_path / "second")[0].config.encoder == "some-encoder"


def test_vectors_of_another_encoder_are_learnt_anew_beside_words_that_are_kept(
    sources: Sources, tmp_path: Path
) -> None:
    assert sources.features is not None
    first, second = tmp_path / "first", tmp_path / "second"
    train(replace(sources, features=replace(sources.features, encoder="one")), SETTINGS, first, in_parallel=False)
    np.save(tmp_path / "wide.npy", np.random.default_rng(0).random((40, 7)) + 5)
    wide = replace(sources, features=replace(sources.features, vectors=tmp_path / "wide.npy", encoder="other"))
    train(wide, replace(SETTINGS, epochs=1, learning_rate=1e-9), second, init=first, in_parallel=False)
    for before, after in zip(load_pair(first), load_pair(second), strict=True):
        assert (after.config.encoder, after.config.condition_size) == ("other", 7)
        np.testing.assert_allclose(after.embedding.weight.detach(), before.embedding.weight.detach(), atol=1e-3)
        shown = [image_id for image_id in range(40) if image_id % 5 != 4]
        np.testing.assert_allclose(after.condition_mean, np.load(tmp_path / "wide.npy")[shown].mean(0), rtol=1e-2)


def test_pictures_that_do_not_differ_are_left_in_their_scale() -> None:
    features = Features(np.full((3, 2), 4.0, dtype=np.float32), [1, 2, 3])
    normalisation = count_normalisation(features, [1, 3])
    assert normalisation.mean.tolist() == [4, 4]
    assert normalisation.scale == 1


def told_apart(own: Features, other: np.ndarray, train: int) -> tuple[np.ndarray, np.ndarray]:
    """Which vectors are refused that were not trained on, and which of the other kind."""
    ids = list(own)
    normalisation = count_normalisation(own, ids[:train])
    assert normalisation.axes is not None
    axes, mean = torch.from_numpy(normalisation.axes).half().float(), torch.from_numpy(normalisation.mean)
    pair = (own.rows(ids[train:]), other)
    right, wrong = (kind.of_another_kind(axes, mean, torch.from_numpy(rows)).numpy() for rows in pair)
    return right, wrong


def test_vectors_of_another_encoder_are_told_by_axes_of_the_own_ones_alone() -> None:
    draw = np.random.default_rng(0)
    causes = draw.normal(size=(1500, 40))  # what is in the pictures
    first, second = (np.maximum(causes @ draw.normal(size=(40, 500)), 0).astype(np.float32) for _ in range(2))
    right, wrong = told_apart(Features(first, range(1500)), second, 1200)
    assert not right.any()
    assert wrong.all()


def test_vectors_that_fill_all_directions_alike_have_no_axes() -> None:
    noise = np.random.default_rng(0).random((1100, 500)).astype(np.float32)
    assert count_normalisation(Features(noise, range(1100)), range(1100)).axes is None
    assert count_normalisation(Features(noise[:, :40], range(1100)), range(1100)).axes is None


@pytest.mark.slow
def test_real_vectors_of_the_two_encoders_are_told_apart() -> None:
    coco = Path(os.environ.get("BIBS_DATA", "")) / "coco"
    if not (coco / "features_efficientnet_lite2_rms.npy").exists():
        pytest.skip("BIBS_DATA does not name the folder of real data")
    first = np.load(coco / "features_efficientnet_lite0.npy", mmap_mode="r")[:5000].astype(np.float32)
    second = np.load(coco / "features_efficientnet_lite2_rms.npy", mmap_mode="r")[:5000].astype(np.float32)
    for own, other in ((first, second), (second, first)):
        right, wrong = told_apart(Features(own, range(5000)), other, 4000)
        assert not right.any()
        assert wrong.mean() > 0.99


# -- several files of captions --


def test_several_data_files_are_one_corpus_and_may_share_pictures(sources: Sources, tmp_path: Path) -> None:
    more = tmp_path / "more.json"
    again = {"raw": "a cat sits on a sofa"}
    images = [{"cocoid": image_id, "filename": "", "split": "train", "sentences": [again]} for image_id in (0, 1, 99)]
    more.write_text(json.dumps({"images": images}))
    features = Features(np.zeros((41, 2), dtype=np.float32), [*range(40), 99])
    one = read_corpus(sources.data, features=features, min_count=1)
    two = read_corpus((*sources.data, more), features=features, min_count=1)
    assert len(two.train) == len(one.train) + 3
    assert len(two.train.image_ids) == len(one.train.image_ids) + 1
    assert [two.train.image_id(row) for row in range(len(one.train), len(two.train))] == [0, 1, 99]
    assert len(two.val) == len(one.val)
    assert "sofa" in two.vocabulary.words
    images[2]["cocoid"] = 4  # a picture of the first file's val
    more.write_text(json.dumps({"images": images}))
    with pytest.raises(ValueError, match="every picture in one split, but 4 is in val and train") as error:
        read_corpus((*sources.data, more), features=features)
    one_line(error)


# -- averaged weights --


def test_the_average_is_that_of_the_weights_after_each_step(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(SETTINGS, ema_decay=0.9, epochs=1)
    run = make_run(sources, tmp_path / "run", settings)
    seen: list[dict[str, torch.Tensor]] = []
    step = training_loop._train_step

    def watched(run: Run, model: torch.nn.Module, *rest: object) -> tuple[float, int]:
        if not seen:
            seen.append(copy.deepcopy(model.state_dict()))
        result = step(run, model, *rest)  # type: ignore[arg-type]
        seen.append(copy.deepcopy(model.state_dict()))
        return result

    monkeypatch.setattr(training_loop, "_train_step", watched)
    train_direction(run, features_of(sources))
    expected = seen[0]
    for number, after in enumerate(seen[1:]):
        kept = min(0.9, (1 + number) / (10 + number))
        expected = {name: kept * expected[name] + (1 - kept) * after[name] for name in after}
    torch.testing.assert_close(weights(run.best), expected)


def test_averaged_training_with_dropped_weights_resumes_to_the_last_bit(sources: Sources, tmp_path: Path) -> None:
    settings = replace(SETTINGS, ema_decay=0.9, weight_dropout=0.3, word_dropout=0.2)
    whole = make_run(sources, tmp_path / "whole", settings)
    expected = train_direction(whole, features_of(sources))
    broken = make_run(sources, tmp_path / "broken", settings)
    for stop in (3, broken.steps_per_epoch, broken.steps_per_epoch + 4):

        def kill(report: Report, stop: int = stop) -> None:
            if report.step >= stop:
                raise Killed

        with pytest.raises(Killed):
            train_direction(broken, features_of(sources), kill)
    assert train_direction(broken, features_of(sources)).val_losses == expected.val_losses
    assert same(whole.checkpoint, broken.checkpoint)
    assert same(whole.best, broken.best)


# -- bad input: one line, nothing half-written --


def one_line(error: pytest.ExceptionInfo[ValueError]) -> None:
    assert "\n" not in str(error.value)


def test_pictures_without_features_are_named_and_counted(sources: Sources, tmp_path: Path) -> None:
    assert sources.features is not None
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps([100 + row if row in (3, 7, 11) else row for row in range(40)]))
    poor = replace(sources, features=replace(sources.features, ids=ids))
    with pytest.raises(
        ValueError,
        match=r"^`features` must hold every picture, but 3 of 40 have none: 3, 7, 11 .*--allow-missing-features",
    ) as error:
        train(poor, SETTINGS, tmp_path / "model", in_parallel=False)
    one_line(error)
    allowed = replace(poor, allow_missing_features=True)
    result = train(allowed, replace(SETTINGS, epochs=1), tmp_path / "other", in_parallel=False)
    assert result.train_captions == 84
    assert result.train_captions_with_pictures == 58


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data["images"][5].pop("sentences"), r"images\[5\] has no field `sentences`"),
        (lambda data: [image.update(split="test") for image in data["images"]], "no split `val`"),
        (lambda data: data.pop("images"), "no known layout"),
    ],
)
def test_broken_data_is_one_line(sources: Sources, tmp_path: Path, change, message: str) -> None:  # type: ignore[no-untyped-def]
    data = json.loads(sources.data[0].read_text())
    change(data)
    (tmp_path / "broken.json").write_text(json.dumps(data))
    with pytest.raises(ValueError, match=message) as error:
        train(replace(sources, data=(tmp_path / "broken.json",)), SETTINGS, tmp_path / "model", in_parallel=False)
    one_line(error)
    assert not (tmp_path / "model").exists()


def test_a_checkpoint_of_another_run_is_refused(sources: Sources, tmp_path: Path) -> None:
    output = tmp_path / "model"
    train(sources, SETTINGS, output, in_parallel=False)
    with pytest.raises(ValueError, match="--resume"):
        train(sources, SETTINGS, output, in_parallel=False)
    with pytest.raises(ValueError, match="`min_count` must be 2, as when this run began, but is 15") as error:
        train(replace(sources, min_count=15), SETTINGS, output, resume=True, in_parallel=False)
    one_line(error)
    with pytest.raises(ValueError, match="`seed` must be 0, as when this run began, but is 1"):
        train(sources, replace(SETTINGS, seed=1), output, resume=True, in_parallel=False)
    assert sources.features is not None
    np.save(tmp_path / "wide.npy", np.zeros((40, 7), dtype=np.float16))
    wide = replace(sources, features=replace(sources.features, vectors=tmp_path / "wide.npy"))
    with pytest.raises(ValueError, match="another run: `features` hold other pictures") as error:
        train(wide, SETTINGS, output, resume=True, in_parallel=False)
    one_line(error)
    shorter = tmp_path / "captions.json"
    content = json.loads(sources.data[0].read_text())
    shorter.write_text(json.dumps({"images": content["images"][1:]}))
    with pytest.raises(ValueError, match="another run: `data` or `texts` hold other captions") as error:
        train(replace(sources, data=(shorter,)), SETTINGS, output, resume=True, in_parallel=False)
    one_line(error)
    with pytest.raises(ValueError, match="`features` must be vectors of 6 numbers for this model, but have 7") as error:
        evaluate_likelihood(output, sources.data[0], features=wide.features and wide.features.load())
    one_line(error)


# -- going on from a trained model --


def test_training_goes_on_from_the_weights_words_and_shape_of_another_model(sources: Sources, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    before = train(sources, SETTINGS, first, in_parallel=False, command=["bibs", "train", "--seed", "0"])
    other = replace(SETTINGS, hidden_size=99, cell="gru", epochs=1, learning_rate=1e-9)
    after = train(
        replace(sources, min_count=30, texts=()),
        other,
        second,
        init=first,
        in_parallel=False,
        command=["bibs", "train"],
    )
    # A rate of next to nothing leaves the weights as they were, so the loss is that of the first model.
    assert after.forward.val_loss == pytest.approx(before.forward.val_loss, abs=2e-3)  # float16 on disk
    assert after.backward.val_loss == pytest.approx(before.backward.val_loss, abs=2e-3)
    assert Vocabulary.load(second / "vocabulary.txt") == Vocabulary.load(first / "vocabulary.txt")
    assert load_pair(second)[0].config == load_pair(first)[0].config
    card = (second / "model-card.md").read_text()
    assert "had been trained so" in card
    assert "--seed 0" in card


def test_what_cannot_be_gone_on_from_is_one_line(sources: Sources, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    short = replace(SETTINGS, epochs=1)
    train(sources, short, first, in_parallel=False)
    train(sources, replace(short, seed=1), second, in_parallel=False)
    third = tmp_path / "third"
    train(sources, short, third, init=first, in_parallel=False)
    with pytest.raises(ValueError, match="another run: `init` holds other weights") as error:
        train(sources, short, third, init=second, resume=True, in_parallel=False)
    one_line(error)
    with pytest.raises(ValueError, match="no model directory at") as error:
        train(sources, SETTINGS, tmp_path / "fourth", init=tmp_path / "nowhere", in_parallel=False)
    one_line(error)
    np.save(tmp_path / "wide.npy", np.zeros((40, 7), dtype=np.float16))
    assert sources.features is not None
    wide = replace(sources, features=replace(sources.features, vectors=tmp_path / "wide.npy"))
    with pytest.raises(ValueError, match="`features` must be as long as `init` reads") as error:
        train(wide, SETTINGS, tmp_path / "fourth", init=first, in_parallel=False)
    one_line(error)
    assert not (tmp_path / "fourth").exists()


def test_a_truncated_checkpoint_is_one_line(sources: Sources, tmp_path: Path) -> None:
    output = tmp_path / "model"
    train(sources, SETTINGS, output, in_parallel=False)
    path = output / "training" / "checkpoint-forward.safetensors"
    whole = path.read_bytes()
    for end in (0, 4, 100, len(whole) // 2):
        path.write_bytes(whole[:end])
        with pytest.raises(ValueError, match=r"checkpoint-forward\.safetensors") as error:
            train(sources, SETTINGS, output, resume=True, in_parallel=False)
        one_line(error)


def test_a_full_disk_is_one_line_and_keeps_the_last_checkpoint(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Run
) -> None:
    run = make_run(sources, tmp_path / "run")
    calls = 0
    sync = os.fsync

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 10:
            raise OSError(28, "No space left on device")
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(storage.os, "fsync", full)
        with pytest.raises(ValueError, match="No space left on device") as error:
            train_direction(run, features_of(sources))
    one_line(error)
    assert [file.name for file in run.folder.iterdir()] == ["checkpoint-backward.safetensors"]
    train_direction(run, features_of(sources))
    assert same(whole.best, run.best)


@pytest.fixture(scope="module")
def trained(sources: Sources, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "model"
    train(sources, replace(SETTINGS, epochs=1), folder, in_parallel=False)
    return folder


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", "{", "not valid JSON"),
        ("config.json", '{"format": 1}', "`forward` must be the configuration"),
        ("config.json", "{}", "`format` must be 1"),
        ("config.json", None, "could not be read"),
        ("backward.safetensors", "short", "not a whole safetensors file"),
        ("forward.safetensors", None, "could not be read"),
        ("vocabulary.txt", "<start>\n<end>\n<unk>\na\n", "must hold"),
    ],
)
def test_a_damaged_model_directory_is_one_line(
    sources: Sources, trained: Path, tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    output = shutil.copytree(trained, tmp_path / "model")
    (output / name).unlink()
    if content is not None:
        (output / name).write_text(content)
    with pytest.raises(ValueError, match=message) as error:
        evaluate_likelihood(output, sources.data[0])
    one_line(error)
    assert name in str(error.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("epochs", 0), ("learning_rate", 0.0), ("seed", -1), ("cell", "x"), ("ema_decay", 1.0)),
        *(("dropout", 1.0), ("weight_dropout", 1.0), ("word_dropout", -0.1)),
    ],
)
def test_a_wrong_setting_is_named(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"`{field}`"):
        replace(SETTINGS, **{field: value})  # type: ignore[arg-type]


def test_a_nade_trains_on_the_same_data_and_is_as_deaf_to_kills(sources: Sources, tmp_path: Path) -> None:
    settings = replace(SETTINGS, cutoffs=(), epochs=2)
    whole = train_nade(sources, settings, tmp_path / "whole", missing=0.4)
    assert whole.val_losses[-1] < whole.val_losses[0]

    def kill(report: Report) -> None:
        raise Killed

    with pytest.raises(Killed):
        train_nade(sources, settings, tmp_path / "killed", missing=0.4, checkpoint_seconds=0.0, report=kill)
    train_nade(sources, settings, tmp_path / "killed", missing=0.4, resume=True)
    assert same(tmp_path / "whole" / "nade.safetensors", tmp_path / "killed" / "nade.safetensors")
    model = load_nade(tmp_path / "whole")
    words = Vocabulary.load(tmp_path / "whole" / "vocabulary.txt")
    template = [words.start, *words.encode(["a"]), None, None, words.end]
    fills = model.fill([template], [features_of(sources)[0]], num_samples=3, banned=[0, 1, 2])[0]
    assert all(fill.tokens[:2] == tuple(template[:2]) for fill in fills)
    with pytest.raises(ValueError, match=r"`missing` must be 0\.4, as when this run began, but is 0\.2"):
        train_nade(sources, settings, tmp_path / "killed", missing=0.2, resume=True)


def test_a_nade_goes_on_from_a_pair_or_a_nade_with_their_words_and_shape(sources: Sources, tmp_path: Path) -> None:
    train(sources, SETTINGS, tmp_path / "pair", in_parallel=False)
    other = replace(SETTINGS, hidden_size=7, embedding_size=5, cutoffs=(), epochs=1)
    first = train_nade(sources, other, tmp_path / "first", init=tmp_path / "pair")
    assert load_nade(tmp_path / "first").config == load_pair(tmp_path / "pair")[0].config
    new = train_nade(sources, replace(SETTINGS, epochs=1), tmp_path / "new")
    assert first.val_losses[0] < new.val_losses[0]
    scarce = replace(sources, min_count=3)
    second = train_nade(scarce, other, tmp_path / "second", init=tmp_path / "first")
    assert second.val_losses[0] < first.val_losses[0]
    assert (tmp_path / "second" / "vocabulary.txt").read_bytes() == (tmp_path / "pair" / "vocabulary.txt").read_bytes()
    with pytest.raises(ValueError, match="another run: `init` holds other weights"):
        train_nade(scarce, other, tmp_path / "second", init=tmp_path / "pair", resume=True)
