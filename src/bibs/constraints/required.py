"""Words that must appear: which of them a partial fill holds, and who can still be completed.

A partial fill b holds a subset h_b of the k required words, written as a number below 2^k with one bit per word. Near
side, token and far side must hold all words between them, so a message has one row for each subset that the near side
may hold,

    message_t(h, y) = max of [ c_b' + g_b'(y) ] over the b' with  h + bit(y) + h_b' = all words          (N, 2^k, V)

and a pass ranks its extensions by s_b + f_b(y) + message_t(h_b, y). Of a far side that nobody has seen, only its free
slots are known: its message is 0 where the missing words fit in them, and -inf elsewhere.

Every subset has B beams of its own, its group: what holds more words is never crowded out by what holds fewer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bibs.search import Layout, Tokens

from .slots import FREE, Penalties, SlotRules, top_k


class RequiredWords(SlotRules):
    """Slot rules, and k words of each layout that must each fill a free slot."""

    def __init__(
        self,
        layouts: Sequence[Layout],
        banned: Sequence[int],
        penalties: Sequence[Penalties],
        required: Sequence[Tokens],
        vocab_size: int,
        like: Tensor,
    ) -> None:
        super().__init__(layouts, banned, penalties, vocab_size, like)
        self.required = required
        self.words = torch.tensor(required, device=like.device)  # (N, k)
        self.bits = [1 << word for word in range(self.words.shape[1])]
        self.num_groups = 1 << len(self.bits)
        self.subsets = torch.arange(self.num_groups, device=like.device)
        # With each word more, each subset becomes another (2^k, k).
        self.joined = torch.stack([self.subsets | bit for bit in self.bits], 1)

    def steer(self, examples: Tensor, slot: int, bias: Tensor, message: Tensor | None) -> Tensor:
        if message is None:
            told = self._unseen(examples, slot).expand(-1, -1, bias.shape[1]).to(bias)
        else:
            told = self._by_near_subset(message)
        # A required word is held from here on, where its slot is free.
        places = self.words[examples, None].expand(-1, self.num_groups, -1)  # (m, 2^k, k)
        before = told.gather(2, places)
        after = before.gather(1, self.joined.expand_as(before))
        told = told.scatter(2, places, torch.where(self._free(examples, slot), after, before))
        return told + bias[:, None]

    def candidates(self, examples: Tensor, slot: int, ranked: Tensor, count: int) -> tuple[Tensor, Tensor | None]:
        """The best tokens that leave a partial fill in its group, and all words that move it to another."""
        free = self._free(examples, slot)
        words = self.words[examples, None].expand(-1, self.num_groups, -1)  # (m, 2^k, k)
        ranked = ranked.scatter(2, words, ranked.gather(2, words).masked_fill(free, -torch.inf))
        tokens = top_k(ranked.flatten(0, 1), count).view(*ranked.shape[:2], count)
        possible = ranked.gather(2, tokens) > -torch.inf
        stays = torch.where(possible, self.subsets[:, None], -1)
        moves = torch.where(free, self.joined, -1).expand_as(words)
        return torch.cat([tokens, words], 2), torch.cat([stays, moves], 2)

    def penalty(self, example: int, fill: Tokens) -> float:
        """A fill that lacks a word has lost everything."""
        missing = set(self.required[example]) - set(self.layouts[example].free_words(fill))
        return torch.inf if missing else super().penalty(example, fill)

    def _free(self, examples: Tensor, slot: int) -> Tensor:
        return (self.slots[examples, slot] == FREE)[:, None, None]

    def _by_near_subset(self, sent: Tensor) -> Tensor:
        """What the far side's groups (m, 2^k, V) sent, by what the near side holds without the token."""
        for bit in self.bits:  # of the sides that hold this word and maybe more
            without = self.subsets[self.subsets & bit == 0]
            sent[:, without] = torch.maximum(sent[:, without], sent[:, without | bit])
        return sent.flip(1)  # row h is for those that hold h, and need its complement

    def _unseen(self, examples: Tensor, slot: int) -> Tensor:
        """(m, 2^k, 1): 0 for what can be completed in the free slots behind this one, -inf for the rest."""
        widths = torch.tensor([len(self.layouts[example].region) for example in examples.tolist()])
        places = torch.arange(self.slots.shape[1], device=self.slots.device)
        behind = (places > slot) & (places < widths.to(places)[:, None])
        room = (behind & (self.slots[examples] == FREE)).sum(1)  # (m,)
        missing = sum((self.subsets & bit == 0).long() for bit in self.bits)  # (2^k,)
        return torch.where(missing <= room[:, None], 0.0, -torch.inf)[:, :, None]
