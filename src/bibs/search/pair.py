"""Two models before the same blanks, and what every method does around its search.

A method proposes fills; here templates are checked, sorted and cut into batches, contexts read (once per model), and
proposals turned into results: S(Y) = log P_f(Y) + log P_g(Y), whole sequence, context included.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias, TypedDict

import torch
from torch import Tensor

from .beam import Opening, Pass
from .scoring import Asked, Remembered, score_fills
from .settings import Direction, Settings
from .step_model import Conditions, StepModel, select_conditions
from .template import Layout, Template, Tokens, check_templates

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
    trace: tuple[TracedPass, ...] = ()


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

    def select(self, examples: Tensor) -> Memory:
        return Memory(*(p and p.select(examples) for p in (self.forward, self.backward)))


class Proposed(NamedTuple):
    """What a method knows of a fill: by what it ranks it, and at most what log probability each model gives it."""

    own: float = 0.0
    forward: float = 0.0
    backward: float = 0.0

    def bound(self, direction: Direction) -> float:
        return self.forward if direction == "forward" else self.backward


Proposal: TypeAlias = dict[Tokens, Proposed]
"""Left-to-right fills of one example's region."""


def merge(into: Proposal, proposal: Proposal) -> None:
    """Add what a later pass proposes; what is known of a fill stays known."""
    for fill, new in proposal.items():
        old = into.get(fill, new)
        into[fill] = Proposed(new.own, min(old.forward, new.forward), min(old.backward, new.backward))


def propose(direction: Direction, latest: Pass, widths: Sequence[int]) -> list[Proposal]:
    """The live fills of a pass, best first, read from left to right."""
    tokens, scores, ranking = latest.fills()
    turn = 1 if direction == "forward" else -1
    proposals: list[Proposal] = []
    for rows, sums, values, width in zip(tokens.tolist(), scores.tolist(), ranking.tolist(), widths, strict=True):
        known = [Proposed(v, s, 0.0) if turn == 1 else Proposed(v, 0.0, s) for v, s in zip(values, sums, strict=True)]
        live = [(tuple(row[:width][::turn]), one) for row, one in zip(rows, known, strict=True) if one.own > -torch.inf]
        proposals.append(dict(live))
    return proposals


@dataclass(frozen=True)
class Case:
    """One example, ready to be answered: its place in a batch, what the passes know, and what was proposed for it."""

    pair: Pair
    memory: Memory
    example: int
    proposal: Proposal


def cases_of(pair: Pair, memory: Memory, proposals: Sequence[Proposal]) -> list[Case]:
    return [Case(pair, memory, example, proposal) for example, proposal in enumerate(proposals)]


Ranking = Literal["own", "sum", "max"]
"""By what the method itself says, or by the sum or the larger of the two whole-sequence scores."""

SLACK = 1e-3
"""How far rounding may carry a sum of log probabilities."""


def score_cases(cases: Sequence[Case], fills: Sequence[Sequence[Tokens]]) -> list[list[tuple[float, float]]]:
    """(forward_score, backward_score) of each fill of each case, exact."""
    asked = [(case, fill) for case, group in zip(cases, fills, strict=True) for fill in group]
    pairs = iter(zip(_score("forward", asked), _score("backward", asked), strict=True))
    return [[next(pairs) for _ in group] for group in fills]


