"""Products of bfloat16 in training, and weights that are stored as integers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from bibs import Infiller
from bibs.models.directory import load_pair
from bibs.models.recurrent import RecurrentConfig, RecurrentModel
from bibs.models.storage import packed, unpacked
from bibs.training import Sources, TrainingSettings, train, train_nade
from bibs.training.precision import multiplies_bfloat16

SETTINGS = TrainingSettings(
    hidden_size=32,
    embedding_size=32,
    cutoffs=(8,),
    epochs=12,
    batch_size=4,
    learning_rate=0.01,
    dropout=0.0,
    patience=0,
)


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    text = tmp_path / "lines.txt"
    animals, places = ("cat", "dog", "cow", "hen"), ("roof", "bed", "hill", "bench", "boat", "wall")
    text.write_text("".join(f"a {animal} sits on the {place}\n" for animal in animals for place in places))
    return Sources((text,), min_count=1, val_share=0.2)


@cache
def needs_bfloat16() -> None:
    if not multiplies_bfloat16():
        pytest.skip("this machine ends processes that multiply bfloat16 numbers")


@pytest.mark.slow
def test_products_of_bfloat16_learn_what_those_of_float32_learn(sources: Sources, tmp_path: Path) -> None:
    needs_bfloat16()
    exact = train(sources, SETTINGS, tmp_path / "exact")
    rounded = train(sources, replace(SETTINGS, precision="bfloat16"), tmp_path / "rounded")
    for one, other in ((exact.forward, rounded.forward), (exact.backward, rounded.backward)):
        assert other.val_loss != one.val_loss
        assert other.val_loss == pytest.approx(one.val_loss, abs=0.1)
        assert other.val_loss < 0.7 * one.val_losses[0]  # and it did learn
    assert "rounded to bfloat16" in (tmp_path / "rounded" / "model-card.md").read_text()
    assert "bfloat16" not in (tmp_path / "exact" / "model-card.md").read_text()


def test_a_machine_that_cannot_multiply_them_says_so_before_anything_is_written(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bibs.training.precision.multiplies_bfloat16", lambda: False)
    for run in (train, train_nade):
        with pytest.raises(ValueError, match=r"^`precision` must be float32 on this machine, where bfloat16 ends"):
            run(sources, replace(SETTINGS, precision="bfloat16"), tmp_path / "pair")  # type: ignore[operator]
    assert not (tmp_path / "pair").exists()


@pytest.mark.parametrize("name", ["precision", "storage"])
def test_what_there_is_not_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^`{name}` must be one of float\d\d, .*, but is 'int4'$"):
        replace(SETTINGS, **{name: "int4"})  # type: ignore[arg-type]


def test_integers_and_scales_are_the_nearest_of_their_row() -> None:
    torch.manual_seed(0)
    weight = torch.randn(7, 50) * torch.logspace(-3, 3, 7)[:, None]
    stored = packed({"w": weight, "b": torch.ones(3)})
    assert stored["w"].dtype == torch.int8
    again = unpacked(stored)
    step = weight.abs().amax(1, keepdim=True) / 127
    assert bool(((again["w"] - weight).abs() <= 0.5001 * step).all())
    twice = unpacked(packed(again))
    torch.testing.assert_close(twice["w"], again["w"], rtol=1e-6, atol=0)  # what was rounded stays
    assert set(again) == {"w", "b"}


def test_a_run_that_is_stored_as_integers_is_measured_so(sources: Sources, tmp_path: Path) -> None:
    """And one that was stored otherwise is stored anew when it is resumed, which trains nothing."""
    first = train(sources, SETTINGS, tmp_path / "pair", in_parallel=False)
    sizes = [(tmp_path / "pair" / f"{name}.safetensors").stat().st_size for name in ("forward", "backward")]
    again = train(sources, replace(SETTINGS, storage="int8"), tmp_path / "pair", in_parallel=False, resume=True)
    assert again.forward.val_losses == first.forward.val_losses
    assert again.forward.val_loss != first.forward.val_loss
    assert again.forward.val_loss == pytest.approx(first.forward.val_loss, abs=0.02)
    stored = load_file(tmp_path / "pair" / "forward.safetensors")
    assert stored["embedding.weight"].dtype == torch.int8
    assert (tmp_path / "pair" / "forward.safetensors").stat().st_size < 0.75 * sizes[0]
    assert "8-bit integers" in (tmp_path / "pair" / "model-card.md").read_text()
    model, _ = load_pair(tmp_path / "pair")
    assert model.embedding.weight.dtype == torch.float32
    infiller = Infiller.from_pretrained(tmp_path / "pair")
    assert infiller("a cat _ on the bed")[0].text
    more = train(
        sources, replace(SETTINGS, epochs=1), tmp_path / "more", init=tmp_path / "pair", in_parallel=False
    )  # goes on from integers
    assert more.forward.val_loss < first.forward.val_losses[0]


def test_integers_without_scales_are_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = RecurrentConfig(vocab_size=9, hidden_size=4, embedding_size=4)
    path = tmp_path / "forward.safetensors"
    RecurrentModel(config).save(path, dtype=torch.int8)
    RecurrentModel.load(path, config)
    tensors = load_file(path)
    del tensors["output.weight.scales"]
    save_file(tensors, path)
    with pytest.raises(ValueError, match=rf"^{path}: output.weight holds integers, which must have a scale a row$"):
        RecurrentModel.load(path, config)
