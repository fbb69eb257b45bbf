"""Laws of int8: products of integers, batches bit for bit, and answers that the exact model has scored."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import bibs.infiller
from bibs import Gap, Infiller, StepModel, fill_templates
from bibs.cli import main
from bibs.models import int8, recurrent
from bibs.models.int8 import Int8Model, choose_precision
from bibs.models.ngram import NGramModel
from bibs.models.products import Int8Matrix
from bibs.models.recurrent import RecurrentConfig, RecurrentModel
from bibs.models.storage import packed, unpacked
from bibs.text import Vocabulary
from fakes import HistoryModel
from small_problems import CASES, METHODS, SEARCHES, Problem, problems
from test_laws import check_exact, check_scores

pytestmark = pytest.mark.filterwarnings("ignore:`num_return_sequences`")

SHAPES = [
    RecurrentConfig(23, hidden, 6, num_layers=layers, cell=cell, condition_size=size, cutoffs=cutoffs)
    for cell in ("rnn", "lstm", "gru")
    for hidden, layers in ((8, 1), (33, 2))
    for size, cutoffs in ((0, ()), (5, (4, 11)))
]
BANNED = (0, 1, 2)
TEMPLATES: list[list[Any]] = [
    [0, 5, None, None, None, 7, 1],
    [0, None, 9, 1],
    [0, 3, 4, None, None, 8, None, 12, 6, 1],
    [0, 14, 15, None, 1],
    [0, 3, 1],
]


def name(config: RecurrentConfig) -> str:
    kind = "adaptive" if config.cutoffs else "dense"
    return f"{config.cell}-{config.num_layers}-{'picture' if config.condition_size else 'text'}-{kind}"


def make(config: RecurrentConfig, seed: int = 0, std: float = 0.5) -> RecurrentModel:
    torch.manual_seed(seed)
    model = RecurrentModel(config)
    for weight in model.parameters():
        nn.init.normal_(weight, std=std)
    return model.eval()


def pair(config: RecurrentConfig) -> tuple[RecurrentModel, RecurrentModel]:
    return make(config, 0), make(config, 1)


def pictures(config: RecurrentConfig, rows: int) -> list[Tensor | None] | None:
    if not config.condition_size:
        return None
    vectors = torch.randn(rows, config.condition_size, generator=torch.Generator().manual_seed(1))
    return [None if row % 3 == 2 else vectors[row] for row in range(rows)]


# Products


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 9), depth=st.integers(1, 70), columns=st.integers(1, 40))
def test_a_product_is_that_of_the_rounded_numbers(seed: int, rows: int, depth: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(rows, depth)).astype(np.float32)
    b = rng.normal(size=(columns, depth)).astype(np.float32)
    bias = rng.normal(size=columns).astype(np.float32)
    a[rng.integers(rows)] = 0  # a row of zeros has no scale
    peaks = [np.maximum(np.abs(each).max(1, keepdims=True), np.float32(1e-30)) for each in (a, b)]
    # In float32, as a number near the middle between two integers goes to either by its last bit.
    integers = [
        np.rint(each * (np.float32(127) / peak)).astype(np.int64) for each, peak in zip((a, b), peaks, strict=True)
    ]
    matrix, given_rows = Int8Matrix(torch.from_numpy(b), torch.from_numpy(bias)), torch.from_numpy(a)
    expected = (integers[0] @ integers[1].T) * (peaks[0] / 127) * (peaks[1][:, 0] / 127)
    tolerance = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(matrix(given_rows), expected + bias, **tolerance)
    np.testing.assert_allclose(matrix.add_to(torch.ones(rows, columns), given_rows), expected + 1, **tolerance)
    if columns > 2:
        assert torch.equal(matrix.columns(1, columns - 1)(given_rows), matrix(given_rows)[:, 1 : columns - 1])


# The model


@pytest.mark.parametrize("config", SHAPES, ids=name)
def test_what_a_row_gets_never_depends_on_its_batch_bit_for_bit(config: RecurrentConfig) -> None:
    model = Int8Model(make(config))
    generator = torch.Generator().manual_seed(2)
    contexts = [torch.randint(23, (1 + row % 5,), generator=generator).tolist() for row in range(37)]
    continuations = [torch.randint(23, (1 + row % 4,), generator=generator).tolist() for row in range(37)]
    tokens, conditions = torch.randint(23, (37,), generator=generator), pictures(config, 37)
    log_probs, state, scores = model.start(contexts, conditions)
    after, _ = model.step(tokens, state)
    scored = model.score(continuations, state, torch.full((37,), -torch.inf))
    for row in range(37):
        alone, own, score = model.start([contexts[row]], conditions and [conditions[row]])
        assert torch.equal(log_probs[row], alone[0])
        assert torch.equal(scores[row], score[0])
        assert torch.equal(after[row], model.step(tokens[row, None], own)[0][0])
        assert torch.equal(scored[row], model.score([continuations[row]], own)[0])


@pytest.mark.parametrize("config", SHAPES, ids=name)
def test_it_is_nearly_the_exact_model_and_normalised(config: RecurrentConfig) -> None:
    exact = make(config, std=0.15)
    model, conditions = Int8Model(exact), pictures(config, 2)
    results = []
    for each in (exact, model):
        log_probs, state, scores = each.start([[3, 4, 5], [6]], conditions)
        after, state = each.step(torch.tensor([7, 8]), state)
        results.append((log_probs, scores, after, each.score([[9, 20, 3], [4, 22]], state)))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0.03)
    assert not torch.equal(results[0][0], results[1][0])
    torch.testing.assert_close(results[1][2].exp().sum(1), torch.ones(2))


def test_it_follows_new_weights() -> None:
    exact, other = pair(SHAPES[4])
    model = Int8Model(exact)
    before = model.start([[3, 4]])[0]
    exact.load_state_dict(other.state_dict())
    assert not torch.equal(model.start([[3, 4]])[0], before)
    assert torch.equal(model.start([[3, 4]])[0], Int8Model(other).start([[3, 4]])[0])


# Searching with it

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "five": {"num_return_sequences": 5},
    "from the right": {"start": "backward", "num_return_sequences": 2},
    "as the paper ranks": {"rescore": False, "start": "backward"},
    "words": {"must_include": [[5], [6], [7, 8], [], []], "num_return_sequences": 2},
    "diverse": {"diversity_penalty": 2.0, "num_return_sequences": 3},
    "traced": {"trace": True},
}


def judged(model: RecurrentModel, tokens: tuple[int, ...], condition: Tensor | None) -> float:
    """By the whole network at once."""
    conditions = None if not model.config.condition_size else [condition]
    with torch.no_grad():
        log_probs = model(torch.tensor([tokens[:-1]]), conditions)[0]
    return float(log_probs.gather(1, torch.tensor(tokens[1:])[:, None]).sum())


def check_answers(config: RecurrentConfig, templates: list[list[Any]], **options: Any) -> None:
    """Scores as the float32 models have them from scratch, and the same answers alone."""
    exact = pair(config)
    models = [Int8Model(model) for model in exact]
    conditions = pictures(config, len(templates))
    found = fill_templates(*models, templates, conditions=conditions, banned=BANNED, **options)
    for row, fills in enumerate(found):
        condition = conditions[row] if conditions else None
        assert fills
        for fill in fills:
            forward, backward = judged(exact[0], fill.tokens, condition), judged(exact[1], fill.tokens[::-1], condition)
            assert (fill.forward_score, fill.backward_score) == pytest.approx((forward, backward), abs=1e-4)
            assert fill.score == fill.forward_score + fill.backward_score
            for each in fill.trace:
                whole = judged(exact[0], each.tokens, condition) + judged(exact[1], each.tokens[::-1], condition)
                assert each.score == pytest.approx(whole, abs=1e-4)
        own = {"must_include": [options["must_include"][row]]} if "must_include" in options else {}
        (alone,) = fill_templates(
            *models, [templates[row]], conditions=conditions and [condition], banned=BANNED, **{**options, **own}
        )
        assert [fill.tokens for fill in fills] == [fill.tokens for fill in alone]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("config", SHAPES[4:6], ids=name)
def test_scores_are_those_of_float32_and_answers_do_not_depend_on_the_batch(config, options) -> None:
    check_answers(config, TEMPLATES, **options)


@pytest.mark.parametrize("method", METHODS)
def test_so_they_are_by_every_method(method: str) -> None:
    check_answers(SHAPES[5], TEMPLATES[:2], method=method, num_return_sequences=2)


@pytest.mark.parametrize("config", [SHAPES[1], SHAPES[11]], ids=name)
def test_so_they_are_for_every_cell(config: RecurrentConfig) -> None:
    check_answers(config, TEMPLATES)


@pytest.mark.parametrize("options", [{}, {"num_return_sequences": 3}, {"diversity_penalty": 1.0}], ids=str)
def test_so_they_are_with_unknown_lengths_and_several_gaps(options: dict[str, Any]) -> None:
    gaps: list[list[Any]] = [[0, 4, Gap(), 6, 1], [0, Gap(1, 3), 7, Gap(0, 2), 1], [0, 5, Gap(2, 4), 1]]
    check_answers(SHAPES[4], gaps, max_length=4, **options)
    check_answers(SHAPES[4], gaps, max_length=4, must_include=[[9], [10], []], **options)


class Copy:
    """What the passes see is another model altogether."""

    def __init__(self, exact: HistoryModel, margin: float) -> None:
        self.margin = margin
        self.copy = HistoryModel(exact.vocab_size, exact.seed + 1)
        self.exact_scores = lambda sentences, conditions: exact.start(sentences, conditions)[2]
        self.vocab_size = exact.vocab_size
        self.start, self.step = self.copy.start, self.copy.step


@pytest.mark.parametrize(("method", "feature"), [case for case in CASES if case[1] != "zeros"])
@settings(max_examples=2, deadline=None)
@given(data=st.data(), margin=st.sampled_from([0.5, 0.0, np.inf]))
def test_whatever_the_passes_see_the_exact_model_scores_the_answers(method, feature, data, margin) -> None:
    problem = data.draw(problems(feature))
    options = {"num_beams": 3, "num_rounds": 2}
    found = problem.with_models(lambda model: Copy(model, margin)).fill(method, **options)
    check_scores(problem, found)
    by_the_copy = problem.with_models(lambda model: Copy(model, margin).copy).fill(method, **options)
    assert list(map(len, found)) == list(map(len, by_the_copy))


@pytest.mark.parametrize(
    ("method", "feature"),
    [(m, f) for m, f in CASES if m in SEARCHES and m not in ("forward", "backward") and f != "zeros"],
)
@settings(max_examples=2, deadline=None)
@given(data=st.data())
def test_with_wide_beams_and_a_wide_margin_the_answers_are_the_best_by_the_exact_model(method, feature, data) -> None:
    problem: Problem = data.draw(problems(feature))
    copied = problem.with_models(lambda model: Copy(model, np.inf))
    options = {"num_beams": 300, "num_rounds": 1, "num_return_sequences": 3, "num_lengths": None, "lengths": "unknown"}
    check_exact(problem, method, copied.fill(method, **options), 3)


def test_a_copy_without_margin_has_its_own_choice() -> None:
    exact = HistoryModel(6, 1), HistoryModel(6, 2)
    template: list[list[Any]] = [[0, None, None, 1]]

    def answer(*models: StepModel) -> tuple[int, ...]:
        return fill_templates(*models, template, num_beams=36)[0][0].tokens

    copies = [Copy(model, 0.0) for model in exact]
    assert answer(*copies) == answer(*(copy.copy for copy in copies)) != answer(*exact)
    assert answer(*(Copy(model, np.inf) for model in exact)) == answer(*exact)


def test_the_exact_model_is_not_asked_about_lengths_that_are_only_climbed_through() -> None:
    asked: list[int] = []

    class Asked(Copy):
        def __init__(self, exact: HistoryModel) -> None:
            super().__init__(exact, 0.0)
            scored = self.exact_scores
            self.exact_scores = lambda sentences, conditions: (
                asked.extend(map(len, sentences)) or scored(sentences, conditions)
            )

    models = [Asked(HistoryModel(6, seed)) for seed in (1, 2)]
    (found,) = fill_templates(*models, [[0, Gap(), 3, Gap(), 1]], max_length=6, num_lengths=1)
    assert len(found[0].lengths) == 2
    assert set(asked) == {len(found[0].tokens)}


# Weights that are stored as integers


def stored(config: RecurrentConfig) -> RecurrentModel:
    model = make(config)
    model.load_state_dict(unpacked(packed(model.state_dict())))
    return model


@pytest.mark.parametrize("config", SHAPES, ids=name)
def test_products_of_stored_integers_are_those_of_float32(
    config: RecurrentConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of projected words, whichever way the processor makes it."""
    contexts = [[0, token, 22 - token, 7] for token in range(23)]
    found = []
    for able in (True, False):
        monkeypatch.setattr(recurrent, "has_int8_instructions", lambda able=able: able)
        found.append(stored(config).start(contexts))
    for one, other in zip(found[0][::2], found[1][::2], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


def test_what_rounding_has_left_is_kept_only_where_there_is_anything() -> None:
    weight = make(SHAPES[0]).embedding.weight.detach()
    again = unpacked(packed({"w": weight}))["w"]
    assert Int8Matrix(weight, num_fine=4).num_fine == 4
    rounded = Int8Matrix(again, num_fine=4)
    assert rounded.num_fine == 0
    rows = torch.randn(3, weight.shape[1])
    torch.testing.assert_close(rounded(rows), Int8Matrix(weight)(rows), rtol=1e-5, atol=1e-5)


# Which precision


def test_auto_takes_int8_where_the_processor_has_the_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    models = pair(SHAPES[4])
    vocabulary = Vocabulary.build([[f"w{number}" for number in range(20)]], min_count=1)
    assert len(vocabulary) == 23
    for able, expected in ((True, "int8"), (False, "float32")):
        for module in (int8, bibs.infiller):
            monkeypatch.setattr(module, "has_int8_instructions", lambda able=able: able)
        infiller = Infiller(forward=models[0], backward=models[1], vocabulary=vocabulary)
        assert infiller.precision == expected
        assert infiller("w3 _ w4")[0].score == pytest.approx(
            Infiller(forward=models[0], backward=models[1], vocabulary=vocabulary, precision="float32")("w3 _ w4")[
                0
            ].score,
            abs=1e-4,
        )
    with pytest.warns(UserWarning, match="no instructions for it"):
        infiller = Infiller(forward=models[0], backward=models[1], vocabulary=vocabulary, precision="int8")
    assert infiller.precision == "int8"  # if it must be, though it is slow


def test_the_command_says_in_one_line_that_int8_is_slow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bibs.infiller, "has_int8_instructions", lambda: False)
    monkeypatch.setattr(sys, "argv", ["bibs", "fill", "--precision", "int8", "a dog"])
    with warnings.catch_warnings(), pytest.raises(SystemExit):
        main()
    said = capsys.readouterr()
    assert said.out == "a dog\n"
    assert said.err.startswith("bibs: `--precision` is int8, but this processor has no instructions")
    assert said.err.count("\n") == 1


@pytest.mark.slow
def test_torch_says_what_the_processor_has() -> None:
    code = "from bibs.models.products import has_int8_instructions; print(has_int8_instructions())"
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "default"}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"


def test_models_of_other_kinds_are_float32_and_cannot_be_int8() -> None:
    sentences = ["a man is riding a wave", "a dog is riding a wave"]
    assert Infiller.from_corpus(sentences).precision == "float32"
    ngrams = NGramModel.train_pair([[0, 3, 4, 1]], vocab_size=5, order=2)
    assert choose_precision("auto", ngrams) == "float32"
    for wrong, line in (
        (lambda: choose_precision("int8", ngrams), "`precision` must be float32 or auto"),
        (
            lambda: choose_precision("int4", pair(SHAPES[4])),
            "`precision` must be one of float32, int8, auto, but is 'int4'",
        ),
    ):
        refuse(wrong, line)


def refuse(call: Callable[[], object], line: str) -> None:
    with pytest.raises(ValueError, match=line) as error:
        call()
    assert "\n" not in str(error.value)
