"""Which extensions of a frontier are kept: the best that their slot allows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .coverage import choose_by_bank, count_token, message_unseen
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


def unseen(opening: Opening, rows: Tensor, slot: int) -> Tensor:
    """The message (m, 2^k, V) of a far side of which nothing is known but its free slots; (1, 1, V) if it is all 0."""
    if opening.num_banks == 1:
        return opening.log_probs.new_zeros(1, 1, opening.model.vocab_size)
    places = torch.arange(opening.slots.shape[1], device=opening.slots.device)
    ahead = (places > slot) & (places < opening.widths[rows, None]) & (opening.slots[rows] == FREE)  # (m, W)
    told = message_unseen(ahead.sum(1), opening.num_banks).to(opening.log_probs)
    return told.expand(-1, -1, opening.model.vocab_size)


def choose_extensions(
    opening: Opening,
    rows: Tensor,
    extended: Tensor,
    best: Tensor,
    message: Tensor,
    slot: int,
    num_beams: int,
    choose: Chooser,
) -> tuple[Tensor, Tensor]:
    """The best B extensions (n, K, V) of some examples (m,), of every bank: indices (m, K') into K * V, and rankings.

    First the B best tokens of each bank are chosen, by `best` (m, 2^k, V), the most that any of its partial fills comes
    to: the B best extensions have no others. The message may be written into.
    """
    num_parents, vocab_size = extended.shape[1:]
    num_banks = min(opening.num_banks, num_parents)  # before the first slot there is one, of one row
    steer = _steer(opening, rows, message, slot)[:, :num_banks]  # (m, banks, V)
    moving = None
    if opening.num_banks > 1:
        free = (opening.slots[rows, slot] == FREE)[:, None, None]
        words = opening.required[rows, None].expand(-1, num_banks, -1)  # (m, banks, k)
        moving = _rank(extended, rows, steer.masked_fill(~free, -torch.inf), words)
        steer = steer.scatter(2, words, steer.gather(2, words).masked_fill(free, -torch.inf))
    ranked = best[:, :num_banks] + steer
    _, tokens = choose(ranked.flatten(0, 1), min(num_beams, vocab_size), slot)  # (m * banks, B)
    values, index = _rank(extended, rows, steer, tokens.view(len(rows), num_banks, -1))  # (m, K, B)
    values, index = (each.view(len(rows), num_banks, -1) for each in (values, index))
    values, picks = values.topk(min(num_beams, values.shape[2]))  # (m, banks, B)
    index = index.gather(2, picks)
    if moving is None:
        return index[:, 0], values[:, 0]
    return choose_by_bank((values, index), moving, opening.num_banks, num_beams)


def _rank(extended: Tensor, rows: Tensor, steer: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The rankings (m, K, k) of each bank's partial fills with its given tokens (m, banks, k); indices into K * V."""
    num_parents, vocab_size = extended.shape[1:]
    told = steer.gather(2, tokens)
    if num_parents > tokens.shape[1]:
        told, tokens = (each.repeat_interleave(num_parents // tokens.shape[1], 1) for each in (told, tokens))
    index = tokens + torch.arange(num_parents, device=rows.device)[:, None] * vocab_size
    return extended.take(index + rows[:, None, None] * (num_parents * vocab_size)) + told, index


def _steer(opening: Opening, rows: Tensor, message: Tensor, slot: int) -> Tensor:
    """The message (m, 2^k, V) less penalties, with all barred that may not stand in the slot."""
    fixed = opening.slots[rows, slot]  # (m,)
    free = (fixed == FREE)[:, None, None]
    if opening.num_banks > 1:
        message = count_token(message, opening.required[rows], free)
    if opening.penalties is not None:
        message = message - opening.penalties[rows, None] * free
    bound = (fixed != FREE).nonzero().flatten()
    if not len(bound):
        return message.index_fill_(2, opening.banned, -torch.inf).expand(len(rows), -1, -1)
    message = message.expand(len(rows), -1, -1)
    place = fixed[bound, None, None].expand(-1, message.shape[1], 1)
    barred = message.index_fill(2, opening.banned, -torch.inf)
    barred[bound] = torch.full_like(message[bound], -torch.inf).scatter(2, place, message[bound].gather(2, place))
    return barred
