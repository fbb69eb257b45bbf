"""Which extensions of a frontier are kept: the best that their slot allows."""

from __future__ import annotations

from collections.abc import Callable

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


def choose_extensions(
    opening: Opening, extended: Tensor, message: Tensor | None, slot: int, num_beams: int, choose: Chooser
) -> tuple[Tensor, Tensor]:
    """The best B of the extensions (n, K, V), of every bank: indices (n, K') into K * V, rankings.

    The extensions are ranked in place, and what is banned is barred in the message itself.
    """
    count, num_parents, vocab_size = extended.shape
    fixed = opening.slots[:count, slot]  # (n,)
    free = fixed == FREE
    if opening.penalties is not None:
        extended -= opening.penalties[:count, None] * free[:, None, None]
    all_free = bool(free.all())
    if message is None and opening.num_banks == 1 and all_free:
        extended.index_fill_(2, opening.banned, -torch.inf)
    else:
        told = unseen(opening, count, slot) if message is None else message  # (n, 2^k, V)
        if opening.num_banks > 1:
            told = count_token(told, opening.required[:count], free)
        if all_free and message is not None:
            steer = told.index_fill_(2, opening.banned, -torch.inf)
        else:
            steer = told.index_fill(2, opening.banned, -torch.inf)
            bound = (~free).nonzero().flatten()
            place = fixed[bound, None, None].expand(-1, told.shape[1], 1)
            barred = steer.new_full((len(bound), *told.shape[1:]), -torch.inf)
            steer[bound] = barred.scatter(2, place, told[bound].gather(2, place))
        ranked = by_bank(extended, opening.num_banks)  # (n, banks, rows, V)
        ranked += steer[:, : ranked.shape[1], None]
    if opening.num_banks > 1:
        return choose_by_bank(
            extended, opening.required[:count], free, num_beams, lambda ranked, k: choose(ranked, k, slot)
        )
    ranking, index = choose(extended.flatten(1), min(num_beams, num_parents * vocab_size), slot)
    return index, ranking
