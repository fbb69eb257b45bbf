"""Laws of the recurrent model, in float64; the judge is the full forward pass of the network."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bibs.models import storage
from bibs.models.recurrent import RecurrentConfig, RecurrentModel

CELLS = ("rnn", "lstm", "gru")
SHAPES = [
    RecurrentConfig(23, 8, 6, num_layers=layers, cell=cell, condition_size=size, dropout=0.3, cutoffs=cutoffs)
    for cell in CELLS
    for layers in (1, 2)
    for size in (0, 5)
    for cutoffs in ((), (4, 11))
]
ragged = st.lists(st.lists(st.integers(0, 22), min_size=1, max_size=6), min_size=1, max_size=5)


def make(config: RecurrentConfig, seed: int = 0) -> RecurrentModel:
    torch.manual_seed(seed)
    model = RecurrentModel(config).double()
    for weight in model.parameters():  # far from their small first values, so that a mistake shows
        nn.init.normal_(weight, std=0.5)
    return model.eval()


def pictures(config: RecurrentConfig, rows: int, seed: int = 1) -> list[torch.Tensor | None] | None:
    if not config.condition_size:
        return None
    vectors = torch.randn(rows, config.condition_size, generator=torch.Generator().manual_seed(seed)).double()
    return [None if row % 3 == 2 else vectors[row] for row in range(rows)]


def name(config: RecurrentConfig) -> str:
    kind = "adaptive" if config.cutoffs else "dense"
    return f"{config.cell}-{config.num_layers}-{'picture' if config.condition_size else 'text'}-{kind}"


@pytest.mark.parametrize("config", SHAPES, ids=name)
def test_stepping_equals_the_full_forward_pass(config: RecurrentConfig) -> None:
    model = make(config)
    tokens = torch.randint(config.vocab_size, (4, 7), generator=torch.Generator().manual_seed(2))
    conditions = pictures(config, 4)
    expected = model(tokens, conditions)  # (4, 7, V)
    log_probs, state, scores = model.start(tokens[:, :2].tolist(), conditions)
    torch.testing.assert_close(log_probs, expected[:, 1])
    torch.testing.assert_close(scores, expected[:, 0].gather(1, tokens[:, 1, None]).squeeze(1))
    for place in range(2, 7):
        log_probs, state = model.step(tokens[:, place], state)
        torch.testing.assert_close(log_probs, expected[:, place])
        torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(4, dtype=torch.float64))


@pytest.mark.parametrize("config", SHAPES, ids=name)
def test_scoring_given_tokens_equals_stepping_through_them(config: RecurrentConfig) -> None:
    model = make(config)
    continuations = [[3], [1, 2, 3, 20, 9, 4], [22, 12], [5, 5, 7, 0]]
    _, state, _ = model.start([[1, 2], [4], [1, 3, 5], [9, 9]], pictures(config, 4))
    before = copy.deepcopy(state)
    scores = model.score(continuations, state)
    torch.testing.assert_close(state, before, rtol=0, atol=0)
    for row, tokens in enumerate(continuations):
        alone = tuple(tuple(part[row : row + 1] for part in layer) for layer in state)
        expected = torch.zeros(1, dtype=torch.float64)
        for token, following in itertools.pairwise(tokens):
            log_probs, alone = model.step(torch.tensor([token]), alone)
            expected += log_probs[:, following]
        torch.testing.assert_close(scores[row], expected[0])


@pytest.mark.parametrize("config", SHAPES, ids=name)
def test_the_loss_sums_what_the_full_forward_pass_says_of_the_tokens_that_count(
    config: RecurrentConfig,
) -> None:
    model = make(config)
    tokens = torch.randint(config.vocab_size, (4, 6), generator=torch.Generator().manual_seed(3))
    conditions, lengths = pictures(config, 4), torch.tensor([6, 2, 3, 5])
    every = model(tokens[:, :-1], conditions).gather(2, tokens[:, 1:, None]).squeeze(2)  # (4, 5)
    total, count = model.loss(tokens, conditions=conditions)
    assert count == 20
    torch.testing.assert_close(total, -every.sum())
    total, count = model.loss(tokens, lengths, conditions)
    assert count == 12
    expected = -sum(every[row, : int(length) - 1].sum() for row, length in enumerate(lengths))
    torch.testing.assert_close(total, expected)


@pytest.mark.parametrize("config", SHAPES[1::3], ids=name)
@settings(max_examples=15, deadline=None)
@given(contexts=ragged)
def test_a_batch_equals_its_items_one_by_one(config: RecurrentConfig, contexts: list[list[int]]) -> None:
    model = make(config)
    conditions = pictures(config, len(contexts))
    log_probs, state, scores = model.start(contexts, conditions)
    after, _ = model.step(torch.zeros(len(contexts), dtype=torch.long), state)
    for row, context in enumerate(contexts):
        alone = model.start([context], conditions and [conditions[row]])
        torch.testing.assert_close(log_probs[row], alone[0][0])
        torch.testing.assert_close(scores[row], alone[2][0])
        torch.testing.assert_close(after[row], model.step(torch.zeros(1, dtype=torch.long), alone[1])[0][0])


@pytest.mark.parametrize("layers", [1, 2])
def test_the_lstm_of_training_equals_the_network_and_so_do_its_gradients(layers: int) -> None:
    model = make(RecurrentConfig(23, 8, 6, num_layers=layers, condition_size=5))
    tokens = torch.randint(6, (4, 6), generator=torch.Generator().manual_seed(5))  # words repeat
    results = []
    for training in (False, True):
        model.train(training).zero_grad()
        loss, _ = model.loss(tokens, conditions=pictures(model.config, 4))
        loss.backward()
        results.append({"loss": loss.detach()} | {name: w.grad.clone() for name, w in model.named_parameters()})
    torch.testing.assert_close(results[0], results[1])


def test_dropout_draws_one_mask_a_word_and_one_a_sentence() -> None:
    torch.manual_seed(0)
    model = make(RecurrentConfig(23, 8, 6, dropout=0.5)).train()
    hidden = model.hidden(torch.tensor([[1, 2, 3, 4]] * 3))
    dropped = hidden == 0
    assert (dropped == dropped[:, :1]).all()  # the same units at every place of a sentence
    assert not (dropped[0] == dropped[1]).all()
    assert 0 < dropped.float().mean() < 1


def test_long_contexts_scored_in_several_parts_keep_their_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(SHAPES[4])
    contexts = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10], [3, 2]]
    whole = model.start(contexts)[2]
    monkeypatch.setattr("bibs.models.decoding.SCORED_ROWS", 2)
    torch.testing.assert_close(model.start(contexts)[2], whole)


def test_adaptive_log_probs_equal_those_of_torch() -> None:
    model = make(RecurrentConfig(23, 8, 6, cutoffs=(4, 11)))
    judge = nn.AdaptiveLogSoftmaxWithLoss(8, 23, [4, 11], div_value=2.0, head_bias=True).double()
    judge.load_state_dict(model.output.state_dict())
    hidden = torch.randn(9, 8, dtype=torch.float64)
    torch.testing.assert_close(model.output.prepare().log_probs(hidden), judge.log_prob(hidden))
    targets = torch.arange(9) * 2
    torch.testing.assert_close(model.output.target_log_probs(hidden, targets), judge(hidden, targets).output)


@pytest.mark.parametrize("config", SHAPES[::5], ids=name)
def test_a_step_changes_neither_its_state_nor_an_earlier_answer(config: RecurrentConfig) -> None:
    model = make(config)
    log_probs, state, _ = model.start([[1, 2], [3, 4]], pictures(config, 2))
    before = copy.deepcopy((log_probs, state))
    first, _ = model.step(torch.tensor([5, 6]), state)
    kept = first.clone()
    model.step(torch.tensor([7, 8]), state)
    torch.testing.assert_close((log_probs, state), before, rtol=0, atol=0)
    torch.testing.assert_close(first, kept, rtol=0, atol=0)


def test_decoding_sees_new_weights_however_they_came() -> None:
    config = SHAPES[4]
    model, other = make(config), make(config, seed=9)
    contexts = [[1, 2, 3]]

    def agrees() -> bool:
        return torch.allclose(model.start(contexts)[0], model(torch.tensor(contexts))[:, -1])

    assert agrees()
    model.load_state_dict(other.state_dict())
    assert agrees()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.loss(torch.tensor([[1, 2, 3]]))[0].backward()
    optimizer.step()
    assert agrees()
    model.float()
    assert model.start(contexts)[0].dtype == torch.float32
    assert agrees()


def test_decoding_needs_no_gradient_and_no_dropout_even_in_training_mode() -> None:
    model = make(SHAPES[0])
    expected = model.start([[1, 2]])[0]
    model.train()
    log_probs = model.start([[1, 2]])[0]
    assert not log_probs.requires_grad
    torch.testing.assert_close(log_probs, expected)


def test_a_picture_changes_the_answer_and_none_takes_the_learnt_input() -> None:
    model = make(RecurrentConfig(23, 8, 6, condition_size=5))
    vector = torch.randn(2, 5, dtype=torch.float64)
    contexts = [[1, 2], [1, 2]]
    with_both = model.start(contexts, vector)[0]
    assert not torch.allclose(with_both[0], with_both[1])
    mixed = model.start(contexts, [vector[0].numpy().astype(np.float64), None])[0]
    torch.testing.assert_close(mixed[0], with_both[0])
    torch.testing.assert_close(mixed[1], model.start([[1, 2]])[0][0])


def test_a_normalised_model_reads_a_vector_as_another_reads_it_less_the_mean_times_the_scale() -> None:
    model = make(RecurrentConfig(23, 8, 6, condition_size=5))
    vectors, mean = torch.randn(2, 5, dtype=torch.float64), torch.rand(5, dtype=torch.float64)
    expected = model.start([[1, 2], [3]], (vectors - mean) * 0.4)[0]
    model.normalise(mean, 0.4)
    torch.testing.assert_close(model.start([[1, 2], [3]], vectors)[0], expected)
    torch.testing.assert_close(model(torch.tensor([[1, 2]]), vectors[:1])[:, -1], expected[:1])


def test_weights_of_an_older_model_read_pictures_as_they_come(tmp_path) -> None:  # type: ignore[no-untyped-def]
    config = RecurrentConfig(23, 8, 6, condition_size=5)
    model = make(config).float()
    older = {name: weight for name, weight in model.state_dict().items() if not name.startswith("condition_")}
    assert len(older) == len(model.state_dict()) - 2
    storage.save_tensors(tmp_path / "older.safetensors", older)
    loaded = RecurrentModel.load(tmp_path / "older.safetensors", config)
    vectors = torch.randn(3, 5)
    # To the last bit: taking away 0 and multiplying by 1 changes nothing.
    torch.testing.assert_close(loaded.first_inputs(vectors, 3), model.condition(vectors), rtol=0, atol=0)


def test_vectors_of_another_encoder_are_refused_with_the_name_of_the_right_one() -> None:
    size, axes = 200, 22
    rows = np.linalg.qr(np.random.default_rng(0).normal(size=(size, size)))[0].T  # orthonormal
    model = make(RecurrentConfig(23, 8, 6, condition_size=size, encoder="lite9", condition_axes=axes))
    model.normalise(torch.from_numpy(rows[0]), 1.0, torch.from_numpy(rows[:axes]))
    right = torch.from_numpy(3 * rows[0] + rows[5] + 2 * rows[axes])  # a fifth of what counts lies in the axes
    wrong = torch.from_numpy(3 * rows[0] + rows[5] + 3 * rows[axes])  # a tenth
    model.start([[1]], [right])
    model.start([[1]], [0.01 * wrong])  # next to nothing: a blank picture
    message = r"must be image vectors of lite9, but 1 of 2 cannot be \(the first is that of example 2\)"
    with pytest.raises(ValueError, match=message) as error:
        model.start([[1]] * 3, [right, None, wrong])
    assert "\n" not in str(error.value)
    model.train().loss(torch.tensor([[1, 2]]), conditions=[wrong])  # what a model is trained on is its own kind


@pytest.mark.parametrize(
    ("condition_size", "conditions", "message"),
    [
        (0, torch.zeros(1, 5), "the model takes none"),
        (5, torch.zeros(1, 4), "must hold 5 numbers"),
        (5, [np.zeros(4)], "must hold 5 numbers"),
        (5, torch.zeros(2, 5), "one per example"),
    ],
)
def test_a_wrong_condition_is_one_clear_line(condition_size: int, conditions: object, message: str) -> None:
    model = make(RecurrentConfig(23, 8, 6, condition_size=condition_size))
    with pytest.raises(ValueError, match=message) as error:
        model.start([[1]], conditions)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("contexts", [[], [[]], [[23]], [[-1]]])
def test_wrong_contexts_are_refused(contexts: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="token"):
        make(SHAPES[0]).start(contexts)


@pytest.mark.parametrize(
    ("field", "value"),
    [("vocab_size", 0), ("cell", "elman"), ("dropout", 1.0), ("condition_size", -1), ("cutoffs", (7, 3))],
)
def test_a_wrong_setting_is_named(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"`{field}`"):
        replace(SHAPES[0], **{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("config", SHAPES[::7], ids=name)
def test_saved_weights_come_back(config: RecurrentConfig, tmp_path) -> None:  # type: ignore[no-untyped-def]
    model = make(config).float()
    model.save(tmp_path / "exact.safetensors", dtype=None)
    model.save(tmp_path / "half.safetensors")
    for file, tolerance in (("exact", 0.0), ("half", 2e-3)):
        loaded = RecurrentModel.load(tmp_path / f"{file}.safetensors", config)
        assert {weight.dtype for weight in loaded.parameters()} == {torch.float32}
        torch.testing.assert_close(dict(loaded.state_dict()), dict(model.state_dict()), rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(loaded.start([[1, 2]])[0], model.start([[1, 2]])[0], rtol=0, atol=20 * tolerance)


def test_broken_weights_are_one_clear_line_and_a_failed_write_leaves_nothing(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    config = SHAPES[0]
    path = tmp_path / "model.safetensors"
    make(config).save(path)
    whole = path.read_bytes()

    def refused(message: str, shape: RecurrentConfig = config) -> None:
        with pytest.raises(ValueError, match=message) as error:
            RecurrentModel.load(path, shape)
        assert "\n" not in str(error.value)
        assert "model.safetensors" in str(error.value)

    refused("asks for", replace(config, vocab_size=22))
    refused("must be at most 23", replace(config, vocab_size=24))
    refused("lacks", replace(config, num_layers=2))
    for end in (0, 5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:end])
        refused("not a whole safetensors file")
    path.unlink()
    refused("could not be read")

    path.write_bytes(whole)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.os, "fsync", full)
    with pytest.raises(ValueError, match="No space left"):
        make(config, seed=3).save(path)
    assert path.read_bytes() == whole
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]
