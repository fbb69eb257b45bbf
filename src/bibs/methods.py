"""The door for token ids: every method by name, every option once, everything checked before it is searched."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import partial
from typing import Any, TypedDict, TypeVar

import numpy as np
import torch
from typing_extensions import Unpack

from bibs import baselines
from bibs.baselines import BaselineSettings
from bibs.checks import CheckedModel, check_method, check_problem, check_setting, read_required
from bibs.constraints import Demands, Penalties, Phrases, Subwords, answer_in_turn, least_words
from bibs.lengths import LengthPrior, LengthRule, LengthSettings, ScoreKind, climb, fill_gaps, plan_lengths
from bibs.search import (
    Conditions,
    Fill,
    Gap,
    Layout,
    Method,
    Settings,
    Size,
    Start,
    StepModel,
    Template,
    Trees,
    cut_into_batches,
    search_both_ways,
    select_conditions,
)

METHODS: dict[str, Callable[..., list[list[Fill]]]] = {
    "bibs": search_both_ways,
    "forward": baselines.search_forward,
    "backward": baselines.search_backward,
    "rerank-max": baselines.search_rerank_max,
    "rerank-sum": baselines.search_rerank_sum,
    "gsn": baselines.gsn,
    "gsn-random": baselines.gsn_random,
    "coordinate": baselines.coordinate_descent,
    "unidirectional-gibbs": baselines.unidirectional_gibbs,
    "exact": baselines.enumerate_fills,
}
SAMPLERS = ("gsn", "gsn-random", "coordinate", "unidirectional-gibbs")
WITH_SETTINGS = (*SAMPLERS, "exact")
SCORE_KINDS_OF: dict[str, ScoreKind] = {"forward": "forward", "backward": "backward", "rerank-max": "max"}
"""By what kind of score a method compares lengths; the others by S."""

S = TypeVar("S")


class Options(TypedDict, total=False):
    """How a search is run. What is left out has the default that stands behind it."""

    num_beams: int  # 5
    num_rounds: int  # 4: a round is one pass each way, after a plain first pass
    num_return_sequences: int  # 1: how many distinct fills come back, best first
    diversity_penalty: float  # 0.0: what a token loses for each answer before that holds it
    start: Start  # "both" ends; "backward" is the paper's
    rescore: bool  # True: the fills of all passes are scored exactly; False: the last pass's, in its own order
    trace: bool  # False: keep the top fill and the frontiers of every pass on each result
    lookup: bool  # True: False asks the models again for what they have said, with the same result
    batch_size: int | None  # None: as many templates at once as make about 320 rows and fit in the memory
    max_memory: int  # 512: MiB that the search may keep
    lengths: LengthRule  # "unknown": how the lengths of gaps are found; "paper": by the paper's rule
    max_length: int  # 20: the most words of a gap that does not say
    num_lengths: int | None  # 3: how many lengths of a gap are searched; None: all
    length_prior: LengthPrior  # how fills of different lengths compare
    seed: int  # 0: of the samplers
    shortlist: int  # 100: tokens that "unidirectional-gibbs" tries in each slot
    max_fills: int  # 100,000: the most that "exact" enumerates


def fill_templates(
    forward: StepModel,
    backward: StepModel,
    templates: Sequence[Template],
    *,
    method: str = "bibs",
    conditions: Conditions = None,
    banned: Sequence[int] = (),
    must_include: Sequence[Sequence[int | Sequence[int]]] | None = None,
    **options: Unpack[Options],
) -> list[list[Fill]]:
    """Fill the free slots of each template by one of `METHODS`; per template, distinct fills, best first.

    A template is a list of token ids with None at each free slot and a `Gap` at each blank of unknown length; START and
    END are ordinary fixed tokens at its two ends. `conditions` holds one per template, handed to the models (an image
    vector, say). `banned` ids never fill a free slot (START, END, UNK); each id of a template's `must_include` fills at
    least one, and each list of ids in it fills free slots next to each other. An id doubles the cost, a list of n makes
    it n + 1 times as high, and 16 times is the most. The samplers take neither `must_include` nor a
    `diversity_penalty`. `Options` says what the others mean.
    """
    given: dict[str, Any] = {"conditions": conditions, "banned": banned, "must_include": must_include}
    results = find_fills(forward, backward, templates, method=method, **given, **options)
    say_if_fewer(results, options.get("num_return_sequences", 1))
    return results


@torch.inference_mode()
def find_fills(
    forward: StepModel,
    backward: StepModel,
    templates: Sequence[Template],
    *,
    method: str,
    conditions: Conditions,
    banned: Sequence[int],
    must_include: Sequence[Sequence[int | Sequence[int]]] | None,
    subwords: Subwords | None = None,
    **options: Unpack[Options],
) -> list[list[Fill]]:
    """What `fill_templates` does, without a word about what was not found.

    With `subwords`, a gap is a number of tokens of which some begin a word, and has so many words.
    """
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(METHODS)}, but is {method!r}")
    for name in options:
        if name not in Options.__annotations__:
            alike = get_close_matches(name, Options.__annotations__, 1)
            hint = f": did you mean `{alike[0]}`?" if alike else ""
            raise TypeError(f"there is no option `{name}`{hint}")
    settings, lengths = pick_settings(Settings, options), pick_settings(LengthSettings, options)
    baseline = pick_settings(BaselineSettings, options)
    penalty = options.get("diversity_penalty", 0.0)
    check_problem(forward, backward, templates, conditions, banned)
    required = read_required(must_include, templates, banned, forward.vocab_size)
    check_method(method, method in SAMPLERS, required, penalty)
    run: Method = partial(METHODS[method], baseline=baseline) if method in WITH_SETTINGS else METHODS[method]
    kind = SCORE_KINDS_OF.get(method, "sum")
    trees = Trees.of(CheckedModel("forward", forward), CheckedModel("backward", backward), settings)

    def fill_batch(
        some: Sequence[Template], words: Sequence[Phrases], given: Conditions, counts: Subwords | None
    ) -> list[list[Fill]]:
        trees.begin(some, given)
        plain = Demands.plain(forward.vocab_size, banned, len(some))
        plans = plan_lengths(trees, some, given, list(map(least_words, words)), lengths, plain.allowing)

        def search(penalties: Sequence[Penalties], **changed: int) -> partial[list[list[Fill]]]:
            """Of the same trees, with other settings."""
            same = replace(trees, settings=replace(settings, **changed))  # type: ignore[arg-type]
            demands = replace(plain, required=words, penalties=penalties, subwords=counts)
            return partial(same.search, run, constraints=demands)

        quick = search(plain.penalties, num_rounds=0, num_return_sequences=1, exact=False, trace=False)
        plans = climb(some, plans, quick, kind, lengths)

        def find(penalties: Sequence[Penalties], wanted: int) -> list[list[Fill]]:
            return fill_gaps(some, plans, search(penalties, num_return_sequences=wanted), kind, lengths, wanted)

        if penalty:
            return answer_in_turn(find, some, settings.num_return_sequences, penalty)
        return find(plain.penalties, settings.num_return_sequences)

    sizes = [_size(template, phrases, lengths) for template, phrases in zip(templates, required, strict=True)]
    results: list[list[Fill]] = [[] for _ in templates]
    for batch in cut_into_batches(sizes, settings, forward.vocab_size):
        words = [required[index] for index in batch]
        counts = subwords.of(batch) if subwords else None
        found = fill_batch([templates[index] for index in batch], words, select_conditions(conditions, batch), counts)
        for index, fills in zip(batch, found, strict=True):
            results[index] = fills
    return results


def bidirectional_beam_search(
    forward: StepModel,
    backward: StepModel,
    templates: Sequence[Template],
    *,
    conditions: Conditions = None,
    banned: Sequence[int] = (),
    must_include: Sequence[Sequence[int | Sequence[int]]] | None = None,
    **options: Unpack[Options],
) -> list[list[Fill]]:
    """`fill_templates` by Bidirectional Beam Search: fill the free slots of each template so that both models agree."""
    given: dict[str, Any] = {"conditions": conditions, "banned": banned, "must_include": must_include}
    return fill_templates(forward, backward, templates, method="bibs", **given, **options)


def pick_settings(kind: type[S], options: Options) -> S:
    """The settings of one kind among the options."""
    given: dict[str, Any] = {}
    for each in fields(kind):  # type: ignore[arg-type]
        if each.name in options:
            value = options[each.name]  # type: ignore[literal-required]
            given[each.name] = value.item() if isinstance(value, np.generic) else value
            check_setting(each.name, given[each.name], optional=each.default is None or each.name == "num_lengths")
    return kind(**given)


def _size(template: Template, required: Phrases, lengths: LengthSettings) -> Size:
    """What a template takes: several layouts, where it has gaps."""
    gaps = [token for token in template if isinstance(token, Gap)]
    layout = Layout.of(template, [gap.maximum or lengths.max_length for gap in gaps])
    weight = max(1, (lengths.num_lengths or 3) * len(gaps))
    groups = tuple(len(phrase) + 1 for phrase in required)
    return Size(groups, len(layout.region), len(layout.context) + len(layout.rest), weight)


def say_if_fewer(results: Sequence[Sequence[object] | ValueError], num_return_sequences: int) -> None:
    counts = {index: len(fills) for index, fills in enumerate(results) if not isinstance(fills, ValueError)}
    short = [index for index, count in counts.items() if 0 < count < num_return_sequences]
    if short:
        warnings.warn(
            f"`num_return_sequences` is {num_return_sequences}, but only {counts[short[0]]} distinct fills were "
            f"found for `templates[{short[0]}]`" + (f" and fewer for {len(short) - 1} others" if short[1:] else ""),
            stacklevel=3,
        )
