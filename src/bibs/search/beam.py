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

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from .prefixes import Prefixes
from .problem import Layout, Tokens

DEAD = -1
"""Stands for a node where a frontier has fewer than B partial fills."""

BLOCK = 2**18
"""How many numbers are summed at a time for a message: so few that they stay in a processor's cache."""


class Rules(Protocol):
    """What may stand where, beside the loop. A frontier has `num_groups` groups of B beams (S; one, unless needed)."""

    num_groups: int

    def bias(self, examples: Tensor, slot: int) -> Tensor:
        """What is added to the score of each token in this slot: (m, V), or (1, V) if alike; -inf bars a token."""
        ...

    def steer(self, examples: Tensor, slot: int, bias: Tensor, message: Tensor | None) -> Tensor:
        """The bias and what each group (m, S, V) is told by the far side, of which nothing is known yet if None."""
        ...

    def candidates(self, examples: Tensor, slot: int, ranked: Tensor, count: int) -> tuple[Tensor, Tensor | None]:
        """The tokens (m, S, T) with which to extend each group, given the best of each (m, S, V); the group that each
        extension then belongs to (m, S, T), -1 for none. None: they stay in their group."""
        ...

    def penalty(self, example: int, fill: Tokens) -> float:
        """What the tokens of a whole fill, in reading order, have lost by the bias."""
        ...


Fills: TypeAlias = dict[Tokens, float]
"""Fills of one region in reading order, best first, each with what it was ranked by."""


@dataclass(frozen=True, eq=False)
class Frontier:
    """The partial fills at which a pass stands at one slot, and what they tell the far side."""

    nodes: Tensor  # (S, B) sorted; the dead come last
    scores: Tensor  # (S, B) running scores
    message: Tensor  # (S, V) the most that a group comes to with each token: max_b [ s_b + f_b(y) ]


@dataclass(frozen=True)
class Pass:
    """One run over all slots, in the reading order of its model, by example."""

    frontiers: list[tuple[Frontier, ...]]  # at each slot
    fills: list[Fills]  # with which it ended


@dataclass(frozen=True)
class Extensions:
    """The extensions chosen at one slot; in no particular order."""

    parents: Tensor  # (m, S, B) nodes
    tokens: Tensor  # (m, S, B)
    scores: Tensor  # (m, S, B) running scores; -inf where there is none
    ranking: Tensor  # (m, S, B) what they were chosen by


