"""Every method by name: Bidirectional Beam Search, and what the paper compares it with, on the same loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .bidirectional import search_both_ways
from .diversity import answer_in_turn
from .exact import enumerate_fills
from .length_prior import UNFITTED, LengthPrior
from .lengths import fill_gaps, plan_lengths
from .pair import Fill, check_problem, fill_in_batches, say_if_fewer
from .sampling import coordinate_descent, gsn, gsn_random, unidirectional_gibbs
from .settings import Direction, LengthRule, Settings
from .step_model import Conditions, StepModel
from .template import Layout, Penalties, Template, check_required
from .unidirectional import search_backward, search_forward, search_rerank_max, search_rerank_sum

METHODS = {
    "bibs": search_both_ways,
    "forward": search_forward,
    "backward": search_backward,
    "rerank-max": search_rerank_max,
    "rerank-sum": search_rerank_sum,
    "gsn": gsn,
    "gsn-random": gsn_random,
    "coordinate": coordinate_descent,
    "unidirectional-gibbs": unidirectional_gibbs,
    "exact": enumerate_fills,
}
SAMPLERS = ("gsn", "gsn-random", "coordinate", "unidirectional-gibbs")


def fill_templates(
    forward: StepModel,
    backward: StepModel,
    templates: Sequence[Template],
    *,
    method: str = "bibs",
    conditions: Conditions = None,
    banned: Sequence[int] = (),
    must_include: Sequence[Sequence[int]] | None = None,
    num_beams: int = 5,
    num_rounds: int = 4,
    num_return_sequences: int = 1,
    diversity_penalty: float = 0.0,
    start: Direction = "backward",
    rescore: bool = True,
    trace: bool = False,
    lookup: bool = True,
    batch_size: int | None = None,
    lengths: LengthRule = "unknown",
    max_length: int = 20,
    num_lengths: int | None = 3,
    length_prior: LengthPrior = UNFITTED,
    seed: int = 0,
    shortlist: int = 100,
    max_fills: int = 100_000,
) -> list[list[Fill]]:
    """Fill the free slots of each template by one of `METHODS`; per template, distinct fills, best first.

    `banned` ids never fill a free slot; each id of a template's `must_include` (at most four) fills at least one. With
    a `diversity_penalty`, a token loses so much for each of the answers before that holds it. The samplers know neither
    of these two.

    A `Gap` in a template is a blank of unknown length: `lengths` is the rule by which lengths are tried and compared,
    `max_length` the most words it may have where it does not say. "unknown" searches the `num_lengths` lengths that
    look best (None: all), and compares what it finds by `length_prior`.

    `start`, `rescore`, `trace` and `lookup` (of what an earlier round computed) concern "bibs"; `num_rounds` it and
    the samplers; `seed` the samplers; `shortlist` "unidirectional-gibbs"; `max_fills` "exact".
    """
    if method not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(METHODS)}, but is {method!r}")
    settings = Settings(
        num_beams=num_beams,
        num_rounds=num_rounds,
        num_return_sequences=num_return_sequences,
        diversity_penalty=diversity_penalty,
        start=start,
        rescore=rescore,
        trace=trace,
        lookup=lookup,
        batch_size=batch_size,
        lengths=lengths,
        max_length=max_length,
        num_lengths=num_lengths,
        length_prior=length_prior,
        seed=seed,
        shortlist=shortlist,
        max_fills=max_fills,
    )
    required = [()] * len(templates) if must_include is None else must_include
    check_problem(forward, backward, templates, conditions, banned)
    check_required(required, templates, banned, forward.vocab_size)
    if method in SAMPLERS and any(required):
        raise ValueError(f"`must_include` must be empty where `method` is a sampler, but {method!r} is one")
    if method in SAMPLERS and diversity_penalty:
        raise ValueError(f"`diversity_penalty` must be 0 where `method` is a sampler, but {method!r} is one")
    plans = plan_lengths(
        forward, backward, templates, settings, conditions=conditions, banned=banned, required=required
    )

    def find(penalties: Sequence[Penalties]) -> list[list[Fill]]:
        def search(layouts: list[Layout], owners: list[int]) -> list[list[Fill]]:
            penalised = [replace(each, penalties=penalties[owner]) for each, owner in zip(layouts, owners, strict=True)]
            return fill_in_batches(
                forward,
                backward,
                penalised,
                METHODS[method],
                settings,
                conditions=conditions,
                banned=banned,
                owners=owners,
            )

        return fill_gaps(method, templates, required, plans, search, settings)

    results = answer_in_turn(find, templates, settings) if diversity_penalty else find([{}] * len(templates))
    say_if_fewer(results, settings.num_return_sequences)
    return results


def bidirectional_beam_search(
    forward: StepModel,
    backward: StepModel,
    templates: Sequence[Template],
    *,
    conditions: Conditions = None,
    banned: Sequence[int] = (),
    must_include: Sequence[Sequence[int]] | None = None,
    num_beams: int = 5,
    num_rounds: int = 4,
    num_return_sequences: int = 1,
    diversity_penalty: float = 0.0,
    start: Direction = "backward",
    rescore: bool = True,
    trace: bool = False,
    lookup: bool = True,
    batch_size: int | None = None,
) -> list[list[Fill]]:
    """Fill the free slots of each template so that both models agree.

    A template is a list of token ids with None at each free slot; START and END are ordinary fixed tokens at its two
    ends. Returns, per template, a list of distinct fills, best first.

    - `conditions`: one per template, handed to the models (an image vector, say).
    - `banned`: ids that never fill a free slot (START, END, UNK).
    - `must_include`: per template, up to four ids that must each fill at least one free slot. Every subset of k such
      ids has its own `num_beams` beams, so the cost grows with 2^k.
    - `num_rounds`: a round is one pass each way, after a plain first pass from the `start` side.
    - `diversity_penalty`: the answers are searched one after the other, and a token loses so much for each of the
      answers before that holds it. Costs `num_return_sequences` searches.
    - `rescore`: score the fills of all passes exactly and return the best. Without it, the paper as written: the last
      pass's fills in that pass's own, approximate order.
    - `trace`: keep the top fill and the frontiers of every pass on each result.
    - `lookup`: keep (N, W, B, V) log probabilities in memory, so that a round computes only what the last one did not.
    - `batch_size`: templates searched at once; by default as many as make about 320 rows.
    """
    return fill_templates(
        forward,
        backward,
        templates,
        method="bibs",
        conditions=conditions,
        banned=banned,
        must_include=must_include,
        num_beams=num_beams,
        num_rounds=num_rounds,
        num_return_sequences=num_return_sequences,
        diversity_penalty=diversity_penalty,
        start=start,
        rescore=rescore,
        trace=trace,
        lookup=lookup,
        batch_size=batch_size,
    )
