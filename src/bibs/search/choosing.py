"""Which extensions of a frontier are kept: the best that their slot allows.

Diverse search runs G groups of B beams for each example, in turn. Before group g chooses, every extension is lowered by

    diversity_penalty * (how many of the beams that groups 1..g-1 chose at this slot end in its token)

so the first group is the plain search. Like a message, the penalty ranks and is then forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .coverage import by_bank, choose_by_bank, count_token, message_unseen
from .opening import FREE, Opening

Chooser = Callable[[Tensor, int, int], tuple[Tensor, Tensor]]
"""(ranked (n, M), k, slot) -> the values (n, k) and indices (n, k) of the chosen extensions."""


def top_k(ranked: Tensor, k: int, slot: int = 0, *, block: int = 128) -> tuple[Tensor, Tensor]:
    """The k largest of each row (n, M). On long rows first the k best blocks, since those hold the k best values."""
    num_values = ranked.shape[1]
    num_blocks = num_values // block
    if num_blocks < 4 * k:
        return ranked.topk(k)
    whole = num_blocks * block
    best = ranked[:, :whole].reshape(-1, num_blocks, block).amax(2)  # (n, blocks)
    if whole < num_values:
        best = torch.cat([best, ranked[:, whole:].amax(1, keepdim=True)], 1)
    blocks = best.topk(k, sorted=False).indices  # (n, k)
    places = (blocks[..., None] * block + torch.arange(block, device=ranked.device)).flatten(1)  # (n, k * block)
    values = ranked.gather(1, places.clamp(max=num_values - 1)).masked_fill(places >= num_values, -torch.inf)
    values, picks = values.topk(k)
    return values, places.gather(1, picks)


def unseen(opening: Opening, count: int, slot: int) -> Tensor:
    """The message (n, 2^k, V) of a far side of which nothing is known but its free slots."""
    places = torch.arange(opening.slots.shape[1], device=opening.slots.device)
    ahead = (places > slot) & (places < opening.widths[:count, None]) & (opening.slots[:count] == FREE)  # (n, W)
    told = message_unseen(ahead.sum(1), opening.num_banks).to(opening.log_probs)
    return told.expand(-1, -1, opening.model.vocab_size)


@dataclass(frozen=True)
class Rule:
    """How many extensions are kept, and how. The groups of an example are adjacent rows of the batch."""

    num_beams: int
    choose: Chooser = top_k
    num_groups: int = 1
    penalty: float = 0.0


def choose_extensions(
    opening: Opening, extended: Tensor, message: Tensor | None, slot: int, rule: Rule
) -> tuple[Tensor, Tensor]:
    """The best B of the extensions (n, K, V), of every bank, ranked in place: indices (n, K') into K * V, rankings."""
    free = opening.slots[: len(extended), slot] == FREE  # (n,)
    if message is None and opening.num_banks == 1 and bool(free.all()):
        extended.index_fill_(2, opening.banned, -torch.inf)
    else:
        _steer(opening, extended, message, free, slot)
    required = opening.required[: len(extended)]
    if rule.num_groups == 1:
        return _pick(extended, required, free, slot, rule)
    told = extended.new_zeros(len(extended) // rule.num_groups, extended.shape[2])  # (n / G, V) penalties
    chosen = []
    for group in range(rule.num_groups):
        rows = slice(group, None, rule.num_groups)
        extended[rows] -= told[:, None]
        index, ranking = _pick(extended[rows], required[rows], free[rows], slot, rule)
        tokens = index % extended.shape[2]
        alive = ranking > -torch.inf
        chosen.append((index, ranking + told.gather(1, tokens)))
        told.scatter_add_(1, tokens, rule.penalty * alive.to(told))
    index, ranking = (torch.stack(parts, 1).flatten(0, 1) for parts in zip(*chosen, strict=True))
    return index, ranking


def _steer(opening: Opening, extended: Tensor, message: Tensor | None, free: Tensor, slot: int) -> None:
    """Add what the far side says, and bar what the slot does not allow."""
    count = len(extended)
    told = unseen(opening, count, slot) if message is None else message  # (n, 2^k, V)
    if opening.num_banks > 1:
        told = count_token(told, opening.required[:count], free)
    steer = told.index_fill(2, opening.banned, -torch.inf)
    bound = (~free).nonzero().flatten()
    if len(bound):
        place = opening.slots[bound, slot, None, None].expand(-1, told.shape[1], 1)
        barred = steer.new_full((len(bound), *told.shape[1:]), -torch.inf)
        steer[bound] = barred.scatter(2, place, told[bound].gather(2, place))
    ranked = by_bank(extended, opening.num_banks)  # (n, banks, rows, V)
    ranked += steer[:, : ranked.shape[1], None]


def _pick(ranked: Tensor, required: Tensor, free: Tensor, slot: int, rule: Rule) -> tuple[Tensor, Tensor]:
    if required.shape[1]:
        return choose_by_bank(ranked, required, free, rule.num_beams, lambda rows, k: rule.choose(rows, k, slot))
    ranking, index = rule.choose(ranked.flatten(1), min(rule.num_beams, ranked[0].numel()), slot)
    return index, ranking
