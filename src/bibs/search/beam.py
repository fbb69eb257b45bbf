"""One beam search loop, plain or steered by messages from the far side (the paper's Eq. 5).

At slot t a frontier holds partial fills b with running scores s_b and next-token log probabilities f_b(y). A pass keeps
the B best extensions (b, y) of

    s_b + f_b(y) + message_t(y)          message_t(y) = max_b' [ c_b' + g_b'(y) ]

where b' runs over the frontier that the opposite pass had at the same slot. The paper ranks all triples (b, y, b');
the best b' of every y is one vector, so O(BV) does the same. Without a message this is ordinary beam search. A message
ranks and is then forgotten: running scores are one model's log probability alone.

What a pass tells the opposite one is what it needs itself: the tokens of the B best extensions are among the B best
tokens of max_b [ s_b + f_b(y) ] + message_t(y).

What is chosen at a slot follows from the frontier and the far frontiers that it hears. Equal frontiers are one object,
so a choice that was made before is looked up, in whatever pass it was made.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from .prefixes import Prefixes
from .problem import Layout, Tokens

DEAD = -1, -math.inf
"""The node and the running score that stand where a frontier has fewer than B partial fills."""

BLOCK = 2**18
"""How many numbers are summed at a time for a message: so few that they stay in a processor's cache."""


class Rules(Protocol):
    """What may stand where, beside the loop. A frontier has `num_groups` groups of B beams (S; one, unless needed)."""

    num_groups: int

    def bias(self, examples: Tensor, slot: int) -> Tensor:
        """What is added to the score of each token in this slot: (m, V), or (1, V) if alike; -inf bars a token."""
        ...

    def steer(self, examples: Tensor, slot: int, bias: Tensor, message: Tensor | None) -> Tensor:
        """The bias, and the message of the far side to each group (m, S, V); None where there is no far side yet."""
        ...

    def candidates(self, examples: Tensor, slot: int, ranked: Tensor, count: int) -> tuple[Tensor, Tensor | None]:
        """The tokens (m, S, T) with which to extend each group, given the best of each (m, S, V); the group that each
        extension then belongs to (m, S, T), -1 for none. None: they stay in their group."""
        ...

    def penalty(self, example: int, fill: Tokens) -> float:
        """What the tokens of a whole fill, in reading order, have lost by the bias."""
        ...


Fills: TypeAlias = dict[Tokens, float]
"""Fills of one region from left to right, best first, each with what it was ranked by."""


@dataclass(frozen=True, eq=False)
class Frontier:
    """The partial fills at which a pass stands at one slot, and what they tell the far side."""

    nodes: tuple[int, ...]  # S x B rows of the tree, sorted within each group; the dead come last
    scores: tuple[float, ...]  # S x B running scores
    message: Tensor  # (S, V) the most that a group comes to with each token: max_b [ s_b + f_b(y) ]


class Pass(NamedTuple):
    """One run over all slots of one example, in the reading order of its model."""

    frontiers: tuple[Frontier, ...]  # at each slot
    fills: Fills  # with which it ended


class Extension(NamedTuple):
    parent: int
    token: int
    score: float  # running score with the token
    rank: float  # what it was chosen by


