"""How well two models' plain beams meet in a gap, for every length that it may have.

    meeting(L) = mean over t = 1..L of  max over y of  [ s_b + f_b(y) ] + [ c_b' + g_b'(y) ]

b runs over the plain frontier at slot t from the left, b' over that at slot L - t + 1 from the right. A plain frontier
does not depend on how long the gap is, so one pass of each model judges all lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from .beam import beam_search
from .opening import Opening
from .settings import Settings
from .step_model import Conditions, StepModel, select_conditions
from .template import Layout

NOWHERE = -1e4
"""What beams that cannot meet are worth: finite, so that lengths at which some can are told apart."""

Sides: TypeAlias = tuple[list[int | None], list[int | None]]
"""What stands left of a gap, and what stands right of it, both from left to right."""


def meet(
    forward: StepModel,
    backward: StepModel,
    sides: Sequence[Sides],
    rooms: Sequence[int],
    settings: Settings,
    conditions: Conditions,
    banned: Sequence[int],
) -> list[list[float]]:
    """The meeting of each gap, for the lengths 1 to its room."""
    meetings: list[list[float]] = [[] for _ in sides]
    order = sorted(range(len(sides)), key=lambda index: (-rooms[index], len(sides[index][0]), len(sides[index][1])))
    for begin in range(0, len(order), settings.examples_per_batch):
        batch = order[begin : begin + settings.examples_per_batch]
        seen = select_conditions(conditions, batch)
        batch_rooms = [rooms[index] for index in batch]
        lefts = [sides[index][0] for index in batch]
        rights = [sides[index][1][::-1] for index in batch]
        told = _messages("forward", forward, lefts, batch_rooms, settings, seen, banned)  # (n, W, V)
        told_back = _messages("backward", backward, rights, batch_rooms, settings, seen, banned)
        columns = []
        for length in range(1, told.shape[1] + 1):
            joined = told[:, :length] + told_back[:, :length].flip(1)  # (n, L, V)
            columns.append(joined.amax(2).clamp(min=NOWHERE).mean(1))
        for index, row in zip(batch, torch.stack(columns, 1).tolist(), strict=True):
            meetings[index] = row[: rooms[index]]
    return meetings


def _messages(
    name: str,
    model: StepModel,
    near: Sequence[Sequence[int | None]],
    rooms: Sequence[int],
    settings: Settings,
    conditions: Conditions,
    banned: Sequence[int],
) -> Tensor:
    """What a plain pass from the near side says at each slot of the gaps: (n, W, V), -inf beyond a gap's room."""
    layouts = [Layout.of([*side, *[None] * room]) for side, room in zip(near, rooms, strict=True)]
    order = sorted(range(len(layouts)), key=lambda row: -len(layouts[row].region))  # as an opening wants them
    opening = Opening.read(
        name, model, [layouts[row] for row in order], conditions=select_conditions(conditions, order), banned=banned
    )
    sent = beam_search(opening, num_beams=settings.num_beams, keep=False).best  # (n, W, 1, V)
    assert sent is not None
    messages = sent.new_full((len(rooms), max(rooms), sent.shape[3]), -torch.inf)
    for place, row in enumerate(order):
        end = len(layouts[row].region)
        messages[row, : rooms[row]] = sent[place, end - rooms[row] : end, 0]
    return messages.index_fill_(2, opening.banned, -torch.inf)
