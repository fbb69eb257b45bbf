"""Counts of every stretch of DNA up to `order` letters, in one table, as a `StepModel`.

Every place of the text is an entry: the letter there, and the letters before it, nearest first, as its context. Entries
are sorted by context. So those whose context begins with the same k letters stand next to each other, as a range, for
every k at once. With

    before[j, y]    how many of the first j entries have the letter y
    first[y]        how many entries have a context that begins with a letter below y

the letters seen in a range [low, high) are before[high] - before[low], and when y is read, the range becomes

    [first[y] + before[low, y], first[y] + before[high, y])

of contexts one letter longer (the backward search of Ferragina and Manzini, 2000). A state holds one range for each
k < order. Nothing is searched for, and the contexts themselves need not be kept.

Estimates are interpolated, from the longest context down (Witten and Bell, 1991, with a weight `e` on what is new):

    P_k(y | h) = [ c(h y) + e t(h) P_{k-1}(y | h') ] / [ c(h) + e t(h) ],        P_{-1}(y) = 1 / 4

where c counts, t(h) is how many different letters were seen after h, and h' is h without its farthest letter.

Relatives differ in single letters, and after each of them every long context is new. So a state also *follows* a
context of order - 1 letters that was seen. It begins with the letters read. Where a letter is read that never comes
after the followed context, that is a miss, and the context goes on with the letter that mostly comes there (as the
tolerant contexts of Pratas et al., 2016). With u(y) the share of y after the followed context, and r how often there
was no miss of late,

    P(y) = w u(y) + (1 - w) P_{order-1}(y | h),        w = 0.9 r,        r <- r + (1 - r) / 16, or r - r / 16 if missed

and a context with r below 1/2 is followed no more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bibs.search import Conditions, State

OTHER = 0
"""Any letter that is no base, and what stands beyond an end: contexts do not reach across it. A, C, G, T are 1 to 4."""

LETTERS = "ACGT"
VOCAB_SIZE = 1 + len(LETTERS)
MAX_ORDER = 27
"""So many letters of five kinds fit in 64 bits."""

OTHER_PROBABILITY = 1e-6
"""Of `OTHER`, whatever stands before: it weighs the same in every fill."""

FOLLOW_WEIGHT = 0.9
FOLLOW_MEMORY = 15 / 16
LEAST_TRUST = 0.5
"""How places are followed, as above."""

Letters = NDArray[np.uint8]


class KmerModel:
    """Counts of DNA as a model. It reads in the direction in which its text is given, and takes no conditions."""

    vocab_size = VOCAB_SIZE

    def __init__(self, before: Tensor, first: Tensor, groups: Tensor, bounds: Tensor, *, order: int, escape: float):
        """Use `count`."""
        self.order = order
        self.escape = escape
        self._groups = groups  # (entries,) int32: entries with the same context of order - 1 letters are a group
        self._bounds = bounds  # (groups + 1,) int32: where each begins
        self._before = before  # (entries + 1, 4) int32
        self._first = first  # (5,) int64
        self._log_other = math.log(OTHER_PROBABILITY)
        self._log_base = math.log1p(-OTHER_PROBABILITY)

    @classmethod
    def count(cls, sequences: Iterable[Letters], *, order: int = 20, escape: float = 10.0) -> KmerModel:
        """Count sequences of token ids, which may hold `OTHER`."""
        if not 2 <= order <= MAX_ORDER:
            raise ValueError(f"`order` must be between 2 and {MAX_ORDER}, but is {order}")
        if not 0 < escape < math.inf:
            raise ValueError(f"`escape` must be above 0, but is {escape}")
        text = _join(sequences)
        keys = _sorted_keys(text, order)
        digits = np.arange(VOCAB_SIZE, dtype=np.uint64) * np.uint64(VOCAB_SIZE ** (order - 1))
        first = np.searchsorted(keys, digits)
        letters = (keys % np.uint64(VOCAB_SIZE)).astype(np.uint8)  # the letter of each entry is the last digit
        before = np.zeros((len(letters) + 1, len(LETTERS)), np.int32)
        for column in range(len(LETTERS)):
            np.cumsum(letters == column + 1, out=before[1:, column])
        keys //= np.uint64(VOCAB_SIZE)  # the context
        changes = np.concatenate([[False], keys[1:] != keys[:-1]])
        bounds = np.concatenate([[0], np.flatnonzero(changes), [len(keys)]]).astype(np.int32)
        tables = (before, first.astype(np.int64), np.cumsum(changes, dtype=np.int32), bounds)
        return cls(*map(torch.from_numpy, tables), order=order, escape=escape)

    @classmethod
    def count_pair(
        cls, sequences: Iterable[Letters], *, order: int = 20, escape: float = 10.0, both_strands: bool = True
    ) -> tuple[KmerModel, KmerModel | Complemented]:
        """A model that reads left to right and one that reads right to left.

        Counted on both strands, one table is enough: to read one strand from right to left is to read the other, letter
        by complementary letter, from left to right.
        """
        sequences = list(sequences)
        if both_strands:
            model = cls.count([*sequences, *map(reverse_complement, sequences)], order=order, escape=escape)
            return model, Complemented(model)
        turned = [sequence[::-1] for sequence in sequences]
        return cls.count(sequences, order=order, escape=escape), cls.count(turned, order=order, escape=escape)

    # -- the StepModel protocol. A state is where each range begins and ends, the followed one last (R, 2, order + 1),
    # and the trust in that one (R,) --

    def start(self, contexts: Sequence[Sequence[int]], conditions: Conditions = None) -> tuple[Tensor, State, Tensor]:
        """Read N ragged contexts: log_probs (N, V) of the next token, the state, and the scores (N,)."""
        if conditions is not None and any(condition is not None for condition in conditions):
            raise ValueError("`conditions` must be None for counts of DNA, which know letters only")
        tokens = self._padded(contexts)  # (N, T)
        longest = tokens.shape[1]
        padding = tokens.new_tensor([longest - len(context) for context in contexts])
        log_probs = torch.zeros(tokens[:, :1].shape, dtype=torch.float64, device=tokens.device).expand(-1, VOCAB_SIZE)
        ranges = self._before.new_zeros(len(contexts), 2, self.order + 1)
        ranges[:, 1, 0] = len(self._before) - 1  # the empty context stands everywhere
        state: State = (ranges, log_probs[:, 0])
        scores = log_probs.new_zeros(len(contexts))
        for place in range(longest):
            scores += torch.where(place > padding, log_probs.gather(1, tokens[:, place, None])[:, 0], 0.0)
            log_probs, state = self.step(tokens[:, place], state)
        return log_probs, state, scores

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Read one token (R,) in each row: log_probs (R, V) of the next, and the new state."""
        ranges, trust = state
        known = tokens != OTHER
        longer = torch.where(known[:, None, None], self._after(ranges[:, :, :-2], tokens), 0)  # (R, 2, order - 1)
        exact = torch.cat([ranges[:, :, :1], longer], 2)  # (R, 2, order)
        followed, trust = self._follow(tokens, ranges[:, :, -1], trust, exact[:, :, -1])
        state = torch.cat([exact, followed[:, :, None]], 2), trust
        return self._log_probs(*state), state

    def _padded(self, contexts: Sequence[Sequence[int]]) -> Tensor:
        """Ragged contexts as one tensor. `OTHER` at the beginning changes nothing, so it pads the shorter ones."""
        if not contexts or not all(contexts):
            raise ValueError("`contexts` must hold at least one context, and each at least one token")
        longest = max(map(len, contexts))
        tokens = torch.tensor([[OTHER] * (longest - len(context)) + list(context) for context in contexts])
        if int(tokens.min()) < 0 or int(tokens.max()) >= VOCAB_SIZE:
            wrong = int(tokens.min()) if int(tokens.min()) < 0 else int(tokens.max())
            raise ValueError(f"a token must be between 0 and {VOCAB_SIZE - 1}, but one is {wrong}")
        return tokens.to(self._before.device)

    def longest_match(self, contexts: Sequence[Sequence[int]]) -> list[int]:
        """The most letters in a row, up to order - 1, that each context has in common with the text."""
        tokens = self._padded(contexts)  # (N, T)
        ranges = self._before.new_zeros(2, *tokens.shape)  # of the k letters that end at each place
        ranges[1] = len(self._before) - 1
        longest = tokens.new_zeros(len(tokens))
        for k in range(1, self.order):
            shorter = ranges.roll(1, 2)
            if k > 1:
                shorter[:, :, 0] = 0  # nothing ends before the first place
            columns = (tokens - 1).clamp(min=0).expand_as(shorter)
            ranges = self._first[tokens].to(shorter.dtype) + self._before[shorter.long(), columns]
            ranges = torch.where(tokens != OTHER, ranges, 0)
            longest[(ranges[0] < ranges[1]).any(1)] = k
        return longest.tolist()

    def _after(self, ranges: Tensor, letters: Tensor) -> Tensor:
        """The ranges (R, 2, M) with one more letter (R,) each."""
        columns = (letters - 1).clamp(min=0)[:, None, None]
        return self._first[letters].to(ranges.dtype)[:, None, None] + self._before[ranges.long(), columns]

    def _seen(self, ranges: Tensor) -> Tensor:
        """How often each letter stands in each range: (R, 2, M) -> (R, M, 4)."""
        low, high = (self._before[each.long()] for each in ranges.unbind(1))
        return high - low

    def _follow(self, tokens: Tensor, followed: Tensor, trust: Tensor, longest: Tensor) -> tuple[Tensor, Tensor]:
        """The range (R, 2) that is followed after these tokens, and the trust in it: `longest`, if it was seen."""
        seen = self._seen(followed[:, :, None])[:, 0]  # (R, 4)
        hit = (tokens != OTHER) & (seen.gather(1, (tokens - 1).clamp(min=0)[:, None])[:, 0] > 0)
        letters = torch.where(hit, tokens, seen.argmax(1) + 1)
        trust = FOLLOW_MEMORY * trust + (1 - FOLLOW_MEMORY) * hit
        low, high = self._after(followed[:, :, None], letters)[:, :, 0].unbind(1)
        trust = trust.masked_fill((trust < LEAST_TRUST) | (low == high), 0.0)
        # A letter more at one end, a letter fewer at the other: all of the group.
        groups = self._groups[low.clamp(max=len(self._groups) - 1).long()].long()
        followed = torch.stack([self._bounds[groups], self._bounds[groups + 1]], 1)
        followed = torch.where(trust[:, None] > 0, followed, 0)
        found = longest[:, 1] > longest[:, 0]
        trust = torch.where(found & (trust == 0), 1.0, trust)
        return torch.where(found[:, None], longest, followed), trust

    def _log_probs(self, ranges: Tensor, trust: Tensor) -> Tensor:  # (R, 2, order + 1), (R,) -> (R, V)
        seen = self._seen(ranges).to(torch.float64)  # (R, order + 1, 4)
        places = seen[:, -1].sum(1, keepdim=True)  # (R, 1)
        trusted = FOLLOW_WEIGHT * trust[:, None].masked_fill(places == 0, 0.0)  # nothing follows the end of a text
        probs = trusted * seen[:, -1] / places.clamp(min=1) + (1 - trusted) * self._interpolated(seen[:, :-1])
        others = probs.new_full((len(probs), 1), self._log_other)
        return torch.cat([others, probs.log() + self._log_base], 1)

    def _interpolated(self, seen: Tensor) -> Tensor:  # (R, order, 4) -> (R, 4)
        new = self.escape * (seen > 0).sum(2)  # (R, order) e t(h)
        total = (seen.sum(2) + new).clamp(min=1)  # of a context that was never seen, nothing is counted
        passed_on = torch.where(new > 0, new / total, 1.0)
        # A level's counts weigh what all longer contexts pass on.
        weights = passed_on.flip(1).cumprod(1).flip(1)  # (R, order)
        longer = torch.cat([weights[:, 1:], torch.ones_like(weights[:, :1])], 1)
        return ((longer / total)[:, :, None] * seen).sum(1) + weights[:, :1] / len(LETTERS)

    def to(self, device: torch.device | str) -> KmerModel:
        """The same model with its table on `device`."""
        tables = (self._before, self._first, self._groups, self._bounds)
        return KmerModel(*(table.to(device) for table in tables), order=self.order, escape=self.escape)


