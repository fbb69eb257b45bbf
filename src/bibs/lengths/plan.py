"""Blanks of unknown length: which lengths to try, and how to compare them.

How: fills of different lengths are ranked by a calibrated score (prior.py). Which: a template with one gap is searched
with the `num_lengths` lengths at which the two models' plain beams join best (joins.py), by the same prior.

Several gaps are tried in all combinations where these are at most `num_lengths` to the power of gaps. Otherwise they
climb, by searches without rounds: from the best of those combinations in which all gaps are alike, to the best
neighbour (one gap longer or shorter by a word or two, or a word moved from one to another), as long as that is better,
for MAX_LAYOUTS combinations at most; as long as nothing at all is found, the others are tried from the shortest on, for
MAX_HOPELESS at most. Then the `num_lengths` best of all are searched in full.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal, TypeAlias

import torch

from bibs.search import (
    Conditions,
    Constraints,
    Fill,
    Gap,
    Layout,
    OneOf,
    Template,
    Tokens,
    Trees,
    select_conditions,
)

from .joins import join_scores
from .paper import believed_lengths
from .prior import UNFITTED, LengthPrior, ScoreKind

MAX_LAYOUTS = 40
"""Combinations of lengths that climbing searches at most."""

MAX_HOPELESS = 10 * MAX_LAYOUTS
"""The same where none of them has a fill: all of two gaps of up to 20 words."""

LengthRule: TypeAlias = Literal["unknown", "paper"]

Lengths: TypeAlias = tuple[int, ...]
"""One length per gap."""

Search: TypeAlias = Callable[[list[Layout], list[int]], list[list[Fill]]]
"""(layouts, the template that each is a variant of) -> the fills of each."""


@dataclass(frozen=True)
class LengthSettings:
    lengths: LengthRule = "unknown"
    max_length: int = 20
    num_lengths: int | None = 3
    length_prior: LengthPrior = UNFITTED

    @property
    def compare(self) -> bool:
        """Whether lengths are compared by the prior; the paper knows none."""
        return self.lengths == "unknown"


@dataclass(frozen=True)
class Plan:
    """The lengths with which a template is searched. One without gaps has one combination, the empty one."""

    lengths: tuple[Lengths, ...]
    ranges: tuple[range, ...] = ()
    given: int = 0  # words of the template, gaps apart
    least: int = 0  # words in all gaps together, so that what must be included has room
    climbs: bool = False  # whether `lengths` are only those from which to climb

    def allows(self, lengths: Lengths) -> bool:
        within = all(length in allowed for length, allowed in zip(lengths, self.ranges, strict=True))
        return within and sum(lengths) >= self.least


def neighbours(lengths: Lengths) -> Iterator[Lengths]:
    """One gap one or two words longer or shorter, or a word moved from one gap to another."""
    gaps = range(len(lengths))
    changes: list[dict[int, int]] = [{gap: step} for gap in gaps for step in (1, -1, 2, -2)]
    changes += [{a: 1, b: -1} for a, b in itertools.permutations(gaps, 2)]
    for change in changes:
        yield tuple(length + change.get(gap, 0) for gap, length in enumerate(lengths))


def fill_gaps(
    templates: Sequence[Template],
    plans: Sequence[Plan],
    search: Search,
    kind: ScoreKind,
    settings: LengthSettings,
    wanted: int,
) -> list[list[Fill]]:
    """Search every template with the lengths of its plan, and rank what was found at all of them, `kind` of score."""
    asked = [(index, lengths) for index, plan in enumerate(plans) for lengths in plan.lengths]
    found: list[list[Fill]] = [[] for _ in templates]
    layouts = [Layout.of(templates[index], lengths) for index, lengths in asked]
    for (index, lengths), fills in zip(asked, search(layouts, [index for index, _ in asked]), strict=True):
        found[index] += [_across(fill, lengths, plans[index], kind, settings) for fill in fills]
    return [_best(fills, wanted) for fills in found]


def climb(
    templates: Sequence[Template], plans: Sequence[Plan], quick: Search, kind: ScoreKind, settings: LengthSettings
) -> list[Plan]:
    """The plans, with the best lengths that quick searches find in place of those from which to climb."""
    plans = list(plans)
    worth: list[dict[Lengths, float]] = [{} for _ in plans]
    going = {index: plan for index, plan in enumerate(plans) if plan.climbs}
    while going:
        asked = [going.get(index, Plan(())) for index in range(len(plans))]
        found = fill_gaps(templates, asked, quick, kind, settings, MAX_LAYOUTS)
        for index, plan in list(going.items()):
            worth[index] |= dict.fromkeys(plan.lengths, -torch.inf)
            for fill in reversed(found[index]):
                worth[index][fill.lengths] = fill.ranking_score - fill.penalty
            best = max(worth[index], key=lambda lengths: worth[index][lengths])
            hopeless = worth[index][best] == -torch.inf
            others = sorted(itertools.product(*plan.ranges), key=sum) if hopeless else neighbours(best)
            fresh = (each for each in others if plan.allows(each) and each not in worth[index])
            room = min(MAX_LAYOUTS, (MAX_HOPELESS if hopeless else MAX_LAYOUTS) - len(worth[index]))
            going[index] = replace(plan, lengths=tuple(itertools.islice(fresh, max(0, room))))
            if not going[index].lengths:
                del going[index]
                order = sorted(worth[index], key=lambda lengths: -worth[index][lengths])
                plans[index] = replace(plan, lengths=tuple(order[: settings.num_lengths]))
    return plans


def _best(fills: Iterable[Fill], count: int) -> list[Fill]:
    """The best, best first. Two combinations of lengths may make the same sentence: it is returned once."""
    distinct: dict[Tokens, Fill] = {}
    for fill in sorted(fills, key=lambda fill: fill.penalty - fill.ranking_score):
        distinct.setdefault(fill.tokens, fill)
    return list(distinct.values())[:count]


def _across(fill: Fill, lengths: Lengths, plan: Plan, kind: ScoreKind, settings: LengthSettings) -> Fill:
    """The fill, ranked so that it can be compared with fills of other lengths."""
    if not lengths:
        return fill
    scores = {
        "sum": fill.score,
        "max": max(fill.forward_score, fill.backward_score),
        "forward": fill.forward_score,
        "backward": fill.backward_score,
    }
    bonus = settings.length_prior.bonus(kind, words=sum(lengths), given=plan.given) if settings.compare else 0.0
    return replace(fill, ranking_score=scores[kind] + bonus, lengths=lengths)


def plan_lengths(
    trees: Trees,
    templates: Sequence[Template],
    conditions: Conditions,
    num_required: Sequence[int],
    settings: LengthSettings,
    constraints: Callable[[int | None], Constraints],
) -> list[Plan]:
    """What to try for each template of the trees; no lengths so short that its required words do not fit.

    `constraints` gives those of plain searches, under which one token more may be allowed.
    """
    plans = [range_plan(template, words, settings) for template, words in zip(templates, num_required, strict=True)]
    chosen = [index for index, plan in enumerate(plans) if len(plan.ranges) == 1 and _must_choose(plan, settings)]
    if not chosen:
        return plans
    picked = [templates[index] for index in chosen]
    if settings.lengths == "paper":
        given = select_conditions(conditions, chosen)
        ends = believed_lengths(trees, picked, given, settings.max_length, constraints)
        for index, (low, high) in zip(chosen, ends, strict=True):
            allowed = plans[index].ranges[0]
            low, high = (min(max(length, allowed[0]), allowed[-1]) for length in (low, high))
            plans[index] = replace(plans[index], lengths=tuple((length,) for length in range(low, high + 1)))
        return plans
    rooms = [plans[index].ranges[0][-1] for index in chosen]
    joins = join_scores(trees, picked, rooms, constraints(None), chosen)
    for index, scores in zip(chosen, joins, strict=True):
        plans[index] = _keep_best(plans[index], scores, settings)
    return plans


def range_plan(template: Template, num_required: int, settings: LengthSettings) -> Plan:
    """All combinations of the lengths that the gaps may have, or where climbing through them begins."""
    gaps = [token for token in template if isinstance(token, Gap)]
    if not gaps:
        return Plan(((),))
    if settings.lengths == "paper" and len(gaps) > 1:
        raise ValueError(
            f"`lengths` must be 'unknown' for several blanks of unknown length, but is 'paper' for {len(gaps)}"
        )
    given = len(template) - len(gaps) - 2
    least = num_required - sum(token is None or isinstance(token, OneOf) for token in template)
    if len(gaps) == 1:
        gaps = [replace(gaps[0], minimum=max(gaps[0].minimum, least))]
    ranges = tuple(_lengths_of(gap, given, settings) for gap in gaps)
    plan = Plan((), ranges, given, least)
    few = settings.num_lengths is None or prod(map(len, ranges)) <= settings.num_lengths ** len(gaps)
    climbs = len(gaps) > 1 and not few
    first = _alike(ranges, least) if climbs else list(itertools.product(*ranges))
    first = [lengths for lengths in first if plan.allows(lengths)]
    if not first:
        raise ValueError(f"`max_length` must leave room for {least} words in the blanks, but is {settings.max_length}")
    return replace(plan, lengths=tuple(first[:MAX_LAYOUTS] if climbs else first), climbs=climbs)


def _alike(ranges: Sequence[range], least: int) -> list[Lengths]:
    """The combinations in which all gaps are as alike as their ranges let them be, none larger than it need be."""
    lengths = range(min(allowed[0] for allowed in ranges), max(allowed[-1] for allowed in ranges) + 1)
    alike = [tuple(min(max(length, allowed[0]), allowed[-1]) for allowed in ranges) for length in lengths]
    enough = [each for each in dict.fromkeys(alike) if sum(each) >= least]
    return [each for each in enough if each == enough[0] or sum(each) <= lengths[-1]]


def _lengths_of(gap: Gap, given: int, settings: LengthSettings) -> range:
    """From its minimum to its maximum; where that was left open, to what `max_length` and the length prior allow."""
    most = gap.maximum
    if most is None:
        room = settings.length_prior.room(given) if settings.compare else None
        most = settings.max_length if room is None else min(settings.max_length, max(room, gap.minimum))
    if gap.minimum > most:
        raise ValueError(f"`max_length` must be at least the {gap.minimum} words of a blank, but is {most}")
    return range(gap.minimum, most + 1)


def _must_choose(plan: Plan, settings: LengthSettings) -> bool:
    """Whether there are more lengths than are to be searched."""
    return not settings.compare or (settings.num_lengths is not None and len(plan.lengths) > settings.num_lengths)


def _keep_best(plan: Plan, joins: Sequence[float], settings: LengthSettings) -> Plan:
    """The `num_lengths` lengths at which the beams join best; and 0 where it is allowed, which has no place to join."""
    prior = settings.length_prior
    worth = {
        length: score + prior.bonus("join", words=length, given=plan.given)
        for length, score in enumerate(joins, start=1)
        if length in plan.ranges[0]
    }
    best = sorted(worth, key=lambda length: -worth[length])[: settings.num_lengths]
    return replace(plan, lengths=tuple((length,) for length in plan.ranges[0] if length in best or length == 0))
