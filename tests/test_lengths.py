"""Blanks of unknown length, judged by enumeration."""

from __future__ import annotations

import itertools
import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bibs import Infiller
from bibs.search import Fill, LengthPrior, LengthWeights, fill_templates
from bibs.search.length_prior import LEAST_ROOM
from bibs.search.lengths import MAX_LAYOUTS, neighbours, plan_lengths
from bibs.search.meeting import NOWHERE, meet
from bibs.search.run_on import EndingModel
from bibs.search.settings import Settings
from bibs.search.template import Gap, Template, stretch
from fakes import CountingModel, HistoryModel, enumerate_scores, score_from_scratch

START, END = 0, 1
METHODS = ["bibs", "forward", "backward", "rerank-max", "rerank-sum", "gsn", "coordinate"]
laws = settings(max_examples=10, deadline=None)

weights = st.builds(LengthWeights, st.floats(-1, 3), st.floats(0, 4))
priors = st.builds(
    LengthPrior,
    sum=weights,
    max=weights,
    forward=weights,
    backward=weights,
    meeting=weights,
    sentence_counts=st.lists(st.integers(0, 9), min_size=4, max_size=9).map(lambda counts: (*counts, 1)),
)


def problem(seed: int, vocab_size: int = 4) -> tuple[HistoryModel, HistoryModel]:
    return HistoryModel(vocab_size, seed), HistoryModel(vocab_size, seed + 1000)


def log_share(prior: LengthPrior, length: int) -> float:
    """Written a second time: half a sentence more of every length."""
    counts = dict(enumerate(prior.sentence_counts))
    return math.log((counts.get(length, 0) + 0.5) / sum(count + 0.5 for count in counts.values()))


def best_by_enumeration(
    forward: HistoryModel,
    backward: HistoryModel,
    template: Template,
    ranges: list[range],
    ranking,
    banned: tuple[int, ...] = (START, END),
) -> tuple[float, tuple[int, ...]]:
    """The best ranking score, and its sentence, over all lengths and all fills."""
    return max(
        (ranking(scores, sum(lengths)), tokens)
        for lengths in itertools.product(*ranges)
        for tokens, scores in enumerate_scores(forward, backward, stretch(template, lengths), banned).items()
    )


# The answer


@laws
@given(st.integers(0, 500), priors, st.sampled_from(["sum", "max", "forward", "backward"]), st.integers(0, 1))
def test_with_wide_beams_the_answer_is_the_best_of_all_lengths_in_range(seed, prior, kind, minimum):
    """By the calibrated score of the method's kind, when all lengths are searched."""
    forward, backward = problem(seed)
    template = [START, 2, Gap(minimum, 3), 3, END]
    method = {"sum": "bibs", "max": "rerank-max"}.get(kind, kind)
    weight: LengthWeights = getattr(prior, kind)

    def ranking(scores: tuple[float, float], words: int) -> float:
        by = {"sum": sum(scores), "max": max(scores), "forward": scores[0], "backward": scores[1]}
        return by[kind] + weight.word * words + weight.sentence * log_share(prior, 2 + words)

    (best, *_) = fill_templates(
        forward, backward, [template], method=method, banned=(START, END), num_beams=64, num_lengths=None,
        length_prior=prior, num_return_sequences=64,
    )[0]  # fmt: skip
    score, tokens = best_by_enumeration(forward, backward, template, [range(minimum, 4)], ranking)
    assert best.ranking_score == pytest.approx(score)
    assert best.tokens == tokens
    assert best.lengths == (len(best.tokens) - 4,)


@laws
@given(st.integers(0, 500), priors)
def test_with_wide_beams_the_answer_is_the_best_of_all_combinations_of_two_gaps(seed, prior):
    forward, backward = problem(seed)
    template = [START, Gap(1, 2), 2, Gap(0, 2), 3, END]

    def ranking(scores: tuple[float, float], words: int) -> float:
        return sum(scores) + prior.sum.word * words + prior.sum.sentence * log_share(prior, 2 + words)

    options = {"banned": (START, END), "num_beams": 64, "length_prior": prior}
    for num_lengths in (3, None):  # six combinations are at most 3 x 3: all are searched
        (best,) = fill_templates(forward, backward, [template], num_lengths=num_lengths, **options)[0]
        score, tokens = best_by_enumeration(forward, backward, template, [range(1, 3), range(3)], ranking)
        assert best.ranking_score == pytest.approx(score)
        assert best.tokens == tokens
        assert_fits(template, best)