class Complemented:
    """A model of both strands that reads one of them from right to left."""

    vocab_size = VOCAB_SIZE

    def __init__(self, model: KmerModel) -> None:
        self.model = model

    def start(self, contexts: Sequence[Sequence[int]], conditions: Conditions = None) -> tuple[Tensor, State, Tensor]:
        log_probs, state, scores = self.model.start(_complements(contexts), conditions)
        return self._turned(log_probs), state, scores

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        log_probs, state = self.model.step(-tokens % VOCAB_SIZE, state)
        return self._turned(log_probs), state

    def longest_match(self, contexts: Sequence[Sequence[int]]) -> list[int]:
        return self.model.longest_match(_complements(contexts))

    def _turned(self, log_probs: Tensor) -> Tensor:
        return log_probs[:, [OTHER, 4, 3, 2, 1]]


def _complements(contexts: Sequence[Sequence[int]]) -> list[list[int]]:
    return [[-token % VOCAB_SIZE for token in context] for context in contexts]


def reverse_complement(sequence: Letters) -> Letters:
    """The other strand, in its own reading order: A and T, C and G are exchanged (1 and 4, 2 and 3)."""
    return (VOCAB_SIZE - sequence[::-1]) % np.uint8(VOCAB_SIZE)


def _join(sequences: Iterable[Letters]) -> Letters:
    """All sequences end to end, with `OTHER` before, between and behind them."""
    edge = np.array([OTHER], np.uint8)
    parts = [edge]
    for sequence in sequences:
        if len(sequence) and int(sequence.max()) >= VOCAB_SIZE:
            raise ValueError(f"a token must be between 0 and {VOCAB_SIZE - 1}, but one is {int(sequence.max())}")
        parts += [sequence, edge]
    text = np.concatenate(parts)
    if not text.any():
        raise ValueError("`sequences` must hold at least one base (A, C, G or T), but hold none")
    if len(text) > np.iinfo(np.int32).max:
        raise ValueError(f"`sequences` must hold fewer than {2**31:,} letters on all strands, but hold {len(text):,}")
    return text


def _sorted_keys(text: Letters, order: int) -> NDArray[np.uint64]:
    """Each entry as a number of `order` digits, sorted: its context, nearest letter first, then its own letter."""
    keys = np.zeros(len(text), np.uint64)
    for distance in range(1, order):
        keys[distance:] += text[:-distance]
        keys *= np.uint64(VOCAB_SIZE)
    keys += text
    keys = keys[1:]  # the first letter is an edge, which nothing stands before
    keys.sort()
    return keys
