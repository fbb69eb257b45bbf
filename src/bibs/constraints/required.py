"""Words and phrases that must appear: how far each partial fill is with them, and who can still be completed.

A phrase is a row of tokens that must fill free slots next to each other; a word is a phrase of one. A partial fill has
read the first p tokens of a phrase (the longest beginning with which it ends), or has held the whole of it. Its
*state* h is one such number per phrase. With token y it becomes next(h, y). Near side, token and far side must hold
every phrase between them: whole on one side, or its first tokens on one and the others on the other. So a message has
one row for each state that the near side may be in,

    message_t(h, y) = max of [ c_b' + g_b'(y) ] over the b' whose state completes next(h, y)          (N, S, V)

and a pass ranks its extensions by s_b + f_b(y) + message_t(h_b, y). Of a far side that nobody has seen, only its slots
are known: its message is 0 where the phrases can be completed in them, and -inf elsewhere.

Every state has B beams of its own, its group: what holds more is never crowded out by what holds less.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import TypeAlias

import torch
from torch import Tensor

from bibs.search import Layout, Tokens

from .slots import FREE, Penalties, SlotRules, top_k

Phrases: TypeAlias = tuple[Tokens, ...]
"""What a template requires, in the reading order of a side."""


def num_states(phrases: Phrases) -> int:
    return prod(len(phrase) + 1 for phrase in phrases)


def least_words(phrases: Phrases) -> int:
    """So many free slots in a row hold all phrases, which may share words."""
    tokens = {token for phrase in phrases for token in phrase}
    done, reached = tuple(map(len, phrases)), {(0,) * len(phrases)}
    count = 0
    while done not in reached:
        count += 1
        reached = {
            tuple(follow(phrase, p, token) for phrase, p in zip(phrases, state, strict=True))
            for state in reached
            for token in tokens
        }
    return count


def follow(phrase: Tokens, progress: int, token: int | None) -> int:
    """How much of a phrase is read after one more token; None is one of no phrase. The whole of it stays read."""
    if progress == len(phrase):
        return progress
    ends = (*phrase[:progress], token)
    return next(p for p in range(progress + 1, -1, -1) if phrase[:p] == ends[len(ends) - p :])


@lru_cache(maxsize=256)
def completing(phrase: Tokens) -> tuple[tuple[int, ...], ...]:
    """By the near side's progress: the progress of far sides, which read the phrase from its end, that complete it."""
    length, turned = len(phrase), phrase[::-1]

    def ends(row: Tokens, progress: int) -> set[int]:  # all beginnings of `row` with which its first tokens end
        return {p for p in range(progress + 1) if row[:p] == row[progress - p : progress]}

    def completes(near: int, far: int) -> bool:
        meets = any(length - p in ends(turned, far) for p in ends(phrase, near))
        return meets or length in (near, far)

    return tuple(tuple(far for far in range(length + 1) if completes(near, far)) for near in range(length + 1))


@lru_cache(maxsize=256)
def transitions(phrases: Phrases, tokens: Tokens) -> Tensor:
    """The state after each of the tokens, and after any other (S, tokens + 1)."""
    states = list(itertools.product(*(range(len(phrase) + 1) for phrase in phrases)))
    numbers = {state: number for number, state in enumerate(states)}

    def after(state: tuple[int, ...], token: int | None) -> int:
        return numbers[tuple(follow(phrase, p, token) for phrase, p in zip(phrases, state, strict=True))]

    return torch.tensor([[after(state, token) for token in (*tokens, None)] for state in states])