@laws
@given(st.integers(0, 500), st.integers(1, 3))
def test_of_many_lengths_those_are_searched_at_which_the_beams_meet_best(seed, num_lengths):
    forward, backward = problem(seed)
    template = [START, 2, Gap(1, 6), 3, END]
    prior = LengthPrior(meeting=LengthWeights(0.7, 0.0))
    told = Settings(num_beams=2, num_lengths=num_lengths, length_prior=prior)
    (plan,) = plan_lengths(forward, backward, [template], told, banned=(START, END))
    (meeting,) = meet(forward, backward, [([START, 2], [3, END])], [6], told, None, (START, END))
    worth = {length: score + 0.7 * length for length, score in enumerate(meeting, start=1)}
    assert [lengths for (lengths,) in plan.first] == sorted(sorted(worth, key=lambda n: -worth[n])[:num_lengths])


@laws
@given(st.integers(0, 500), st.integers(0, 1))
def test_with_wide_beams_a_meeting_is_the_mean_of_the_best_joins(seed, known):
    """By enumeration: f up to the slot where they meet, g from there; a known free slot may stand before the gap."""
    forward, backward = problem(seed)
    words, left, right = (2, 3), [START, 2, *[None] * known], [3, END]
    told = Settings(num_beams=64)
    (meeting,) = meet(forward, backward, [(left, right)], [3], told, None, (START, END))

    def gain(model: HistoryModel, context: list[int], tokens: tuple[int, ...]) -> float:
        return score_from_scratch(model, [*context, *tokens]) - score_from_scratch(model, context)

    for length, found in enumerate(meeting, start=1):
        joins = []
        for t in range(1, length + 1):
            forwards = itertools.product(words, repeat=known + t)
            backwards = list(itertools.product(words, repeat=length - t + 1))
            joins.append(
                max(
                    gain(forward, [START, 2], a) + gain(backward, [END, 3], b)
                    for a in forwards
                    for b in backwards
                    if a[-1] == b[-1]
                )
            )
        assert found == pytest.approx(sum(joins) / length)


# What is tried


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
    told = Settings(num_beams=200, lengths="paper", max_length=max_length)
    (plan,) = plan_lengths(forward, backward, [template], told, banned=(START, END))
    assert plan.first == tuple((length,) for length in range(min(clipped), max(clipped) + 1))
    (best,) = fill_templates(
        forward, backward, [template], banned=(START, END), num_beams=200, lengths="paper", max_length=max_length
    )[0]
    score, _ = best_by_enumeration(
        forward, backward, template, [range(min(clipped), max(clipped) + 1)], lambda scores, _: sum(scores)
    )
    assert best.ranking_score == pytest.approx(score)  # the paper knows no prior


@pytest.mark.parametrize(
    ("gap", "given_words", "expected"),
    [
        (Gap(), 2, range(1, 9)),  # 99 % of the sentences have up to 10 words
        (Gap(), 30, range(1, LEAST_ROOM + 1)),
        (Gap(9), 30, range(9, 10)),
        (Gap(0, 4), 30, range(5)),
        (Gap(2, 19), 2, range(2, 20)),  # who names an end is not doubted
    ],
)
def test_an_open_gap_is_tried_as_long_as_sentences_are(gap, given_words, expected):
    counts = (0, 0, 0, 0, 0, 30, 30, 20, 10, 5, 4, 0, 0, 0, 1)
    told = Settings(num_lengths=None, length_prior=LengthPrior(sentence_counts=counts))
    template = [START, *[2] * given_words, gap, END]
    (plan,) = plan_lengths(*problem(1), [template], told)
    assert plan.first == tuple((length,) for length in expected)


