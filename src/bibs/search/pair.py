"""Two models before the same blanks, and what every method does around its search.

A method proposes fills; here templates are checked, sorted and cut into batches, contexts read (once per model), and
proposals turned into results: S(Y) = log P_f(Y) + log P_g(Y), whole sequence, context included.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypedDict

import torch
from torch import Tensor

from .beam import Opening, Pass
from .scoring import Asked, Remembered, look_up, portions
from .settings import Direction, Settings
from .step_model import Conditions, StepModel, select_conditions
from .template import Layout, Template, Tokens, check_templates

MARGIN = 1e-3
"""By how much a fill must be worse than another before it is given up: sums of float32 differ by less."""

DIRECTIONS: tuple[Direction, Direction] = ("forward", "backward")


def opposite(direction: Direction) -> Direction:
    return "backward" if direction == "forward" else "forward"


@dataclass(frozen=True)
class TracedPass:
    """What one pass of a search saw: for figures, and for a reader who wants to follow the beams."""

    direction: Direction
    tokens: Tokens  # the whole sequence of its top fill
    score: float  # S of that sequence
    ranking_score: float  # what the pass itself ranked it by
    frontiers: tuple[tuple[tuple[Tokens, float], ...], ...]  # per slot, in reading order: partial fill, running score


@dataclass(frozen=True)
class Fill:
    """One filled template."""

    tokens: Tokens
    score: float  # S = forward_score + backward_score
    ranking_score: float  # what the method sorts by
    forward_score: float
    backward_score: float
    rounds: int = 0
    lengths: tuple[int, ...] = ()  # of each gap, where the template has any
    penalty: float = 0.0  # what its words lost for standing in earlier answers, which no score shows
    trace: tuple[TracedPass, ...] = ()

    @property
    def standing(self) -> float:
        """By what it competes with the other fills of its search."""
        return self.ranking_score - self.penalty


@dataclass(frozen=True)
class Pair:
    """The two models, having read what stands on their own side of the blanks."""

    forward: Opening
    backward: Opening

    def __getitem__(self, direction: Direction) -> Opening:
        return self.forward if direction == "forward" else self.backward

    def __len__(self) -> int:
        return len(self.forward.layouts)

    def select(self, examples: Tensor) -> Pair:
        return Pair(self.forward.select(examples), self.backward.select(examples))


@dataclass(frozen=True)
class Memory:
    """The last pass in each direction, where there was one."""

    forward: Pass | None = None
    backward: Pass | None = None

    def __getitem__(self, direction: Direction) -> Pass | None:
        return self.forward if direction == "forward" else self.backward

    def after(self, direction: Direction, latest: Pass) -> Memory:
        return replace(self, forward=latest) if direction == "forward" else replace(self, backward=latest)


Proposal: TypeAlias = dict[Tokens, float]
"""Left-to-right fills of one example's region, each with what the method itself ranks it by."""


def propose(direction: Direction, latest: Pass, widths: Sequence[int]) -> list[Proposal]:
    """The live fills of a pass, best first, read from left to right."""
    tokens, _, ranking = latest.fills()
    turn = 1 if direction == "forward" else -1
    return [
        {tuple(row[:width][::turn]): value for row, value in zip(rows, values, strict=True) if value > -torch.inf}
        for rows, values, width in zip(tokens.tolist(), ranking.tolist(), widths, strict=True)
    ]


Ranking = Literal["own", "sum", "max"]
"""By what the method itself says, or by the sum or the larger of the two whole-sequence scores."""


def score_both(
    pair: Pair, memory: Memory, fills: Sequence[Sequence[Tokens]], floors: Sequence[Sequence[float]] | None = None
) -> list[list[tuple[float, float]]]:
    """(forward_score, backward_score) of each fill of each example: exact, where their sum reaches the fill's floor."""
    asked = [Asked(example, fill) for example, group in enumerate(fills) for fill in group]
    needed = None if floors is None else [floor for group in floors for floor in group]
    pairs: list[tuple[float, float]] = []
    for part in portions(len(asked), pair.forward):
        forward = look_up(Remembered(pair.forward, memory.forward), asked[part])
        turned = [Asked(example, fill[::-1]) for example, fill in asked[part]]
        backward = look_up(Remembered(pair.backward, memory.backward), turned)
        if needed is None:
            scores = forward.score(), backward.score()
        else:
            least = forward.totals.new_tensor(needed[part])
            first = forward.score(least - backward.totals)
            scores = first, backward.score(least - first)
        pairs += zip(*(each.tolist() for each in scores), strict=True)
    given = iter(pairs)
    return [[next(given) for _ in group] for group in fills]


def finish(
    pair: Pair, memory: Memory, proposals: Sequence[Proposal], settings: Settings, ranking: Ranking
) -> list[list[Fill]]:
    """Score what was proposed for each example, sort it, and keep the best."""
    wanted = settings.num_return_sequences
    fills = [list(proposal) for proposal in proposals]
    if ranking == "own":
        fills = [sorted(proposal, key=lambda fill: -proposal[fill])[:wanted] for proposal in proposals]
    if ranking == "sum":
        fills, scores = _score_best(pair, memory, fills, wanted)
    else:
        scores = score_both(pair, memory, fills)
    results = []
    for layout, proposal, group, pairs in zip(pair.forward.layouts, proposals, fills, scores, strict=True):
        found = []
        for fill, (forward, backward) in zip(group, pairs, strict=True):
            penalty = layout.penalty(fill)
            by = {"own": proposal[fill] + penalty, "sum": forward + backward, "max": max(forward, backward)}
            found.append(Fill(layout.fill(fill), forward + backward, by[ranking], forward, backward, penalty=penalty))
        # A template without a blank always comes back, even where a model thinks it impossible.
        results.append(
            best_fills((fill for fill in found if fill.ranking_score > -torch.inf or not layout.region), settings)
        )
    return results