@dataclass
class Side:
    """One model before a batch of layouts, and all frontiers at which its passes have stood."""

    tree: Prefixes
    layouts: Sequence[Layout]  # in reading order
    roots: Sequence[int]  # the node of each layout's context
    rules: Rules
    num_beams: int
    turned: bool  # whether it reads from right to left
    frontiers: dict[tuple[object, ...], Frontier] = field(default_factory=dict)  # by example, slot, nodes
    choices: dict[tuple[Frontier, ...], Frontier | Fills] = field(default_factory=dict)  # by frontier and those heard

    def __post_init__(self) -> None:
        no_beams: list[list[tuple[int, float]]] = [[]] * (self.rules.num_groups - 1)
        empty = {example: [[(root, 0.0)], *no_beams] for example, root in enumerate(self.roots)}
        self.first = self.stand(0, empty)  # the empty fill of each example

    def stand(self, slot: int, beams: dict[int, list[list[tuple[int, float]]]]) -> dict[int, Frontier]:
        """The frontier of each example, given the nodes and running scores of its groups."""
        keys, new = {}, {}
        for example, groups in beams.items():
            rows = (sorted(group) + [DEAD] * (self.num_beams - len(group)) for group in groups)
            nodes, scores = zip(*chain.from_iterable(rows), strict=True)
            keys[example] = key = (example, slot, nodes)
            if key not in self.frontiers:
                new[key] = nodes, scores
        if new:
            used = max(1, *(len(group) for groups in beams.values() for group in groups), 0)
            for (key, parts), message in zip(new.items(), self._messages(slot, new.values(), used), strict=True):
                self.frontiers[key] = Frontier(*parts, message)
        return {example: self.frontiers[key] for example, key in keys.items()}

    def tensors(self, parts: Iterable[tuple[Sequence[int], Sequence[float]]]) -> tuple[Tensor, Tensor]:
        """The nodes (m, S, B) and the running scores (m, S, B) of frontiers."""
        nodes, scores = zip(*parts, strict=True)
        shape, like = (len(nodes), self.rules.num_groups, self.num_beams), self.tree.context_scores
        return torch.tensor(nodes, device=like.device).view(shape), like.new_tensor(scores).view(shape)

    def _messages(self, slot: int, parts: Iterable[tuple[Sequence[int], Sequence[float]]], used: int) -> Tensor:
        nodes, scores = (each[:, :, :used] for each in self.tensors(parts))
        table = self.tree.log_probs(slot)
        at_once = max(1, BLOCK // (table.shape[1] * nodes[0].numel()))
        some = zip(torch.split(nodes.clamp(min=0), at_once), torch.split(scores[..., None], at_once), strict=True)
        own = (table.index_select(0, rows.flatten()).view(*rows.shape, -1).add_(more) for rows, more in some)
        return torch.cat([each.amax(2) for each in own])  # (m, S, V)


def run_pass(near: Side, heard: Sequence[Sequence[Pass]] = ()) -> list[Pass]:
    """Run over all regions once, from the near side to the far one, steered by passes of the far side."""
    widths = [len(layout.region) for layout in near.layouts]
    frontiers = [[near.first[example]] if width else [] for example, width in enumerate(widths)]
    fills: list[Fills] = [{(): 0.0} for _ in widths]
    for slot in range(max(widths)):
        keys = {
            example: (frontiers[example][slot], *(each[example].frontiers[width - 1 - slot] for each in heard))
            for example, width in enumerate(widths)
            if slot < width
        }
        asked = {example: key for example, key in keys.items() if key not in near.choices or not near.tree.lookup}
        if asked:
            near.choices.update((asked[example], result) for example, result in _extend(near, slot, asked).items())
        for example, key in keys.items():
            following = near.choices[key]
            if isinstance(following, Frontier):
                frontiers[example].append(following)
            else:
                fills[example] = following
    return [Pass(tuple(several), found) for several, found in zip(frontiers, fills, strict=True)]


def _extend(near: Side, slot: int, keys: dict[int, tuple[Frontier, ...]]) -> dict[int, Frontier | Fills]:
    """Choose the extensions of some examples: the frontiers that they make, or in the last slot the fills."""
    results: dict[int, Frontier | Fills] = {}
    going: dict[int, list[list[Extension]]] = {}
    for example, groups in _choose(near, slot, keys).items():
        if slot + 1 < len(near.layouts[example].region):
            going[example] = groups
        else:
            best = sorted(chain.from_iterable(groups), key=lambda extension: -extension.rank)
            fills = {(*near.tree.path(slot, each.parent), each.token): each.rank for each in best}
            results[example] = {fill[::-1]: rank for fill, rank in fills.items()} if near.turned else fills
    if going:
        every = [extension for groups in going.values() for extension in chain.from_iterable(groups)]
        nodes = iter(near.tree.read(slot, [each.parent for each in every], [each.token for each in every]))
        beams = {
            example: [[(next(nodes), each.score) for each in group] for group in groups]
            for example, groups in going.items()
        }
        results |= near.stand(slot + 1, beams)
    return results


def _stack_messages(frontiers: Iterable[Frontier]) -> Tensor:
    return torch.stack([frontier.message for frontier in frontiers])  # (m, S, V)


def _choose(near: Side, slot: int, keys: dict[int, tuple[Frontier, ...]]) -> dict[int, list[list[Extension]]]:
    """The B best extensions of each group of each frontier."""
    ours, *heard = zip(*keys.values(), strict=True)
    rules, device = near.rules, near.tree.device
    examples = torch.tensor(list(keys), device=device)  # (m,)
    messages = [_stack_messages(each) for each in heard]
    message = functools.reduce(torch.maximum, messages) if messages else None
    bias = rules.bias(examples, slot)  # (m, V)
    steer = rules.steer(examples, slot, bias, message)  # (m, S, V)
    ranked = _stack_messages(ours).add_(steer)
    count = min(near.num_beams, near.tree.vocab_size)
    tokens, groups = rules.candidates(examples, slot, ranked, count)  # (m, S, T)
    cut_off = (ranked.gather(2, tokens) == -torch.inf).flatten(1).all(1)
    if message is not None and bool(cut_off.any()):
        # Nothing here connects to the far side's beams. They say nothing of other far sides: go on without them.
        steer = torch.where(cut_off[:, None, None], rules.steer(examples, slot, bias, None), steer)
        tokens, groups = rules.candidates(examples, slot, _stack_messages(ours).add_(steer), count)
    nodes, scores = near.tensors((frontier.nodes, frontier.scores) for frontier in ours)  # (m, S, B)
    scores = near.tree.log_probs(slot)[nodes[..., None], tokens[:, :, None]] + scores[..., None]  # (m, S, B, T)
    ranking = scores + steer.expand_as(ranked).gather(2, tokens)[:, :, None]
    scores += bias.expand(len(keys), -1).gather(1, tokens.flatten(1)).view_as(tokens)[:, :, None]
    flat = ranking.flatten(1)[:, None]  # (m, 1, S * B * T)
    if groups is not None:
        targets = groups[:, :, None].expand_as(ranking).flatten(1)[:, None]
        every = torch.arange(rules.num_groups, device=device)[:, None]
        flat = flat.masked_fill(targets != every, -torch.inf)  # (m, S, S * B * T)
    ranks, places = flat.topk(near.num_beams)  # (m, S, B)

    def pick(values: Tensor) -> Any:
        return values.expand_as(ranking).flatten(1).gather(1, places.flatten(1)).view_as(places).tolist()

    columns = (pick(nodes[..., None]), pick(tokens[:, :, None]), pick(scores), ranks.tolist())
    return {
        example: [
            [each for each in map(Extension, *group) if each.rank > -math.inf] for group in zip(*parts, strict=True)
        ]
        for example, *parts in zip(keys, *columns, strict=True)
    }