@laws
@given(st.integers(0, 500), st.sampled_from(METHODS), st.integers(1, 3))
def test_ranges_are_kept_and_nothing_fills_a_gap_only_when_asked(seed, method, num_lengths):
    forward, backward = problem(seed)
    templates = [
        [START, 2, Gap(), 3, END],
        [START, Gap(0, 5), 2, END],
        [START, Gap(2, 4), 2, None, 3, Gap(0), END],
        [START, None, Gap(3), END],
        [START, Gap(1, 2), Gap(2, 3), 2, Gap(), END],
    ]
    found = fill_templates(
        forward, backward, templates, method=method, banned=(START, END), max_length=5, num_lengths=num_lengths,
        num_rounds=1, num_beams=2, num_return_sequences=2,
    )  # fmt: skip
    for template, fills in zip(templates, found, strict=True):
        assert len({fill.tokens for fill in fills}) == len(fills)
        assert sorted(fills, key=lambda fill: -fill.ranking_score) == fills
        for fill in fills:
            assert_fits(template, fill)


def assert_fits(template: Template, fill: Fill) -> None:
    for slot, token in zip(stretch(template, fill.lengths), fill.tokens, strict=True):
        assert slot is None or slot == token
    for gap, length in zip([slot for slot in template if isinstance(slot, Gap)], fill.lengths, strict=True):
        assert gap.minimum <= length <= (5 if gap.maximum is None else gap.maximum)


# Batches, mirrors and costs


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rule", ["paper", "unknown"])
def test_a_batch_of_gaps_equals_its_items_one_by_one(method, rule):
    forward, backward = problem(11)
    templates: list[Template] = [
        [START, 2, Gap(), 3, END],
        [START, 2, None, 3, END],
        [START, None, 2, Gap(2, 5), END],
        [START, Gap(0, 3), 2, None, 3, END],
    ]
    if rule == "unknown":
        templates += [[START, Gap(), 2, Gap(0, 3), END], [START, 2, Gap(1, 2), 3, Gap(1, 2), END]]
    options = {"method": method, "banned": (START, END), "lengths": rule, "num_return_sequences": 2, "max_length": 5}
    together = fill_templates(forward, backward, templates, **options)
    alone = [fill_templates(forward, backward, [template], **options)[0] for template in templates]
    assert [[(fill.tokens, fill.lengths) for fill in fills] for fills in together] == [
        [(fill.tokens, fill.lengths) for fill in fills] for fills in alone
    ]


@laws
@given(st.integers(0, 500), priors, st.sampled_from(["paper", "unknown"]))
def test_gaps_are_filled_alike_from_either_end(seed, prior, rule):
    forward, backward = problem(seed)
    templates: list[Template] = [[START, 2, Gap(), 3, None, END]]
    templates += [] if rule == "paper" else [[START, 2, Gap(1, 4), 3, Gap(), 2, END]]
    options = {"banned": (START, END), "max_length": 4, "num_lengths": 2, "lengths": rule, "length_prior": prior}
    ours = fill_templates(forward, backward, templates, start="backward", **options)
    turned = fill_templates(backward, forward, [t[::-1] for t in templates], start="forward", **options)
    for template, (a,), (b,) in zip(templates, ours, turned, strict=True):
        assert a.tokens == b.tokens[::-1]
        assert a.ranking_score == pytest.approx(b.ranking_score)
        # One sentence may be had with several lengths, which are then worth the same: either is an answer.
        for lengths in (a.lengths, b.lengths[::-1]):
            slots = stretch(template, lengths)
            assert all(slot in (None, token) for slot, token in zip(slots, a.tokens, strict=True))
        assert a.ranking_score == pytest.approx(b.ranking_score)


def test_contexts_are_read_once_to_choose_lengths_and_once_to_search_them_all():
    templates = [[START, 2, Gap(), 3, END], [START, Gap(1, 6), END], [START, 2, None, END], [START, Gap(1, 3), 3, END]]
    for rule, judged in (("paper", 3), ("unknown", 2)):  # three lengths need no choosing
        forward, backward = (CountingModel(model) for model in problem(3))
        fill_templates(forward, backward, templates, banned=(START, END), max_length=6, lengths=rule)
        for model in (forward, backward):
            assert (model.starts, model.contexts) == (2, judged + 4)


