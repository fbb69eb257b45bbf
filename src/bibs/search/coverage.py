"""Words that must appear: which of them a partial fill holds, and who can still be completed.

Partial fill b holds a subset h_b of the k required words, written as a number below 2^k with one bit per word. A
sequence is whole when near side, token and far side hold all words between them, so a message has one row for each
subset that the near side may hold,

    message_t(h, y) = max of [ c_b' + g_b'(y) ] over the b' with  h + bit(y) + h_b' = all words          (N, 2^k, V)

and the pass ranks its extensions by s_b + f_b(y) + message_t(h_b, y). A far side that nobody has seen yet may hold as
many words as it has free slots: its message is 0 where those are enough and -inf elsewhere.

The frontier keeps B partial fills of every subset, its banks, in the order of their numbers: whatever the width, what
holds more words is never crowded out by what holds fewer. Without required words there is one bank, and no more work.
"""

from __future__ import annotations

import torch
from torch import Tensor


def by_bank(rows: Tensor, num_banks: int) -> Tensor:
    """(n, K, V) as (n, banks, rows of one bank, V). Before the first slot there is one row, which holds nothing."""
    num_examples, num_rows, vocab_size = rows.shape
    num_banks = min(num_banks, num_rows)
    return rows.view(num_examples, num_banks, num_rows // num_banks, vocab_size)


def best_by_bank(extended: Tensor, num_banks: int, out: Tensor | None = None) -> Tensor:
    """The most (n, 2^k, V) that the partial fills of each bank come to with each token, of a frontier (n, K, V)."""
    if out is None:
        out = extended.new_empty(len(extended), num_banks, extended.shape[2])
    parts = by_bank(extended, num_banks)  # (n, banks, rows, V)
    if parts.shape[2] == 1:
        out[:, : parts.shape[1]] = parts[:, :, 0]  # a maximum of one value is slow
    else:
        torch.amax(parts, 2, out=out[:, : parts.shape[1]])
    out[:, parts.shape[1] :] = -torch.inf
    return out


def message_from(best: Tensor) -> Tensor:
    """What a frontier tells the other side, by what that holds without the token (n, 2^k, V); a tensor of its own."""
    num_banks = best.shape[1]
    if num_banks == 1:
        return best
    held = torch.arange(num_banks, device=best.device)
    for bit in _bits(num_banks):  # of the sides that hold this and maybe more
        without = held[held & bit == 0]
        best[:, without] = torch.maximum(best[:, without], best[:, without | bit])
    return best.flip(1)  # row h is for those that hold h, and need its complement


def message_unseen(free_left: Tensor, num_banks: int) -> Tensor:
    """(n, 2^k, 1): 0 for what can be completed in so many (n,) further free slots, -inf for the rest."""
    held = torch.arange(num_banks, device=free_left.device)
    missing = torch.zeros_like(held)  # (2^k,)
    for bit in _bits(num_banks):
        missing += held & bit == 0
    possible = missing <= free_left[:, None]  # (n, 2^k)
    return torch.zeros(possible.shape, device=held.device).masked_fill(~possible, -torch.inf)[:, :, None]


def count_token(told: Tensor, required: Tensor, free: Tensor) -> Tensor:
    """Let a token (n, 2^k, V) that is itself a required word (n, k) be held from here on, where its slot is free."""
    num_examples, num_banks = told.shape[:2]
    places = required[:, None].expand(-1, num_banks, -1)  # (n, 2^k, k)
    before = told.gather(2, places)
    held = torch.arange(num_banks, device=told.device)
    after = torch.stack([held | bit for bit in _bits(num_banks)], 1)  # (2^k, k)
    counted = before.gather(1, after.expand(num_examples, -1, -1))
    return told.scatter(2, places, torch.where(free, counted, before))


def choose_by_bank(
    staying: tuple[Tensor, Tensor], moving: tuple[Tensor, Tensor], num_banks: int, num_beams: int
) -> tuple[Tensor, Tensor]:
    """The best B extensions of each bank, bank after bank: indices (n, 2^k * B) into K * V, and rankings.

    Both are given as values and indices. A token that is no required word leaves its partial fill in its bank: the best
    of those (n, banks, B) have been chosen. The k others (n, K, k) are looked at one by one.
    """
    num_from, width = staying[0].shape[1:]  # before the first slot one bank, of one row
    num_parents = moving[0].shape[1]
    rows = torch.arange(num_parents, device=staying[0].device)
    origin = rows // (num_parents // num_from)  # (K,) the bank of each row
    values, indices = (torch.cat([a.flatten(1), b.flatten(1)], 1) for a, b in zip(staying, moving, strict=True))
    moves_to = torch.stack([origin | bit for bit in _bits(num_banks)], 1)  # (K, k)
    target = torch.cat([rows[:num_from].repeat_interleave(width), moves_to.flatten()])  # (M,)
    banks = torch.arange(num_banks, device=rows.device)
    banked = values[:, None].masked_fill(target != banks[:, None], -torch.inf)  # (n, 2^k, M)
    ranking, picks = banked.topk(min(num_beams, len(target)))
    return indices.gather(1, picks.flatten(1)), ranking.flatten(1)


def _bits(num_banks: int) -> list[int]:
    return [1 << word for word in range(num_banks.bit_length() - 1)]
