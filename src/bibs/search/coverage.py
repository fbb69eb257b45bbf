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

from collections.abc import Callable

import torch
from torch import Tensor


def by_bank(rows: Tensor, num_banks: int) -> Tensor:
    """(n, K, V) as (n, banks, rows of one bank, V). Before the first slot there is one row, which holds nothing."""
    num_examples, num_rows, vocab_size = rows.shape
    num_banks = min(num_banks, num_rows)
    return rows.view(num_examples, num_banks, num_rows // num_banks, vocab_size)


def send_message(extended: Tensor, sent: Tensor) -> None:
    """Write what a frontier (n, K, V) tells the other side, by what that holds without the token: (n, 2^k, V)."""
    num_banks = sent.shape[1]
    if extended.shape[1] == num_banks == 1:
        sent.copy_(extended)  # a maximum of one value is slow
        return
    if num_banks == 1:
        torch.amax(extended, 1, keepdim=True, out=sent)
        return
    best = by_bank(extended, num_banks).amax(2)  # (n, banks, V) of the sides that hold just this
    if best.shape[1] == 1:
        best = torch.nn.functional.pad(best, (0, 0, 0, num_banks - 1), value=-torch.inf)
    held = torch.arange(num_banks, device=best.device)
    for bit in _bits(num_banks):  # of the sides that hold this and maybe more
        without = held[held & bit == 0]
        best[:, without] = torch.maximum(best[:, without], best[:, without | bit])
    sent.copy_(best.flip(1))  # row h is for those that hold h, and need its complement


def message_unseen(free_left: Tensor, num_banks: int) -> Tensor:
    """(n, 2^k, 1): 0 for what can be completed in so many (n,) further free slots, -inf for the rest."""
    held = torch.arange(num_banks, device=free_left.device)
    missing = torch.zeros_like(held)  # (2^k,)
    for bit in _bits(num_banks):
        missing += held & bit == 0
    possible = missing <= free_left[:, None]  # (n, 2^k)
    return torch.zeros(possible.shape, device=held.device).masked_fill(~possible, -torch.inf)[:, :, None]


def count_token(told: Tensor, required: Tensor, free: Tensor) -> Tensor:
    """Let a token (n, 2^k, V) that is itself a required word (n, k) be held from here on, where the slot is free."""
    num_examples, num_banks = told.shape[:2]
    places = required[:, None].expand(-1, num_banks, -1)  # (n, 2^k, k)
    before = told.gather(2, places)
    held = torch.arange(num_banks, device=told.device)
    after = torch.stack([held | bit for bit in _bits(num_banks)], 1)  # (2^k, k)
    counted = before.gather(1, after.expand(num_examples, -1, -1))
    return told.scatter(2, places, torch.where(free[:, None, None], counted, before))


def choose_by_bank(
    ranked: Tensor,
    required: Tensor,
    free: Tensor,
    num_beams: int,
    choose: Callable[[Tensor, int], tuple[Tensor, Tensor]],
) -> tuple[Tensor, Tensor]:
    """The best B extensions (n, K, V) of each bank, bank after bank: indices (n, 2^k * B) into K * V, and rankings.

    A token that is no required word leaves its partial fill in its bank; the k others are looked at one by one.
    """
    num_examples, num_parents, vocab_size = ranked.shape
    num_banks = 1 << required.shape[1]
    num_from = min(num_banks, num_parents)  # before the first slot one bank, of one row
    rows = torch.arange(num_parents, device=ranked.device)
    origin = rows // (num_parents // num_from)  # (K,) the bank of each row
    places = required[:, None].expand(-1, num_parents, -1)  # (n, K, k)
    words = ranked.gather(2, places)
    ranked.scatter_(2, places, torch.where(free[:, None, None], -torch.inf, words))
    per_bank = num_parents // num_from * vocab_size
    staying, index = choose(ranked.reshape(-1, per_bank), min(num_beams, per_bank))  # (n * banks, B)
    stays_at = index.view(num_examples, num_from, -1) + rows[:num_from, None] * per_bank  # (n, banks, B)
    moves_at = rows[:, None] * vocab_size + places
    values = torch.cat(
        [staying.reshape(num_examples, -1), words.masked_fill(~free[:, None, None], -torch.inf).flatten(1)], 1
    )  # (n, M)
    indices = torch.cat([stays_at.flatten(1), moves_at.flatten(1)], 1)  # (n, M)
    moves_to = torch.stack([origin | bit for bit in _bits(num_banks)], 1)  # (K, k)
    target = torch.cat([rows[:num_from].repeat_interleave(stays_at.shape[2]), moves_to.flatten()])  # (M,)
    banks = torch.arange(num_banks, device=ranked.device)
    banked = values[:, None].masked_fill(target != banks[:, None], -torch.inf)  # (n, 2^k, M)
    ranking, picks = banked.topk(min(num_beams, len(target)))
    return indices.gather(1, picks.flatten(1)), ranking.flatten(1)


def _bits(num_banks: int) -> list[int]:
    return [1 << word for word in range(num_banks.bit_length() - 1)]