class RequiredPhrases(SlotRules):
    """Slot rules, and phrases that must each fill free slots. All layouts have phrases of the same lengths."""

    def __init__(
        self,
        layouts: Sequence[Layout],
        banned: Sequence[int],
        penalties: Sequence[Penalties],
        required: Sequence[Phrases],
        vocab_size: int,
        like: Tensor,
    ) -> None:
        super().__init__(layouts, banned, penalties, vocab_size, like)
        self.required = required
        self.num_groups = num_states(required[0])
        words = [tuple(sorted({token for phrase in phrases for token in phrase})) for phrases in required]
        most = max(map(len, words))  # those that have fewer words repeat one
        words = [(*some, *some[:1] * (most - len(some))) for some in words]
        self.words = torch.tensor(words, device=like.device)  # (N, K)
        tables = [transitions(*each) for each in zip(required, words, strict=True)]
        self.next = torch.stack(tables).to(like.device)  # (N, S, K+1), the last for any other token
        self.possible = self._possible()  # (N, W+1, S)

    def steer(self, examples: Tensor, slot: int, bias: Tensor, message: Tensor | None) -> Tensor:
        # What comes of each state behind this slot, with the token in it (m, S, V).
        if message is None:
            states = self.possible[examples, slot + 1]
            behind = torch.where(states, 0.0, -torch.inf)[:, :, None].expand(-1, -1, bias.shape[1]).to(bias)
        else:
            behind = self._completed(examples, message)
        words, following = self._words(examples), self.next[examples]  # (m, S, K), (m, S, K+1)
        others = following[:, :, -1:]
        steer = behind.gather(1, others.expand_as(behind))
        moved = behind.gather(2, words).gather(1, following[:, :, :-1])
        kept = steer.gather(2, words)
        steer = steer.scatter(2, words, torch.where(self._free(examples, slot), moved, kept))
        return steer + bias[:, None]

    def candidates(self, examples: Tensor, slot: int, ranked: Tensor, count: int) -> tuple[Tensor, Tensor | None]:
        """The best tokens of no phrase, and all tokens of the phrases."""
        free, words, following = self._free(examples, slot), self._words(examples), self.next[examples]
        ranked = ranked.scatter(2, words, ranked.gather(2, words).masked_fill(free, -torch.inf))
        tokens = top_k(ranked.flatten(0, 1), count).view(*ranked.shape[:2], count)
        possible = ranked.gather(2, tokens) > -torch.inf
        repeated = (words[:, :, :, None] == words[:, :, None]).tril(-1).any(3)
        others = torch.where(possible, following[:, :, -1:], -1)
        moves = torch.where(free & ~repeated, following[:, :, :-1], -1)
        return torch.cat([tokens, words], 2), torch.cat([others, moves], 2)

    def penalty(self, example: int, fill: Tokens) -> float:
        """A fill that lacks a phrase has lost everything."""
        region = self.layouts[example].region
        words = [None if isinstance(slot, int) else token for token, slot in zip(fill, region, strict=True)]
        for phrase in self.required[example]:
            if not any(tuple(words[place : place + len(phrase)]) == phrase for place in range(len(words))):
                return torch.inf
        return super().penalty(example, fill)

    def _words(self, examples: Tensor) -> Tensor:
        return self.words[examples, None].expand(-1, self.num_groups, -1)  # (m, S, K)

    def _free(self, examples: Tensor, slot: int) -> Tensor:
        return (self.slots[examples, slot] == FREE)[:, None, None]

    def _completed(self, examples: Tensor, sent: Tensor) -> Tensor:
        """What the far side's states (m, S, V) sent, by the near side's state behind the token: phrase by phrase."""
        rows = examples.tolist()
        for number, phrase in enumerate(self.required[0]):
            # The states of this phrase in a dimension of their own: (m, earlier phrases, states, later ones x V).
            parts = sent.view(len(rows), num_states(self.required[0][:number]), len(phrase) + 1, -1)
            tables = [completing(self.required[row][number]) for row in rows]
            result = torch.full_like(parts, -torch.inf)
            for near, far in itertools.product(range(len(phrase) + 1), repeat=2):
                fits = [far in table[near] for table in tables]
                if any(fits):
                    part = parts[:, :, far]
                    if not all(fits):  # a phrase that repeats itself fits together in more ways than others
                        part = part.masked_fill(~torch.tensor(fits, device=part.device)[:, None, None], -torch.inf)
                    result[:, :, near] = torch.maximum(result[:, :, near], part)
            sent = result.view_as(sent)
        return sent

    def _possible(self) -> Tensor:
        """From which states the slots from each one on can complete all phrases: (N, W+1, S)."""
        widths = torch.tensor([len(layout.region) for layout in self.layouts], device=self.slots.device)
        done = torch.arange(self.num_groups, device=self.slots.device) == self.num_groups - 1
        columns = [done.expand(len(widths), -1)]
        for slot in reversed(range(self.slots.shape[1])):
            reached = columns[-1][:, :, None].expand_as(self.next).gather(1, self.next)  # (N, S, K+1)
            open_here = torch.where(self.slots[:, slot, None] == FREE, reached.any(2), reached[:, :, -1])
            columns.append(torch.where((slot < widths)[:, None], open_here, done))
        return torch.stack(columns[::-1], 1)