@dataclass
class Side:
    """One model before a batch of layouts, and all frontiers at which its passes have stood."""

    prefixes: Prefixes
    layouts: Sequence[Layout]  # in reading order
    roots: Sequence[int]  # the node of each layout's context
    rules: Rules
    num_beams: int
    frontiers: dict[tuple[int, ...], Frontier] = field(default_factory=dict)  # by example, slot, nodes
    choices: dict[tuple[Frontier, ...], Frontier | Fills] = field(default_factory=dict)  # by frontier and those heard

    def __post_init__(self) -> None:
        device = self.prefixes.device
        nodes = torch.full((len(self.roots), self.rules.num_groups, self.num_beams), DEAD, device=device)
        nodes[:, 0, 0] = torch.tensor(self.roots, device=device)
        scores = self.prefixes.context_scores.new_zeros(nodes.shape).masked_fill_(nodes == DEAD, -torch.inf)
        self.first = self.stand(0, range(len(self.roots)), nodes, scores)  # the empty fill of each example

    def stand(self, slot: int, examples: Sequence[int], nodes: Tensor, scores: Tensor) -> list[Frontier]:
        """The frontiers with these nodes (m, S, B) at a slot, one of each example."""
        order = nodes.masked_fill(nodes == DEAD, torch.iinfo(nodes.dtype).max).argsort(2)
        nodes, scores = nodes.gather(2, order), scores.gather(2, order)
        keys = [(example, slot, *row) for example, row in zip(examples, nodes.flatten(1).tolist(), strict=True)]
        fresh = [row for row, key in enumerate(keys) if key not in self.frontiers]
        if fresh:
            nodes, scores = nodes[fresh], scores[fresh]
            parts = zip(nodes, scores, self._messages(nodes, scores), strict=True)
            self.frontiers.update((keys[row], Frontier(*each)) for row, each in zip(fresh, parts, strict=True))
        return [self.frontiers[key] for key in keys]

    def _messages(self, nodes: Tensor, scores: Tensor) -> Tensor:
        used = max(1, int((nodes != DEAD).sum(2).max()))  # the dead come last
        nodes, scores = nodes[:, :, :used], scores[:, :, :used, None]
        at_once = max(1, BLOCK // (self.prefixes.vocab_size * nodes[0].numel()))
        parts = zip(torch.split(nodes, at_once), torch.split(scores, at_once), strict=True)
        own = (self.prefixes.log_probs(some.flatten()).view(*some.shape, -1).add_(more) for some, more in parts)
        return torch.cat([each.amax(2) for each in own])  # (m, S, V)

    def partial_fills(self, frontier: Frontier) -> tuple[tuple[Tokens, float], ...]:
        """The partial fills of a frontier with their running scores."""
        pairs = zip(frontier.nodes.flatten().tolist(), frontier.scores.flatten().tolist(), strict=True)
        return tuple((self.prefixes.path(node), score) for node, score in pairs if node != DEAD)


def run_pass(near: Side, heard: Sequence[Pass] = ()) -> Pass:
    """Run over the regions once, from the near side to the far one, steered by passes of the far side."""
    widths = [len(layout.region) for layout in near.layouts]
    frontiers = [[first] if width else [] for first, width in zip(near.first, widths, strict=True)]
    fills: list[Fills] = [{(): 0.0} for _ in widths]
    for slot in range(max(widths)):
        keys = {
            example: (frontiers[example][slot], *(each.frontiers[example][width - 1 - slot] for each in heard))
            for example, width in enumerate(widths)
            if slot < width
        }
        fresh = [example for example, key in keys.items() if key not in near.choices or not near.prefixes.lookup]
        if fresh:
            asked = [keys[example] for example in fresh]
            near.choices.update(zip(asked, _extend(near, slot, fresh, asked), strict=True))
        for example, key in keys.items():
            following = near.choices[key]
            if isinstance(following, Frontier):
                frontiers[example].append(following)
            else:
                fills[example] = following
    return Pass(list(map(tuple, frontiers)), fills)


def _extend(
    near: Side, slot: int, examples: Sequence[int], keys: Sequence[tuple[Frontier, ...]]
) -> list[Frontier | Fills]:
    """Choose the extensions of some frontiers: the frontiers that they make, or in the last slot the fills."""
    ours, *heard = zip(*keys, strict=True)
    message = None
    for each in heard:
        other = torch.stack([frontier.message for frontier in each])  # (m, S, V)
        message = other if message is None else torch.maximum(message, other)
    rows = torch.tensor(examples, device=near.prefixes.device)  # (m,)
    chosen = _choose(near, slot, rows, ours, message)
    cut_off = (chosen.ranking == -torch.inf).flatten(1).all(1).nonzero().flatten()
    if message is not None and len(cut_off):
        # Nothing here connects to the far side's beams. They say nothing of other far sides: go on without them.
        alone = _choose(near, slot, rows[cut_off], [ours[row] for row in cut_off.tolist()], None)
        for whole, part in zip(vars(chosen).values(), vars(alone).values(), strict=True):
            whole[cut_off] = part
    last = [slot + 1 == len(near.layouts[example].region) for example in examples]
    going = [row for row, ends in enumerate(last) if not ends]
    parents, tokens, scores = (each[going] for each in (chosen.parents, chosen.tokens, chosen.scores))
    alive = scores > -torch.inf
    nodes = torch.full_like(parents, DEAD)
    nodes[alive] = near.prefixes.read(parents[alive], tokens[alive])
    frontiers = iter(near.stand(slot + 1, [examples[row] for row in going], nodes, scores) if going else ())
    return [_fills(near, chosen, row) if ends else next(frontiers) for row, ends in enumerate(last)]


def _fills(near: Side, chosen: Extensions, row: int) -> Fills:
    columns = (each[row].flatten().tolist() for each in (chosen.parents, chosen.tokens, chosen.ranking))
    found = [extension for extension in zip(*columns, strict=True) if extension[2] > -torch.inf]
    found.sort(key=lambda extension: -extension[2])
    return {(*near.prefixes.path(parent), token): value for parent, token, value in found}


def _choose(
    near: Side, slot: int, examples: Tensor, frontiers: Sequence[Frontier], message: Tensor | None
) -> Extensions:
    """The B best extensions of each group of m frontiers."""
    rules, num_beams = near.rules, near.num_beams
    bias = rules.bias(examples, slot)  # (m, V)
    steer = rules.steer(examples, slot, bias, message)  # (m, S, V)
    ranked = torch.stack([frontier.message for frontier in frontiers]).add_(steer)
    tokens, groups = rules.candidates(examples, slot, ranked, min(num_beams, near.prefixes.vocab_size))  # (m, S, T)
    nodes = torch.stack([frontier.nodes for frontier in frontiers])  # (m, S, B)
    offered = tokens[:, :, None].expand(-1, -1, num_beams, -1)  # (m, S, B, T)
    own = near.prefixes.log_probs(nodes.flatten(), offered.flatten(0, 2)).view_as(offered)
    own += torch.stack([frontier.scores for frontier in frontiers])[..., None]
    ranking = own + steer.expand_as(ranked).gather(2, tokens)[:, :, None]
    here = bias.expand(len(examples), -1).gather(1, tokens.flatten(1)).view_as(tokens)[:, :, None]
    best = ranking.flatten(1)[:, None]  # (m, 1, S * B * T)
    if groups is not None:
        targets = groups[:, :, None].expand_as(ranking).flatten(1)[:, None]
        every = torch.arange(rules.num_groups, device=targets.device)[:, None]
        best = best.masked_fill(targets != every, -torch.inf)  # (m, S, S * B * T)
    best, index = best.topk(num_beams)  # (m, S, B)

    def pick(values: Tensor) -> Tensor:
        return values.expand_as(ranking).flatten(1).gather(1, index.flatten(1)).view_as(index)

    scores = pick(own + here).masked_fill_(best == -torch.inf, -torch.inf)
    return Extensions(pick(nodes[..., None]), pick(tokens[:, :, None]), scores, best)
