"""Bad input to the search gets one clear line that names the argument, the rule and the value."""

from __future__ import annotations

import math
import re

import pytest
import torch

from bibs import Gap, bidirectional_beam_search, fill_templates
from fakes import HistoryModel, MatrixModel, ScoringHistoryModel, TamperingModel
from small_problems import METHODS, SAMPLERS, LengthPrior, LengthWeights

FORWARD, BACKWARD = HistoryModel(8, 1), HistoryModel(8, 2)
TEMPLATE = [0, 2, None, None, None, 3, 1]

BAD = {
    "templates": [
        ([[]], "`templates[0]` must hold at least one slot, but is empty"),
        ([[0, 1], [None, 1]], "`templates[1]` must have fixed tokens (START, END) at both ends, but its first slot"),
        ([[0, None]], "`templates[0]` must have fixed tokens (START, END) at both ends, but its last slot is free"),
        ([[Gap(), 1]], "`templates[0]` must have fixed tokens (START, END) at both ends, but its first slot"),
        ([[0, 8, 1]], "`templates[0]` must hold None, gaps or ids from 0 to 7, but holds 8"),
        ([[0, "a", 1]], "`templates[0]` must hold None, gaps or ids from 0 to 7, but holds 'a'"),
        ([0, None, 1], "`templates[0]` must be a list of token ids and None, but is 0"),
    ],
    "num_beams": [
        (0, "`num_beams` must be a whole number of at least 1, but is 0"),
        (2.5, "`num_beams` must be a whole number of at least 1, but is 2.5"),
    ],
    "num_rounds": [(-1, "`num_rounds` must be a whole number of at least 0, but is -1")],
    "num_return_sequences": [(0, "`num_return_sequences` must be a whole number of at least 1")],
    "batch_size": [(0, "`batch_size` must be a whole number of at least 1, but is 0")],
    "num_lengths": [(0, "`num_lengths` must be a whole number of at least 1, but is 0")],
    "max_length": [(0, "`max_length` must be a whole number of at least 1, but is 0")],
    "lengths": [("known", "`lengths` must be 'unknown' or 'paper', but is 'known'")],
    "start": [("left", "`start` must be ")],
    "rescore": [("no", "`rescore` must be True or False, but is 'no'")],
    "banned": [([9], "`banned` must hold ids from 0 to 7, but holds 9")],
    "conditions": [([1, 2], "`conditions` must hold one per template (1), but holds 2")],
    "diversity_penalty": [
        (-1, "`diversity_penalty` must be a number of at least 0, but is -1"),
        (math.nan, "`diversity_penalty` must be a number of at least 0, but is nan"),
    ],
    "must_include": [
        ([(2,), (3,)], "`must_include` must hold one per template (1), but holds 2"),
        ([2], "`must_include[0]` must be a list of token ids, but is 2"),
        (
            [(2, 3, 4, 5, 6)],
            "`must_include[0]` must hold at most four words, or fewer and longer phrases (at most 16 states), "
            "but has 2 x 2 x 2 x 2 x 2 states",
        ),
        ([(9,)], "`must_include[0]` must hold ids from 0 to 7, but holds 9"),
        ([(2, 2)], "`must_include[0]` must hold distinct ids or lists of ids, none empty, but holds [2, 2]"),
        ([(2, 3, 4, 5)], "`must_include[0]` must fit in the free slots of its template (3), but needs 4"),
        ([((2, 2, 2, 2),)], "`must_include[0]` must fit in the free slots of its template (3), but needs 4"),
        (
            [((2, 3), (2, 3))],
            "`must_include[0]` must hold distinct ids or lists of ids, none empty, but holds [(2, 3), (2, 3)]",
        ),
        ([((),)], "`must_include[0]` must hold distinct ids or lists of ids, none empty, but holds [()]"),
        ([((2, 9),)], "`must_include[0]` must hold ids from 0 to 7, but holds 9"),
    ],
    "method": [("beam", f"`method` must be one of {', '.join(METHODS)}, but is 'beam'")],
}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({name: value}, message) for name, cases in BAD.items() for value, message in cases),
        (
            {"must_include": [(2,)], "banned": (0, 2)},
            "`must_include[0]` must hold no id that is `banned`, but holds 2",
        ),
        (
            {"templates": [[0, Gap(1, 2), 1]], "must_include": [(2, 3, 4)]},
            "`must_include[0]` must fit in the free slots of its template (2), but needs 3",
        ),
        (
            {"templates": [[0, Gap(), 1]], "must_include": [(2, 3, 4)], "max_length": 2},
            "`max_length` must be at least the 3 words of a blank, but is 2",
        ),
        (
            {"templates": [[0, Gap(9), 1]], "max_length": 5},
            "`max_length` must be at least the 9 words of a blank, but is 5",
        ),
        (
            {"templates": [[0, Gap(), 2, Gap(), 1]], "lengths": "paper"},
            "`lengths` must be 'unknown' for several blanks of unknown length, but is 'paper'",
        ),
        *(
            (
                {"method": method, "diversity_penalty": 1.0},
                f"`diversity_penalty` must be 0 where `method` is a sampler, but '{method}' is one",
            )
            for method in SAMPLERS
        ),
        *(
            (
                {"method": method, "must_include": [(2,)]},
                f"`must_include` must be empty where `method` is a sampler, but '{method}' is one",
            )
            for method in SAMPLERS
        ),
    ],
)
def test_a_bad_argument_is_named(options, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        fill_templates(FORWARD, BACKWARD, **{"templates": [TEMPLATE], **options})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gap(-1, 3), "a gap must have 0 <= minimum <= maximum"),
        (lambda: Gap(4, 2), "a gap must have 0 <= minimum <= maximum"),
        (lambda: Gap(0, 0), "a gap must have 0 <= minimum <= maximum"),
        (lambda: LengthWeights(math.nan, 0.0), "`word` must be a finite number, but is nan"),
        (lambda: LengthWeights(1.0, "3"), "`sentence` must be a finite number, but is '3'"),
        (lambda: LengthPrior(sentence_counts=(0, -1)), "`sentence_counts` must be whole numbers from 0, but hold -1"),
        (lambda: LengthPrior(sentence_counts=(0, 0)), "`sentence_counts` must count at least one sentence"),
    ],
)
def test_a_gap_and_a_prior_must_be_possible(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_models_of_different_vocabularies_are_refused():
    with pytest.raises(ValueError, match="share one vocabulary, but their `vocab_size` are 8 and 5"):
        bidirectional_beam_search(FORWARD, HistoryModel(5), [TEMPLATE])


def test_exact_refuses_a_space_too_large():
    with pytest.raises(ValueError, match=r"must not enumerate more than 100 fills .* make 8\^3"):
        fill_templates(FORWARD, BACKWARD, [TEMPLATE], method="exact", max_fills=100)


# Models that break their promise


@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("call", ["start", "step"])
@pytest.mark.parametrize("name", ["forward", "backward"])
@pytest.mark.parametrize("method", METHODS)
def test_nan_and_infinity_are_blamed_on_the_model_and_the_slot(method, name, call, poison):
    def tamper(where, log_probs, state):
        if where == call:
            log_probs = log_probs.clone()
            log_probs[-1, -1] = poison
        return log_probs, state

    models = {"forward": FORWARD, "backward": BACKWARD}
    models[name] = TamperingModel(models[name], tamper)
    with pytest.raises(ValueError, match=rf"the {name} model's {call}\(\).* returned a log probability of {poison}"):
        fill_templates(**models, templates=[[0, 2, None, None, 3, 1]], method=method)


@pytest.mark.parametrize(
    ("model", "tamper", "message"),
    [
        (
            MatrixModel.random(8, 1),
            lambda where, log_probs, state: (log_probs, state[:1]),
            r"forward model's step\(\).* must return a state of 5 rows",
        ),
        (
            FORWARD,
            lambda where, log_probs, state: (log_probs[:, :3], state),
            r"forward model's start\(\) must return log_probs \(1, 8\), but returned \(1, 3\)",
        ),
        (
            FORWARD,
            lambda where, log_probs, state: (log_probs, {"prefix": "abc"}),
            "must be a nest .* of tensors, but holds a str",
        ),
    ],
)
def test_a_wrong_shape_is_named(model, tamper, message):
    with pytest.raises(ValueError, match=message):
        fill_templates(TamperingModel(model, tamper), BACKWARD, [TEMPLATE], method="forward")


@pytest.mark.parametrize("wrong", [torch.zeros(1, 1), torch.full((1,), torch.inf), torch.full((1,), torch.nan)])
def test_a_wrong_score_is_blamed_on_its_model(wrong):
    broken = ScoringHistoryModel(8, 1)
    broken.score = lambda continuations, state, floors: wrong
    with pytest.raises(ValueError, match=r"the forward model's score\(\) must return .*\(1,\)") as error:
        fill_templates(broken, BACKWARD, [[0, 2, None, 3, 1]], method="forward")
    assert "\n" not in str(error.value)


def test_logits_in_place_of_log_probs_are_suspected():
    shifted = TamperingModel(FORWARD, lambda where, log_probs, state: (log_probs + 5.0, state))
    with pytest.warns(UserWarning, match="the forward model's log probabilities exceed 0: are they logits"):
        bidirectional_beam_search(shifted, BACKWARD, [TEMPLATE])


def test_fewer_fills_than_asked_for_come_back_and_are_announced():
    with pytest.warns(UserWarning, match=r"`num_return_sequences` is 9, but only 8 distinct fills were found for `t"):
        (fills,) = bidirectional_beam_search(FORWARD, BACKWARD, [[0, None, 1]], num_beams=8, num_return_sequences=9)
    assert len(fills) == 8


def test_an_option_that_does_not_exist_is_named_and_a_likely_one_offered():
    with pytest.raises(TypeError, match=re.escape("there is no option `num_beam`: did you mean `num_beams`?")):
        fill_templates(FORWARD, BACKWARD, [TEMPLATE], num_beam=3)
