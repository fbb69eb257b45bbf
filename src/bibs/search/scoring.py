"""The exact score of filled sequences under one model: log P of every token after the first.

As far as a pass was told (what its frontiers come to with each token), a fill is looked up. Where it leaves what is
remembered, the model scores all that is left of the sequence from the state that is remembered there. A model that
cannot score given tokens by itself is stepped, and what begins alike is stepped once.

Every further token only lowers a score, so a sequence that must reach a floor is given up as soon as it is below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .beam import FREE, Expansion, Opening, Pass
from .step_model import ScoringModel, State, join_rows, row_shapes, select_rows
from .template import Tokens

MAX_VALUES = 2**24
"""How many log probabilities scoring holds at once: 64 MiB in float32."""


@dataclass(frozen=True)
class Remembered:
    """Where to look things up: an opening, and the last pass from it (if any)."""

    opening: Opening
    memory: Pass | None

    def at(self, depth: int) -> Expansion | None:
        if depth == 0:
            return Expansion(self.opening.log_probs[:, None], self.opening.state)
        expansions = self.memory.expansions if self.memory else ()
        return expansions[depth] if depth < len(expansions) else None


class Asked(NamedTuple):
    """One sequence to score: an example, filled; the fill in reading order."""

    example: int
    fill: Tokens


@dataclass(frozen=True)
class Left:
    """Sequences that leave what is remembered at one depth, and what is left of them, the last known token first."""

    asked: list[int]
    continuations: list[Tokens]
    depth: int
    state: State
    rows: list[int]  # of the state, one for each: what leaves one depth from one row has the same state


@dataclass(frozen=True)
class Recalled:
    """What is remembered of the sequences asked for, and where they leave it."""

    opening: Opening
    totals: Tensor  # (A,) the score of each, as far as it is known
    left: list[Left]

    def score(self, floors: Tensor | None = None) -> Tensor:
        """The whole-sequence scores (A,): exact, but where they are below their floors (A,)."""
        return score_left(self.opening, self.left, self.totals, floors)


def score_fills(source: Remembered, asked: Sequence[Asked]) -> list[float]:
    """The whole-sequence score of each fill."""
    scores: list[float] = []
    for part in portions(len(asked), source.opening):
        scores += look_up(source, asked[part]).score().tolist()
    return scores


def portions(count: int, opening: Opening) -> Iterator[slice]:
    """So many sequences, as many at a time as may be scored at once."""
    size = max(1, MAX_VALUES // opening.model.vocab_size)
    return (slice(begin, begin + size) for begin in range(0, count, size))


def look_up(source: Remembered, asked: Sequence[Asked]) -> Recalled:
    """What `source` remembers of each sequence, and where, and with what, it leaves that."""
    opening = source.opening
    device, layouts = opening.scores.device, opening.layouts
    fills = [one.fill for one in asked]
    longest = max(map(len, fills), default=0)
    tokens = torch.tensor([[*fill, *[0] * (longest - len(fill))] for fill in fills], device=device)  # (A, W)
    examples = torch.tensor([one.example for one in asked], dtype=torch.long, device=device)  # (A,)
    widths = torch.tensor([len(fill) for fill in fills], device=device)  # (A,)
    totals = opening.scores[examples]
    lost = None  # (A, W) what the fills lost before each slot, which a frontier's running scores are less
    if opening.penalties is not None and longest:
        given = opening.penalties[examples[:, None], tokens] * (opening.slots[examples, :longest] == FREE)
        lost = given.cumsum(1) - given
    beams = torch.zeros_like(examples)  # (A,) in the frontier at this depth
    going = (widths > 0).nonzero().flatten()
    left: list[Left] = []
    for depth in range(longest):
        now, following = source.at(depth), source.at(depth + 1)
        assert now is not None
        owners, parents, chosen = examples[going], beams[going], tokens[going, depth]
        running = now.extended[owners, parents, chosen]
        totals[going] = opening.scores[owners] + (running if lost is None else running + lost[going, depth])
        stays = torch.zeros_like(going, dtype=torch.bool)
        if following is not None and source.memory is not None:
            choice = source.memory.choices[depth]
            same = (choice.tokens[owners] == chosen[:, None]) & (choice.parents[owners] == parents[:, None])
            same &= choice.alive[owners]  # (A, K)
            stays = same.any(1) & (widths[going] > depth + 1)
            beams[going] = same.long().argmax(1)
        rows = (owners * now.extended.shape[1] + parents)[~stays].tolist()
        leaving = going[~stays].tolist()
        if leaving:
            left.append(
                Left(
                    asked=leaving,
                    continuations=[(*fills[one][depth:], *layouts[asked[one].example].rest) for one in leaving],
                    depth=depth,
                    state=now.state,
                    rows=rows,
                )
            )
        going = going[stays]
        if not len(going):
            break
    return Recalled(opening, totals, left)


def score_left(opening: Opening, left: Sequence[Left], totals: Tensor, floors: Tensor | None = None) -> Tensor:
    """The totals (A,) with the scores of what is left added; what is, or falls, below its floor (A,) stays there."""
    wanted = [True] * len(totals) if floors is None else (totals >= floors).tolist()
    groups: dict[tuple[torch.Size, ...], list[Left]] = {}  # a state may grow with depth: join what can be joined
    for one in left:
        groups.setdefault(row_shapes(one.state), []).append(one)
    for group in groups.values():
        taken = [[place for place, index in enumerate(one.asked) if wanted[index]] for one in group]
        members = [(one, place) for one, places in zip(group, taken, strict=True) for place in places]
        if not members:
            continue
        asked = torch.tensor([one.asked[place] for one, place in members], device=totals.device)
        states = [
            select_rows(one.state, torch.tensor([one.rows[place] for place in places], device=totals.device))
            for one, places in zip(group, taken, strict=True)
            if places
        ]
        scores = _score(
            opening,
            [one.continuations[place] for one, place in members],
            [(one.depth, one.rows[place]) for one, place in members],
            join_rows(states),
            None if floors is None else floors[asked] - totals[asked],
        )
        totals = totals.index_add(0, asked, scores)
    return totals


def _score(
    opening: Opening,
    continuations: Sequence[Tokens],
    origins: Sequence[tuple[int, int]],
    state: State,
    floors: Tensor | None,
) -> Tensor:
    """The log probability (R,) of each continuation after its first token."""
    if isinstance(opening.model, ScoringModel):
        scores = opening.model.score(continuations, state, floors)
        if scores.shape != (len(continuations),) or not bool((scores < torch.inf).all()):
            raise ValueError(
                f"the {opening.name} model's score() must return ({len(continuations)},) log probabilities, none NaN "
                f"or +inf, but returned {tuple(scores.shape)}: {scores.tolist()}"
            )
        return scores
    return _score_by_steps(opening, continuations, origins, state, floors)


def _score_by_steps(
    opening: Opening,
    continuations: Sequence[Tokens],
    origins: Sequence[tuple[int, int]],
    state: State,
    floors: Tensor | None,
) -> Tensor:
    first: dict[tuple[int, int], int] = {}
    at = [first.setdefault(origin, row) for row, origin in enumerate(origins)]  # the row of `state` each stands at
    scores = opening.scores.new_zeros(len(continuations))
    going = list(range(len(continuations)))
    for depth in range(max(map(len, continuations)) - 1):
        reached = [True] * len(scores) if floors is None else (scores >= floors).tolist()
        going = [row for row in going if len(continuations[row]) > depth + 1 and reached[row]]
        if not going:
            break
        edges: dict[tuple[int, int], int] = {}
        for row in going:
            at[row] = edges.setdefault((at[row], continuations[row][depth]), len(edges))
        parents, tokens = torch.tensor(list(edges), device=scores.device).t()  # (E,), (E,)
        log_probs, state = opening.step(tokens, select_rows(state, parents), depth + 1)
        ahead = [continuations[row][depth + 1] for row in going]
        scores[going] += log_probs[[at[row] for row in going], ahead]
    return scores