@laws
@given(st.integers(0, 500), st.integers(2, 3))
def test_climbing_ends_where_no_neighbour_is_better_or_at_its_bound(seed, num_gaps):
    forward, backward = problem(seed)
    gaps = [Gap() for _ in range(num_gaps)]
    template = [START, *itertools.chain.from_iterable((gap, 2) for gap in gaps), END]
    searched: dict[tuple[int, ...], float] = {}
    options = {"banned": (START, END), "num_beams": 2, "num_rounds": 1, "max_length": 5, "method": "rerank-sum"}
    (best,) = fill_templates(forward, backward, [template], **options)[0]
    (plan,) = plan_lengths(forward, backward, [template], Settings(max_length=5))
    assert plan.climbs
    assert all(len(set(lengths)) == 1 for lengths in plan.first)
    # The same climb, with one search for each combination.
    wanted = list(plan.first)
    while wanted and len(searched) < MAX_LAYOUTS:
        for lengths in wanted[: MAX_LAYOUTS - len(searched)]:
            exactly: list[Template] = [[*stretch(template, lengths)]]
            (fill,) = fill_templates(forward, backward, exactly, **options)[0]
            searched[lengths] = fill.score + 1.0 * sum(lengths)
        top = max(searched, key=lambda lengths: searched[lengths])
        wanted = [n for n in neighbours(top) if n not in searched and all(1 <= length <= 5 for length in n)]
    assert best.lengths == top
    assert best.ranking_score == pytest.approx(searched[top])


def test_climbing_searches_no_more_combinations_than_its_bound(monkeypatch):
    """Steps are counted: a rising reward leads the climb on for ever, were it not for the bound."""
    template = [START, Gap(), 2, Gap(), 3, Gap(), END]
    prior = LengthPrior(sum=LengthWeights(50.0, 0.0))
    for bound in (7, 12, 25):
        monkeypatch.setattr("bibs.search.lengths.MAX_LAYOUTS", bound)
        forward, backward = (CountingModel(model) for model in problem(5))
        fill_templates(
            forward, backward, [template], banned=(START, END), method="coordinate", num_rounds=0, num_beams=1,
            max_length=8, length_prior=prior,
        )  # fmt: skip
        # One combination has one context a model and start(), and at most 24 + 2 words to step over for each of: the
        # first beam, the chain that holds it, and its score.
        longest = 3 * 8 + 2
        assert forward.rows + backward.rows <= bound * 2 * 3 * longest
        assert forward.contexts <= bound
    monkeypatch.setattr("bibs.search.lengths.MAX_LAYOUTS", 10_000)
    (best,) = fill_templates(
        *problem(5), [template], banned=(START, END), method="coordinate", num_rounds=0, num_beams=1,
        max_length=8, length_prior=prior,
    )[0]  # fmt: skip
    assert best.lengths == (8, 8, 8)


# Small facts


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


def test_beams_that_cannot_meet_are_worth_little_but_not_nothing():
    class Certain(HistoryModel):
        """Writes one word only."""

        def log_probs_after(self, prefix, condition=0):
            return torch.where(torch.arange(4) == self.seed, 0.0, -torch.inf).double()

    (meeting,) = meet(Certain(4, 2), Certain(4, 3), [([START], [END])], [3], Settings(num_beams=1), None, ())
    assert meeting == [NOWHERE] * 3


