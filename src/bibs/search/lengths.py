"""Blanks of unknown length: which lengths to try, and how to compare them.

How: fills of different lengths are ranked by a calibrated score (length_prior.py). Which: a template with one gap is
searched with the `num_lengths` lengths at which the two models' plain beams meet best (meeting.py), by the same prior.

Several gaps are tried in all combinations where these are at most `num_lengths` to the power of gaps. Otherwise they
climb: from the best of those combinations in which all gaps are alike, to the best neighbour (one gap longer or shorter
by a word or two, or a word moved from one to another), as long as that is better, for MAX_LAYOUTS combinations at most.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

import torch

from .length_prior import ScoreKind
from .meeting import Sides, meet
from .pair import Fill, best_fills
from .run_on import run_on
from .settings import Settings
from .step_model import Conditions, StepModel, select_conditions
from .template import Gap, Layout, Template, stretch

MAX_LAYOUTS = 40
"""Combinations of lengths that climbing searches at most."""

Lengths: TypeAlias = tuple[int, ...]
"""One length per gap."""

Search: TypeAlias = Callable[[list[Layout], list[int]], list[list[Fill]]]
"""(layouts, the template that each is a variant of) -> the fills of each."""


@dataclass(frozen=True)
class Plan:
    """The lengths with which a template is searched. One without gaps has one combination, the empty one."""

    first: tuple[Lengths, ...]
    ranges: tuple[range, ...] = ()
    given: int = 0  # words of the template, gaps apart
    least: int = 0  # words in all gaps together, so that what must be included has room
    climbs: bool = False

    def after(self, found: Mapping[Lengths, Sequence[Fill]]) -> list[Lengths]:
        """What to search next, given what was found with the combinations searched so far."""
        if not self.climbs:
            return []
        best = max(found, key=lambda each: max((fill.standing for fill in found[each]), default=-torch.inf))
        fresh = [lengths for lengths in neighbours(best) if self.allows(lengths) and lengths not in found]
        return fresh[: MAX_LAYOUTS - len(found)]

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
    method: str,
    templates: Sequence[Template],
    required: Sequence[Sequence[int]],
    plans: Sequence[Plan],
    search: Search,
    settings: Settings,
) -> list[list[Fill]]:
    """Search every template with the lengths of its plan, and rank what was found at all of them."""
    found: list[dict[Lengths, list[Fill]]] = [{} for _ in templates]
    wanted = {index: list(plan.first) for index, plan in enumerate(plans)}
    while wanted:
        asked = [(index, lengths) for index, several in wanted.items() for lengths in several]
        layouts = [Layout.of(stretch(templates[index], lengths), required[index]) for index, lengths in asked]
        for (index, lengths), fills in zip(asked, search(layouts, [index for index, _ in asked]), strict=True):
            found[index][lengths] = [_across(method, fill, lengths, plans[index], settings) for fill in fills]
        wanted = {index: more for index in wanted if (more := plans[index].after(found[index]))}
    return [_merge(several, settings) for several in found]


def _across(method: str, fill: Fill, lengths: Lengths, plan: Plan, settings: Settings) -> Fill:
    """The fill, ranked so that it can be compared with fills of other lengths."""
    if not lengths:
        return fill
    kinds: dict[str, ScoreKind] = {"forward": "forward", "backward": "backward", "rerank-max": "max"}
    kind = kinds.get(method, "sum")
    scores = {
        "sum": fill.score,
        "max": max(fill.forward_score, fill.backward_score),
        "forward": fill.forward_score,
        "backward": fill.backward_score,
    }
    bonus = settings.length_prior.bonus(kind, words=sum(lengths), given=plan.given)
    ranking = scores[kind] + (bonus if settings.lengths == "unknown" else 0.0)
    return replace(fill, ranking_score=ranking, lengths=lengths)


def _merge(found: Mapping[Lengths, list[Fill]], settings: Settings) -> list[Fill]:
    """The best over all lengths. Two combinations may make the same sentence: it is returned once."""
    return best_fills(itertools.chain.from_iterable(found.values()), settings)


def plan_lengths(
    forward: StepModel,
    backward: StepModel,
    templates: Sequence[Template],
    settings: Settings,
    *,
    conditions: Conditions = None,
    banned: Sequence[int] = (),
    required: Sequence[Sequence[int]] | None = None,
) -> list[Plan]:
    """What to try for each template; no lengths so short that its `required` words do not fit."""
    required = [()] * len(templates) if required is None else required
    plans = [_range_plan(template, len(words), settings) for template, words in zip(templates, required, strict=True)]
    chosen = [index for index, plan in enumerate(plans) if len(plan.ranges) == 1 and _judged(plan, settings)]
    sides = [_sides(templates[index]) for index in chosen]
    conditions = select_conditions(conditions, chosen)
    options = (settings, conditions, banned)
    if settings.lengths == "paper":
        ends = _run_on_both(forward, backward, sides, *options)
        for index, (low, high) in zip(chosen, ends, strict=True):
            allowed = plans[index].ranges[0]
            low, high = (min(max(length, allowed[0]), allowed[-1]) for length in (low, high))
            plans[index] = replace(plans[index], first=tuple((length,) for length in range(low, high + 1)))
        return plans
    rooms = [plans[index].ranges[0][-1] for index in chosen]
    for index, meeting in zip(chosen, meet(forward, backward, sides, rooms, *options), strict=True):
        plans[index] = _keep_best(plans[index], meeting, settings)
    return plans


def _range_plan(template: Template, num_required: int, settings: Settings) -> Plan:
    """All combinations of the lengths that the gaps may have, or where climbing through them begins."""
    gaps = [token for token in template if isinstance(token, Gap)]
    if not gaps:
        return Plan(first=((),))
    if settings.lengths == "paper" and len(gaps) > 1:
        raise ValueError(
            f"`lengths` must be 'unknown' for several blanks of unknown length, but is 'paper' for {len(gaps)}"
        )
    given = len(template) - len(gaps) - 2
    least = num_required - sum(token is None for token in template)
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
    return replace(plan, first=tuple(first[:MAX_LAYOUTS] if climbs else first), climbs=climbs)


def _alike(ranges: Sequence[range], least: int) -> list[Lengths]:
    """The combinations in which all gaps are as alike as their ranges let them be, none larger than it need be."""
    lengths = range(min(allowed[0] for allowed in ranges), max(allowed[-1] for allowed in ranges) + 1)
    alike = [tuple(min(max(length, allowed[0]), allowed[-1]) for allowed in ranges) for length in lengths]
    enough = [each for each in dict.fromkeys(alike) if sum(each) >= least]
    return [each for each in enough if each == enough[0] or sum(each) <= lengths[-1]]


def _lengths_of(gap: Gap, given: int, settings: Settings) -> range:
    """From its minimum to its maximum; where that was left open, to what `max_length` and the length prior allow."""
    most = gap.maximum
    if most is None:
        room = settings.length_prior.room(given) if settings.lengths == "unknown" else None
        most = settings.max_length if room is None else min(settings.max_length, max(room, gap.minimum))
    if gap.minimum > most:
        raise ValueError(f"`max_length` must be at least the {gap.minimum} words of a blank, but is {most}")
    return range(gap.minimum, most + 1)


def _judged(plan: Plan, settings: Settings) -> bool:
    """Whether there are more lengths than are to be searched."""
    return settings.lengths == "paper" or (settings.num_lengths is not None and len(plan.first) > settings.num_lengths)


def _keep_best(plan: Plan, meeting: Sequence[float], settings: Settings) -> Plan:
    """The `num_lengths` lengths at which the beams meet best; and 0 where it is allowed, which has no place to meet."""
    prior = settings.length_prior
    worth = {
        length: score + prior.bonus("meeting", words=length, given=plan.given)
        for length, score in enumerate(meeting, start=1)
        if length in plan.ranges[0]
    }
    best = sorted(worth, key=lambda length: -worth[length])[: settings.num_lengths]
    return replace(plan, first=tuple((length,) for length in plan.ranges[0] if length in best or length == 0))


def _sides(template: Template) -> Sides:
    place = next(place for place, token in enumerate(template) if isinstance(token, Gap))
    left, right = (
        [token for token in side if not isinstance(token, Gap)] for side in (template[:place], template[place:])
    )
    return left, right


def _run_on_both(
    forward: StepModel,
    backward: StepModel,
    sides: Sequence[Sides],
    settings: Settings,
    conditions: Conditions,
    banned: Sequence[int],
) -> list[tuple[int, int]]:
    """The shorter and the longer of the two lengths that the models, each alone, would give a gap."""
    lefts, rights = [left for left, _ in sides], [right for _, right in sides]
    from_left = run_on("forward", forward, lefts, rights, settings, conditions, banned)
    lefts, rights = ([side[::-1] for side in several] for several in (lefts, rights))
    from_right = run_on("backward", backward, rights, lefts, settings, conditions, banned)
    return [(min(both), max(both)) for both in zip(from_left, from_right, strict=True)]
