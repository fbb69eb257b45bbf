"""Causal language models say step by step, in batches and from their caches what one whole pass says."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from bibs import bidirectional_beam_search

pytest.importorskip("tokenizers")
from bibs.models import huggingface
from bibs.models.huggingface import CausalModel
from tiny_transformers import END, START, network, reading_again, whole_pass

V = 11
CONTEXTS = [[START, 4, 7, 3], [START], [START, 9, 9, 2, 5, 8]]


@pytest.fixture(params=["gpt2", "llama"])
def family(request):
    return request.param


def told(log_probs, tokens):
    """The log probability of the tokens after the first, by a whole pass."""
    return sum(float(log_probs[place, token]) for place, token in enumerate(tokens[1:]))


def test_stepping_equals_the_whole_pass_for_contexts_of_any_length(family):
    model = CausalModel(network(family, V, 0))
    log_probs, state, scores = model.start(CONTEXTS)
    read = [list(context) for context in CONTEXTS]
    for context, score in zip(CONTEXTS, scores, strict=True):
        assert float(score) == pytest.approx(told(whole_pass(model.network, context), context), abs=1e-4)
    for tokens in ([5, 1, 6], [2, 2, 9]):
        for row, after in enumerate(log_probs):
            torch.testing.assert_close(after, whole_pass(model.network, read[row])[-1], atol=1e-4, rtol=1e-4)
        log_probs, state = model.step(torch.tensor(tokens), state)
        read = [[*row, token] for row, token in zip(read, tokens, strict=True)]


def test_a_step_leaves_the_state_as_it_was_and_makes_a_row_for_each_row(family):
    model = CausalModel(network(family, V, 0))
    _, state, _ = model.start(CONTEXTS)
    before = [part.clone() for part in (*state.keys, *state.values, state.mask)]
    model.step(torch.tensor([5, 1, 6]), state)
    model.score([[5, 3], [1], [6, 2, 4]], state)
    assert all(torch.equal(a, b) for a, b in zip(before, (*state.keys, *state.values, state.mask), strict=True))


def test_one_pass_over_given_tokens_scores_what_steps_score(family, monkeypatch):
    model = CausalModel(network(family, V, 1))
    _, state, _ = model.start(CONTEXTS)
    continuations = [[5, 3], [1], [6, 2, 4, 4, 10]]
    expected = []
    for context, more in zip(CONTEXTS, continuations, strict=True):
        log_probs = whole_pass(model.network, context + more)
        expected.append(sum(float(log_probs[len(context) + place, token]) for place, token in enumerate(more[1:])))
    assert model.score(continuations, state).tolist() == pytest.approx(expected, abs=1e-4)
    monkeypatch.setattr(huggingface, "LOGITS_AT_ONCE", 1)  # a row at a time
    assert model.score(continuations, state).tolist() == pytest.approx(expected, abs=1e-4)


def test_contexts_read_some_at_a_time_are_read_alike(family, monkeypatch):
    model = CausalModel(network(family, V, 1))
    together = model.start(CONTEXTS)
    monkeypatch.setattr(huggingface, "LOGITS_AT_ONCE", 2 * V * max(map(len, CONTEXTS)))
    apart = model.start(CONTEXTS)
    torch.testing.assert_close(apart, together, atol=1e-4, rtol=1e-4)


def test_a_search_finds_what_it_finds_where_everything_is_read_again(family):
    networks = network(family, V, 0), network(family, V, 1)
    templates = [[START, 5, 3, 8, None, None, END], [START, None, None, 4, None, 2, END], [START, 6, None, END]]
    options = {"num_beams": 3, "num_return_sequences": 2}
    found = bidirectional_beam_search(*map(CausalModel, networks), templates, **options)
    slowly = bidirectional_beam_search(*(reading_again(each, V) for each in networks), templates, **options)
    one_by_one = [bidirectional_beam_search(*map(CausalModel, networks), [each], **options)[0] for each in templates]
    for fills, other in ((found, slowly), (found, one_by_one)):
        assert [[fill.tokens for fill in each] for each in fills] == [[fill.tokens for fill in each] for each in other]
    for fill in (fill for fills in found for fill in fills):
        forward, backward = (
            told(whole_pass(each, tokens), tokens)
            for each, tokens in zip(networks, (list(fill.tokens), list(fill.tokens[::-1])), strict=True)
        )
        assert (fill.forward_score, fill.backward_score) == pytest.approx((forward, backward), abs=1e-3)


def test_weights_of_less_precision_are_read_as_float32():
    half = network("gpt2", V, 3).half()
    log_probs, _, _ = CausalModel(half).start([[START, 2]])
    assert log_probs.dtype == torch.float32


def test_a_text_longer_than_the_positions_is_refused():
    model = CausalModel(network("gpt2", V, 0), "`forward`")
    with pytest.raises(ValueError, match="at most 32 tokens, the positions of `forward`, but has 40"):
        model.start([[START] * 40])


@pytest.mark.slow
def test_importing_bibs_imports_no_transformers():
    code = "import sys, bibs, bibs.infiller, bibs.models.huggingface; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