def _score_best(
    pair: Pair, memory: Memory, fills: Sequence[Sequence[Tokens]], wanted: int
) -> tuple[list[list[Tokens]], list[list[tuple[float, float]]]]:
    """The fills of each example that may be among its `wanted` best, with their exact scores.

    The first few are scored whole. The others have to reach the last of those, and are given up where they do not.
    """
    leading = [list(group[:wanted]) for group in fills]
    scores = score_both(pair, memory, leading)
    others = [list(group[wanted:]) for group in fills]
    floors = []
    for layout, group, pairs, rest in zip(pair.forward.layouts, leading, scores, others, strict=True):
        standings = [sum(both) - layout.penalty(fill) for fill, both in zip(group, pairs, strict=True)]
        floor = min(standings) - MARGIN if len(standings) == wanted else -torch.inf
        floors.append([floor + layout.penalty(fill) for fill in rest])
    further = score_both(pair, memory, others, floors)
    for group, pairs, rest, more, least in zip(leading, scores, others, further, floors, strict=True):
        reached = [place for place, both in enumerate(more) if sum(both) >= least[place]]
        group += [rest[place] for place in reached]
        pairs += [more[place] for place in reached]
    return leading, scores


def best_fills(fills: Iterable[Fill], settings: Settings) -> list[Fill]:
    """The best distinct fills, best first."""
    distinct: dict[Tokens, Fill] = {}
    for fill in sorted(fills, key=lambda fill: -fill.standing):
        distinct.setdefault(fill.tokens, fill)
    return list(distinct.values())[: settings.num_return_sequences]


def fill_in_batches(
    forward: StepModel,
    backward: StepModel,
    layouts: Sequence[Layout],
    search: Callable[[Pair, Settings], list[list[Fill]]],
    settings: Settings,
    *,
    conditions: Conditions = None,
    banned: Sequence[int] = (),
    owners: Sequence[int] | None = None,
) -> list[list[Fill]]:
    """Run `search` on batches of layouts of similar size; results come back in the order of the layouts.

    Layouts of one owner are variants of one template: they share its condition and are searched in one batch. A batch
    holds layouts with equally many required words.
    """
    groups: dict[int, list[int]] = {}
    for index, owner in enumerate(range(len(layouts)) if owners is None else owners):
        if layouts[index].has_room:
            groups.setdefault(owner, []).append(index)
    results: list[list[Fill]] = [[] for _ in layouts]
    for batch in _batches(list(groups), groups, layouts, settings.examples_per_batch):
        members = [(index, number) for number, owner in enumerate(batch) for index in groups[owner]]
        members.sort(key=lambda member: -len(layouts[member[0]].region))  # as an opening wants them
        chosen = [layouts[index] for index, _ in members]
        options: _ReadOptions = {
            "conditions": select_conditions(conditions, batch),
            "banned": banned,
            "owners": [number for _, number in members],
        }
        pair = Pair(
            Opening.read("forward", forward, chosen, **options),
            Opening.read("backward", backward, [layout.mirrored() for layout in chosen], **options),
        )
        for (index, _), fills in zip(members, search(pair, settings), strict=True):
            results[index] = fills
    return results


class _ReadOptions(TypedDict):
    conditions: Conditions
    banned: Sequence[int]
    owners: Sequence[int]


def _batches(
    owners: list[int], groups: Mapping[int, Sequence[int]], layouts: Sequence[Layout], size: int
) -> Iterator[list[int]]:
    """Owners of like region and context together, about `size` layouts at a time, an owner's never apart.

    With k required words a layout has 2^k times the rows, and counts so often.
    """
    owners.sort(
        key=lambda owner: max(
            (len(a.required), -len(a.region), len(a.context), len(a.rest)) for a in (layouts[i] for i in groups[owner])
        )
    )
    batch: list[int] = []
    count = num_required = 0
    for owner in owners:
        needed = len(layouts[groups[owner][0]].required)
        more = len(groups[owner]) << needed
        if batch and (count + more > size or needed != num_required):
            yield batch
            batch, count = [], 0
        batch.append(owner)
        count, num_required = count + more, needed
    if batch:
        yield batch


def check_problem(
    forward: StepModel,
    backward: StepModel,
    templates: Sequence[Template],
    conditions: Conditions,
    banned: Sequence[int],
) -> None:
    if forward.vocab_size != backward.vocab_size:
        raise ValueError(
            f"`forward` and `backward` must share one vocabulary, "
            f"but their `vocab_size` are {forward.vocab_size} and {backward.vocab_size}"
        )
    if conditions is not None and len(conditions) != len(templates):
        raise ValueError(f"`conditions` must hold one per template ({len(templates)}), but holds {len(conditions)}")
    for token in banned:
        if not 0 <= token < forward.vocab_size:
            raise ValueError(f"`banned` must hold ids from 0 to {forward.vocab_size - 1}, but holds {token}")
    check_templates(templates, forward.vocab_size)


def say_if_fewer(results: Sequence[Sequence[Fill]], num_return_sequences: int) -> None:
    short = [index for index, fills in enumerate(results) if len(fills) < num_return_sequences]
    if short and num_return_sequences > 1:
        warnings.warn(
            f"`num_return_sequences` is {num_return_sequences}, but only {len(results[short[0]])} distinct fills were "
            f"found for `templates[{short[0]}]`" + (f" and fewer for {len(short) - 1} others" if short[1:] else ""),
            stacklevel=3,
        )
