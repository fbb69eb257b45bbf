"""Two models before the same blanks, and what every method does around its search.

A method proposes fills; here templates are checked, sorted and cut into batches, contexts read (once per model), and
proposals turned into results: S(Y) = log P_f(Y) + log P_g(Y), whole sequence, context included.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypedDict

import torch
from torch import Tensor

from .beam import Opening, Pass
from .scoring import score_fills
from .settings import Direction, Settings
from .step_model import Conditions, StepModel, select_conditions
from .template import Layout, Template, check_templates

Tokens: TypeAlias = tuple[int, ...]


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


def score_pairs(
    pair: Pair, fills: Sequence[Sequence[Tokens]], memory: Memory | None = None
) -> list[list[tuple[float, float]]]:
    """(forward_score, backward_score) of each fill of each example, exact."""
    memory = memory or Memory()
    turned = [[fill[::-1] for fill in group] for group in fills]
    forward = score_fills(pair.forward, fills, memory.forward)
    backward = score_fills(pair.backward, turned, memory.backward)
    return [list(zip(f, b, strict=True)) for f, b in zip(forward, backward, strict=True)]


def finish(
    pair: Pair,
    proposals: Sequence[Proposal],
    settings: Settings,
    *,
    rank: Callable[[float, float], float] | None = None,
    memory: Memory | None = None,
) -> list[list[Fill]]:
    """Score the proposals and sort them by `rank(forward_score, backward_score)`; without it, as they were ranked."""
    if rank is None:
        proposals = [
            dict(sorted(proposal.items(), key=lambda item: -item[1])[: settings.num_return_sequences])
            for proposal in proposals
        ]
    scores = score_pairs(pair, [list(proposal) for proposal in proposals], memory)
    results = []
    for layout, proposal, pairs in zip(pair.forward.layouts, proposals, scores, strict=True):
        fills = [
            Fill(
                tokens=layout.fill(fill),
                score=forward + backward,
                ranking_score=own if rank is None else rank(forward, backward),
                forward_score=forward,
                backward_score=backward,
            )
            for (fill, own), (forward, backward) in zip(proposal.items(), pairs, strict=True)
        ]
        fills.sort(key=lambda fill: -fill.ranking_score)
        # A template without a blank always comes back, even where a model thinks it impossible.
        live = [fill for fill in fills if fill.ranking_score > -torch.inf or not layout.region]
        results.append(live[: settings.num_return_sequences])
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
