"""Bad input to the search gets one clear line that names the argument, the rule and the value."""

from __future__ import annotations

import re
from collections import namedtuple

import pytest
import torch

from bibs.search import METHODS, bidirectional_beam_search, fill_templates
from bibs.search.step_model import join_rows, map_state, replace_rows, select_rows
from fakes import HistoryModel, MatrixModel, TamperingModel

FORWARD, BACKWARD = HistoryModel(4, 1), HistoryModel(4, 2)
TEMPLATE = [0, 2, None, None, None, 3, 1]


@pytest.mark.parametrize(
    ("templates", "options", "message"),
    [
        ([[]], {}, "`templates[0]` must hold at least one slot, but is empty"),
        (
            [[0, 1], [None, 1]],
            {},
            "`templates[1]` must have fixed tokens (START, END) at both ends, but its first slot",
        ),
        ([[0, None]], {}, "`templates[0]` must have fixed tokens (START, END) at both ends, but its last slot is free"),
        ([[0, 4, 1]], {}, "`templates[0]` must hold None, gaps or ids from 0 to 3, but holds 4"),
        ([[0, "a", 1]], {}, "`templates[0]` must hold None, gaps or ids from 0 to 3, but holds 'a'"),
        ([0, None, 1], {}, "`templates[0]` must be a list of token ids and None, but is 0"),
        ([TEMPLATE], {"num_beams": 0}, "`num_beams` must be a whole number of at least 1, but is 0"),
        ([TEMPLATE], {"num_beams": 2.5}, "`num_beams` must be a whole number of at least 1, but is 2.5"),
        ([TEMPLATE], {"num_rounds": -1}, "`num_rounds` must be a whole number of at least 0, but is -1"),
        ([TEMPLATE], {"num_return_sequences": 0}, "`num_return_sequences` must be a whole number of at least 1"),
        ([TEMPLATE], {"batch_size": 0}, "`batch_size` must be a whole number of at least 1, but is 0"),
        ([TEMPLATE], {"start": "left"}, "`start` must be 'forward' or 'backward', but is 'left'"),
        ([TEMPLATE], {"banned": [7]}, "`banned` must hold ids from 0 to 3, but holds 7"),
        ([TEMPLATE], {"conditions": [1, 2]}, "`conditions` must hold one per template (1), but holds 2"),
    ],
)
def test_a_bad_argument_is_named(templates, options, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        bidirectional_beam_search(FORWARD, BACKWARD, templates, **options)
    assert "\n" not in str(error.value)


def test_an_unknown_method_is_named_with_those_there_are():
    with pytest.raises(ValueError, match=r"`method` must be one of bibs, forward, .* but is 'beam'"):
        fill_templates(FORWARD, BACKWARD, [TEMPLATE], method="beam")


def test_models_of_different_vocabularies_are_refused():
    with pytest.raises(ValueError, match="share one vocabulary, but their `vocab_size` are 4 and 5"):
        bidirectional_beam_search(FORWARD, HistoryModel(5), [TEMPLATE])


def test_exact_refuses_a_space_too_large():
    with pytest.raises(ValueError, match=r"must not enumerate more than 100 fills .* make 4\^4"):
        fill_templates(FORWARD, BACKWARD, [[0, None, None, None, None, 1]], method="exact", max_fills=100)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("call", ["start", "step"])
@pytest.mark.parametrize("name", ["forward", "backward"])
@pytest.mark.parametrize("method", sorted(METHODS))
def test_nan_and_infinity_are_blamed_on_the_model_and_the_slot(method, name, call, poison):
    def tamper(where, log_probs, state):
        if where == call:
            log_probs = log_probs.clone()
            log_probs[-1, -1] = poison
        return log_probs, state

    models = {"forward": FORWARD, "backward": BACKWARD}
    models[name] = TamperingModel(models[name], tamper)
    with pytest.raises(ValueError, match=rf"the {name} model's {call}\(\).* returned a log probability of {poison}"):
        fill_templates(models["forward"], models["backward"], [TEMPLATE], method=method, max_fills=100)


def test_a_state_whose_rows_do_not_match_is_named():
    broken = TamperingModel(
        MatrixModel(torch.eye(4) * 0.6 + 0.1), lambda where, log_probs, state: (log_probs, state[:1])
    )
    with pytest.raises(ValueError, match=r"forward model's step\(\) at slot 1 must return a state of 4 rows"):
        fill_templates(broken, BACKWARD, [TEMPLATE], method="forward")


def test_log_probs_of_the_wrong_shape_are_named():
    broken = TamperingModel(BACKWARD, lambda where, log_probs, state: (log_probs[:, :3], state))
    with pytest.raises(
        ValueError, match=r"backward model's start\(\) must return log_probs \(1, 4\), but returned \(1, 3\)"
    ):
        bidirectional_beam_search(FORWARD, broken, [TEMPLATE])


def test_a_state_that_is_no_nest_of_tensors_is_named():
    broken = TamperingModel(FORWARD, lambda where, log_probs, state: (log_probs, {"prefix": "abc"}))
    with pytest.raises(ValueError, match=r"must be a nest .* of tensors, but holds a str"):
        bidirectional_beam_search(broken, BACKWARD, [TEMPLATE])


def test_logits_in_place_of_log_probs_are_suspected():
    shifted = TamperingModel(FORWARD, lambda where, log_probs, state: (log_probs + 5.0, state))
    with pytest.warns(UserWarning, match="the forward model's log probabilities exceed 0: are they logits"):
        bidirectional_beam_search(shifted, BACKWARD, [TEMPLATE])


def test_fewer_fills_than_asked_for_come_back_and_are_announced():
    with pytest.warns(
        UserWarning, match=r"`num_return_sequences` is 9, but only 4 distinct fills were found for `temp"
    ):
        (fills,) = bidirectional_beam_search(FORWARD, BACKWARD, [[0, None, 1]], num_return_sequences=9)
    assert len(fills) == 4


def test_a_beam_wider_than_the_space_is_fine():
    (fills,) = bidirectional_beam_search(FORWARD, BACKWARD, [[0, None, None, 1]], num_beams=1000)
    assert len(fills) == 1


def test_rows_of_every_kind_of_nest_are_selected_joined_and_replaced():
    Pair = namedtuple("Pair", ["hidden", "cell"])
    rows = torch.arange(4)
    state = {"pair": Pair(rows, rows[:, None] * 10), "list": [rows + 0.5], "nothing": None}
    picked = select_rows(state, torch.tensor([3, 1]))
    assert isinstance(picked["pair"], Pair)
    assert picked["pair"].hidden.tolist() == [3, 1]
    assert picked["pair"].cell.tolist() == [[30], [10]]
    assert picked["nothing"] is None
    joined = join_rows([picked, state])
    assert joined["list"][0].tolist() == [3.5, 1.5, 0.5, 1.5, 2.5, 3.5]
    replaced = replace_rows(state, torch.tensor([0, 2]), picked, in_place=False)
    assert replaced["pair"].hidden.tolist() == [3, 1, 1, 3]
    assert state["pair"].hidden.tolist() == [0, 1, 2, 3]
    assert map_state(len, (rows, rows)) == (4, 4)