def score_above(
    cases: Sequence[Case], fills: Sequence[Sequence[Tokens]], floors: Sequence[float]
) -> list[list[tuple[float, float]]]:
    """As `score_cases`, but a fill whose sum cannot reach its case's floor is given up, and scores -inf.

    Log probabilities only ever lower a sum. A model whose say on a fill is not known yet goes first.
    """
    asked = [(case, fill) for case, group in zip(cases, fills, strict=True) for fill in group]
    floor = [value - SLACK for value, group in zip(floors, fills, strict=True) for _ in group]
    best: dict[Direction, list[float]] = {  # what each model may give at most
        direction: [
            float(case.pair[direction].scores[case.example]) + case.proposal[fill].bound(direction)
            for case, fill in asked
        ]
        for direction in DIRECTIONS
    }
    later = [
        k for k, (case, fill) in enumerate(asked) if case.proposal[fill].forward < 0 == case.proposal[fill].backward
    ]
    sooner = sorted(set(range(len(asked))) - set(later))

    def score(direction: Direction, which: list[int]) -> None:
        other = best[opposite(direction)]
        which = [k for k in which if best[direction][k] + other[k] >= floor[k]]
        found = _score(direction, [asked[k] for k in which], [floor[k] - other[k] for k in which])
        for k, value in zip(which, found, strict=True):
            best[direction][k] = value

    score("forward", sooner)
    score("backward", [*sooner, *later])
    score("forward", later)
    sums = (
        (f, b) if f + b >= least else (-torch.inf, -torch.inf)
        for f, b, least in zip(best["forward"], best["backward"], floor, strict=True)
    )
    return [[next(sums) for _ in group] for group in fills]


def _score(
    direction: Direction, asked: Sequence[tuple[Case, Tokens]], limits: Sequence[float] | None = None
) -> list[float]:
    places: dict[int, int] = {}
    sources: list[Remembered] = []
    rows = []
    turn = 1 if direction == "forward" else -1
    for case, fill in asked:
        if places.setdefault(id(case.pair), len(sources)) == len(sources):
            sources.append(Remembered(case.pair[direction], case.memory[direction]))
        rows.append(Asked(places[id(case.pair)], case.example, fill[::turn]))
    return score_fills(sources, rows, limits)


def finish(cases: Sequence[Case], settings: Settings, ranking: Ranking) -> list[list[Fill]]:
    """Score what was proposed, sort it, and keep the best."""
    wanted = settings.num_return_sequences
    leaders = [sorted(case.proposal, key=lambda fill: -case.proposal[fill].own)[:wanted] for case in cases]
    scored = [
        dict(zip(group, pairs, strict=True)) for group, pairs in zip(leaders, score_cases(cases, leaders), strict=True)
    ]
    if ranking != "own":
        others = [
            [fill for fill in case.proposal if fill not in done] for case, done in zip(cases, scored, strict=True)
        ]
        floors = [min((sum(pair) for pair in done.values()), default=-torch.inf) for done in scored]
        found = score_above(cases, others, floors) if ranking == "sum" else score_cases(cases, others)
        for done, group, pairs in zip(scored, others, found, strict=True):
            done.update(zip(group, pairs, strict=True))
    results = []
    for case, done in zip(cases, scored, strict=True):
        layout = case.pair.forward.layouts[case.example]
        fills = [
            Fill(
                tokens=layout.fill(fill),
                score=forward + backward,
                ranking_score={
                    "own": case.proposal[fill].own,
                    "sum": forward + backward,
                    "max": max(forward, backward),
                }[ranking],
                forward_score=forward,
                backward_score=backward,
            )
            for fill, (forward, backward) in done.items()
        ]
        fills.sort(key=lambda fill: -fill.ranking_score)
        # A template without a blank always comes back, even where a model thinks it impossible.
        results.append([fill for fill in fills if fill.ranking_score > -torch.inf or not layout.region][:wanted])
    return results


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

    Layouts of one owner are variants of one template: they share its condition and are searched in one batch.
    """
    groups: dict[int, list[int]] = {}
    for index, owner in enumerate(range(len(layouts)) if owners is None else owners):
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
    """Owners of like region and context together, about `size` layouts at a time, an owner's never apart."""
    owners.sort(
        key=lambda owner: max(
            (-len(a.region), len(a.context), len(a.rest)) for a in (layouts[i] for i in groups[owner])
        )
    )
    batch: list[int] = []
    count = 0
    for owner in owners:
        if batch and count + len(groups[owner]) > size:
            yield batch
            batch, count = [], 0
        batch.append(owner)
        count += len(groups[owner])
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