def test_two_combinations_that_make_one_sentence_are_one_completion():
    forward, backward = problem(2, 3)
    template = [START, Gap(1, 3), 2, Gap(1, 3), END]  # 2 is the only word, so a length of the whole says all
    fills = fill_templates(forward, backward, [template], banned=(START, END), num_return_sequences=5)[0]
    assert sorted(len(fill.tokens) for fill in fills) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("template", "options", "message"),
    [
        (
            [START, Gap(), 2, Gap(), END],
            {"lengths": "paper"},
            "`lengths` must be 'unknown' for several blanks of unknown length, but is 'paper'",
        ),
        ([START, Gap(), END], {"lengths": "known"}, "`lengths` must be 'unknown' or 'paper', but is 'known'"),
        ([START, Gap(), END], {"num_lengths": 0}, "`num_lengths` must be a whole number of at least 1, but is 0"),
        ([START, Gap(), END], {"max_length": 0}, "`max_length` must be a whole number of at least 1, but is 0"),
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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LengthWeights(math.nan, 0.0), "`word` must be a finite number, but is nan"),
        (lambda: LengthWeights(1.0, "3"), "`sentence` must be a finite number, but is '3'"),
        (lambda: LengthPrior(sentence_counts=(0, -1)), "`sentence_counts` must be whole numbers from 0, but hold -1"),
        (lambda: LengthPrior(sentence_counts=(0, 0)), "`sentence_counts` must count at least one sentence"),
    ],
)
def test_a_prior_must_be_possible(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=30))
def test_sentences_are_counted_by_their_length(lengths):
    counts = LengthPrior.count_sentences(lengths)
    assert [lengths.count(length) for length in range(max(lengths) + 1)] == list(counts)
    prior = LengthPrior(sentence_counts=counts)
    assert sum(math.exp(prior.log_share(length)) for length in range(len(counts))) == pytest.approx(1.0)


def test_the_template_language_reaches_the_search():
    infiller = Infiller.from_corpus(["a man is riding a wave", "a dog is sitting on the beach", "a man riding a wave"])
    completion = infiller("A dog ___{1,4} the beach!")[0]
    assert completion.text == f"A dog {completion.spans[0]} the beach!"
    assert 1 <= len(completion.spans[0].split()) <= 4
    for completion in infiller("a man ___{0,1} riding a wave", num_return_sequences=3):
        assert len(completion.spans[0].split()) <= 1
        assert completion.text == f"a man {completion.spans[0]} riding a wave".replace("  ", " ")


@pytest.mark.parametrize("template", ["A ___ is ___, on _ beach.", "___{0,1} dog ___{2,3} the ___!", "___ _ ___"])
def test_the_words_of_several_blanks_go_back_where_they_belong(template):
    infiller = Infiller.from_corpus(["a man is riding a wave", "a dog is sitting on the beach", "a man riding a wave"])
    for completion in infiller(template, num_return_sequences=3, max_length=4):
        marks = re.split(r"___(?:\{\d,\d\})?|_", template)
        filled = marks[0] + "".join(f"{span}{mark}" for span, mark in zip(completion.spans, marks[1:], strict=True))
        assert completion.text.split() == filled.split()
        words = re.findall(r"[a-z]+", completion.text.lower())
        assert infiller.vocabulary.encode(words) == list(completion.tokens[1:-1])


@pytest.mark.filterwarnings("ignore:`num_return_sequences`")
@laws
@given(st.integers(0, 500), st.integers(1, 2), st.sampled_from(["bibs", "rerank-sum", "forward"]))
def test_climbing_through_several_gaps_keeps_the_words_that_must_appear(seed, num_required, method):
    forward, backward = problem(seed)
    template = [START, Gap(0), 2, Gap(0), 3, END]
    required = (2, 3)[:num_required]
    options = {"banned": (START, END), "num_beams": 2, "num_rounds": 1, "max_length": 6, "method": method}
    (plan,) = plan_lengths(forward, backward, [template], Settings(max_length=6), required=[required])
    assert plan.climbs
    fills = fill_templates(
        forward, backward, [template], must_include=[required], num_return_sequences=4, **options
    )[0]  # fmt: skip
    assert fills
    for fill in fills:
        slots = stretch(template, fill.lengths)
        free = [token for slot, token in zip(slots, fill.tokens, strict=True) if slot is None]
        assert set(required) <= set(free)
        # What climbing found at these lengths is what a search of just these lengths finds.
        exactly = fill_templates(
            forward, backward, [slots], must_include=[required], num_return_sequences=9, **options
        )[0]  # fmt: skip
        assert fill.tokens in [other.tokens for other in exactly]
