"""How well two models' plain beams join in a gap, for every length that it may have.

    join(L) = mean over t = 1..L of  max over y of  [ s_b + f_b(y) ] + [ c_b' + g_b'(y) ]

b runs over the plain frontier at slot t from the left, b' over that at slot L - t + 1 from the right. A plain frontier
does not depend on how long the gap is, so one pass of each model judges all lengths.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bibs.search import Constraints, Gap, Layout, Side, Template, Trees, run_pass

NOWHERE = -1e4
"""What beams that cannot join are worth: finite, so that lengths at which some can are told apart."""


def join_scores(
    trees: Trees, templates: Sequence[Template], rooms: Sequence[int], constraints: Constraints, numbers: Sequence[int]
) -> list[list[float]]:
    """The join scores of templates with one gap, for the lengths 1 to its room; `numbers` are theirs in the trees."""
    turned = [list(reversed(template)) for template in templates]
    sides = [
        trees.side(tree, [_near_side(*each) for each in zip(several, rooms, strict=True)], numbers, constraints)
        for tree, several in ((trees.forward, templates), (trees.backward, turned))
    ]
    forward, backward = (_messages(side, rooms) for side in sides)  # (n, W, V)
    columns = []
    for length in range(1, forward.shape[1] + 1):
        joined = forward[:, :length] + backward[:, :length].flip(1)  # (n, L, V)
        columns.append(joined.amax(2).clamp(min=NOWHERE).mean(1))
    return [row[:room] for row, room in zip(torch.stack(columns, 1).tolist(), rooms, strict=True)]


def _messages(side: Side, rooms: Sequence[int]) -> Tensor:
    """What a plain pass says at each slot of the gaps: (n, W, V), -inf beyond a gap's room."""
    passes = run_pass(side)
    rows = [
        torch.stack([frontier.message[0] for frontier in done.frontiers[-room:]])
        for done, room in zip(passes, rooms, strict=True)
    ]
    messages = rows[0].new_full((len(rooms), max(rooms), rows[0].shape[1]), -torch.inf)
    for message, row in zip(messages, rows, strict=True):
        message[: len(row)] = row
    in_gap = len(passes[0].frontiers) - 1
    return messages + side.rules.bias(torch.tensor([0], device=messages.device), in_gap)  # nothing banned joins


def _near_side(template: Template, room: int) -> Layout:
    """All that stands before the end of the gap, which is as long as it may be."""
    gap = next(place for place, token in enumerate(template) if isinstance(token, Gap))
    return Layout.of([*template[:gap], Gap(room, room)], [room])
