"""Blanks of unknown length, judged by enumeration."""

from __future__ import annotations

import itertools
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bibs import Infiller
from bibs.search import Fill, fill_templates
from bibs.search.lengths import EndingModel, lengths_to_try
from bibs.search.settings import Settings
from bibs.search.template import Gap, stretch
from fakes import CountingModel, HistoryModel, enumerate_scores, score_from_scratch

START, END = 0, 1
laws = settings(max_examples=25, deadline=None)


def problem(seed: int, vocab_size: int = 4) -> tuple[HistoryModel, HistoryModel]:
    return HistoryModel(vocab_size, seed), HistoryModel(vocab_size, seed + 1000)


@laws
@given(st.integers(0, 500), st.sampled_from(["paper", "unknown"]), st.integers(0, 1))
def test_with_wide_beams_the_answer_is_the_best_over_all_lengths_tried(seed, rule, minimum):
    forward, backward = problem(seed)
    template = [START, 2, Gap(minimum, 3), 3, END]
    options = {"banned": (START, END), "num_beams": 64, "lengths": rule, "max_length": 3}
    (tried,) = lengths_to_try(
        forward, backward, [template], Settings(num_beams=64, lengths=rule, max_length=3), banned=(START, END)
    )
    (best,) = fill_templates(forward, backward, [template], length_reward=0.4, **options)[0]
    reward = 2 * 0.4 if rule == "unknown" else 0.0
    truth = {}
    for length in tried:
        scores = enumerate_scores(forward, backward, stretch(template, [length]), (START, END))
        truth |= {tokens: sum(pair) + reward * length for tokens, pair in scores.items()}
    assert best.tokens == max(truth, key=lambda tokens: truth[tokens])
    assert best.ranking_score == pytest.approx(truth[best.tokens])
    assert best.lengths == (len(best.tokens) - 4,)
    assert minimum <= best.lengths[0] <= 3


@laws
@given(st.integers(0, 500))
def test_the_papers_range_lies_between_what_each_model_would_write_alone(seed):
    """Each model's most probable sentence from its own side, found by enumeration, says how long the blank is."""
    forward, backward = problem(seed, 3)
    max_length, word = 2, 2
    template = [START, word, Gap(), word, END]

    def believed(model: HistoryModel, near: list[int], far: list[int]) -> int:
        end, room = far[-1], max_length + len(far)
        best, count = -torch.inf, 0
        for length in range(room + 1):
            for words in itertools.product([token for token in range(3) if token not in (START, END)], repeat=length):
                tail = [*words, end] if length < room else list(words)
                score = score_from_scratch(model, [*near, *tail])
                if score > best:
                    best, count = score, length
        return count - (len(far) - 1)

    lengths = [believed(forward, [START, word], [word, END]), believed(backward, [END, word], [word, START])]
    clipped = [min(max(length, 1), max_length) for length in lengths]
    (tried,) = lengths_to_try(
        forward,
        backward,
        [template],
        Settings(num_beams=200, lengths="paper", max_length=max_length),
        banned=(START, END),
    )
    assert (tried[0], tried[-1]) == (min(clipped), max(clipped))


def test_contexts_are_read_once_to_find_the_lengths_and_once_to_search_them_all():
    forward, backward = (CountingModel(model) for model in problem(3))
    templates = [[START, 2, Gap(), 3, END], [START, Gap(1, 6), END], [START, 2, None, END]]
    fill_templates(forward, backward, templates, banned=(START, END), max_length=6)
    assert (forward.starts, forward.contexts) == (2, 2 + 3)
    assert (backward.starts, backward.contexts) == (2, 2 + 3)


@pytest.mark.parametrize("method", ["bibs", "forward", "backward", "rerank-max", "rerank-sum", "gsn", "coordinate"])
@pytest.mark.parametrize("rule", ["paper", "unknown"])
def test_a_batch_of_gaps_equals_its_items_one_by_one(method, rule):
    forward, backward = problem(11)
    templates = [
        [START, 2, Gap(), 3, END],
        [START, 2, None, 3, END],
        [START, None, 2, Gap(2, 5), END],
        [START, Gap(0, 3), 2, None, 3, END],
    ]
    options = {"method": method, "banned": (START, END), "lengths": rule, "num_return_sequences": 2, "max_length": 6}
    together = fill_templates(forward, backward, templates, **options)
    alone = [fill_templates(forward, backward, [template], **options)[0] for template in templates]
    assert [[fill.tokens for fill in fills] for fills in together] == [
        [fill.tokens for fill in fills] for fills in alone
    ]
    for template, fills in zip(templates, together, strict=True):
        for fill in fills:
            assert len(fill.tokens) == len(stretch(template, fill.lengths))
            assert_fits(template, fill)


def assert_fits(template: list[int | Gap | None], fill: Fill) -> None:
    for slot, token in zip(stretch(template, fill.lengths), fill.tokens, strict=True):
        assert slot is None or slot == token
    for gap, length in zip([slot for slot in template if isinstance(slot, Gap)], fill.lengths, strict=True):
        assert length >= gap.minimum
        assert gap.maximum is None or length <= gap.maximum


def test_nothing_follows_an_end_but_ends_and_they_cost_nothing():
    model = EndingModel(HistoryModel(4, 7), END)
    log_probs, state, _ = model.start([[START, 2], [START, 3]])
    first = [log_probs[0, END].item(), log_probs[1, 2].item()]
    log_probs, state = model.step(torch.tensor([END, 2]), state)
    assert log_probs[0].tolist() == [-torch.inf, 0.0, -torch.inf, -torch.inf]
    assert torch.equal(log_probs[1], HistoryModel(4, 7).log_probs_after([START, 3, 2]))
    log_probs, state = model.step(torch.tensor([END, END]), state)
    assert log_probs[0].tolist() == log_probs[1].tolist() == [-torch.inf, 0.0, -torch.inf, -torch.inf]
    assert all(value < 0 for value in first)


@pytest.mark.parametrize(
    ("template", "options", "message"),
    [
        (
            [START, Gap(), 2, Gap(), END],
            {},
            "a template must hold at most one blank of unknown length, but one holds 2",
        ),
        ([START, Gap(), END], {"lengths": "known"}, "`lengths` must be 'unknown' or 'paper', but is 'known'"),
        ([START, Gap(9), END], {"max_length": 5}, "`max_length` must be at least the 9 words of a blank, but is 5"),
        ([Gap(), END], {}, "`templates[0]` must have fixed tokens (START, END) at both ends, but its first slot"),
    ],
)
def test_bad_gaps_get_one_clear_line(template, options, message):
    forward, backward = problem(1)
    with pytest.raises(ValueError, match=re.escape(message)):
        fill_templates(forward, backward, [template], **options)


def test_a_gap_must_be_possible():
    for bounds in ((-1, 3), (4, 2), (0, 0)):
        with pytest.raises(ValueError, match="a gap must have 0 <= minimum <= maximum"):
            Gap(*bounds)


def test_the_template_language_reaches_the_search():
    infiller = Infiller.from_corpus(["a man is riding a wave", "a dog is sitting on the beach", "a man riding a wave"])
    completion = infiller("A dog ___{1,4} the beach!")[0]
    assert completion.text == f"A dog {completion.spans[0]} the beach!"
    assert 1 <= len(completion.spans[0].split()) <= 4
    for completion in infiller("a man ___{0,1} riding a wave", num_return_sequences=3):
        assert len(completion.spans[0].split()) <= 1
        assert completion.text == f"a man {completion.spans[0]} riding a wave".replace("  ", " ")
