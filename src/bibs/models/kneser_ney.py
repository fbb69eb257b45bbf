"""Interpolated modified Kneser-Ney estimates (Kneser and Ney 1995; Chen and Goodman 1999), counted by sorting.

With `h` the k - 1 tokens before `w`, and `h'` the same without the farthest of them:

    P_k(w | h) = [a_k(h w) - D_k(a_k(h w))] / a_k(h) + g_k(h) P_{k-1}(w | h'),        a_k(h) = sum_w a_k(h w)
    g_k(h)     = sum_w D_k(a_k(h w)) / a_k(h),                                        P_0(w) = 1 / V

The count `a_k` of the highest order is how often `h w` was seen. Below it, it is the number of different
tokens seen right before `h w`; where `h w` opens a sequence nothing stands before it, and each such occurrence
counts. The first token of a sequence is context only, never counted as an event.

A context of level k is a pair: the id of the context without its farthest token, and that token. So an id and
a token in one int64 name any context, however long, and no hash can collide.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Level:
    """The n-grams of length k that were seen: C contexts of k - 1 tokens, G pairs of a context and a token.

    A context's id is its place in `context_keys`; level 1 has one context, the empty one. An n-gram's entry
    holds the whole interpolated P_k(w | h), so the longest n-gram that is found says it all.
    """

    context_keys: Ints  # (C,) sorted: V * (id, at level k - 1, of the context without its farthest token) + that
    gram_keys: Ints  # (G,) sorted: V * (id of the context) + token
    log_probs: Floats  # (G,)
    log_backoffs: Floats  # (C,) log g_k


@dataclass(frozen=True)
class _Counts:
    context_keys: Ints  # (C,)
    gram_keys: Ints  # (G,)
    seen: Ints  # (G,) how often
    opening: Ints  # (G,) how often at the beginning of a sequence
    shorter: Ints  # (G,) the entry, at the level below, of the n-gram without its farthest token


def estimate(tokens: Ints, positions: Ints, *, vocab_size: int, order: int) -> list[Level]:
    """Levels 1 to `order`, or up to the longest n-gram there is.

    `tokens` are all sequences end to end; `positions` is each token's place in its sequence, counted from 0.
    """
    counts = _count(tokens, positions, vocab_size, order)
    levels = []
    shorter_probs = np.full(1, 1 / vocab_size)  # P_0, the entry that every n-gram of level 1 points to
    for k, level in enumerate(counts, start=1):
        adjusted = level.seen
        if k < order:
            extended = counts[k].shorter if k < len(counts) else np.empty(0, np.int64)
            adjusted = np.bincount(extended, minlength=len(level.seen)) + level.opening
        contexts = level.gram_keys // vocab_size  # (G,)
        totals = np.bincount(contexts, weights=adjusted)  # (C,)
        removed = discounts(adjusted)[np.minimum(adjusted, 3)]  # (G,)
        backoffs = np.bincount(contexts, weights=removed) / totals  # (C,)
        probs = (adjusted - removed) / totals[contexts] + backoffs[contexts] * shorter_probs[level.shorter]
        levels.append(Level(level.context_keys, level.gram_keys, np.log(probs), np.log(backoffs)))
        shorter_probs = probs
    return levels


def discounts(counts: Ints) -> Floats:
    """What to take from a count of 0, 1, 2, and 3 or more, estimated from how many counts are 1, 2, 3 and 4.

    Where a corpus is too small for three discounts it gets one for all counts, and one half as the last
    resort: always above 0, so that every token keeps some probability, and below the count itself.
    """
    n1, n2, n3, n4 = (int(np.count_nonzero(counts == count)) for count in (1, 2, 3, 4))
    one = n1 / (n1 + 2 * n2) if n1 and n2 else 0.5
    if n1 and n2 and n3:
        two, three = 2 - 3 * one * n3 / n2, 3 - 4 * one * n4 / n3
        if 0 < two < 2 and 0 < three < 3:
            return np.array([0, one, two, three])
    return np.array([0, one, one, one])


def _count(tokens: Ints, positions: Ints, vocab_size: int, order: int) -> list[_Counts]:
    levels: list[_Counts] = []
    contexts = np.zeros_like(tokens)  # the id of the context before each token, level by level
    grams = np.zeros_like(tokens)  # the entry of the n-gram that ends at each token
    for k in range(1, order + 1):
        places = np.flatnonzero(positions >= max(1, k - 1))
        if not len(places):
            break
        context_keys = np.zeros(1, np.int64)
        if k > 1:
            farthest = tokens[places - (k - 1)]
            context_keys, ids = np.unique(contexts[places] * vocab_size + farthest, return_inverse=True)
            contexts[places] = ids
        gram_keys, entries, seen = np.unique(
            contexts[places] * vocab_size + tokens[places], return_inverse=True, return_counts=True
        )
        shorter = np.zeros_like(seen)
        shorter[entries] = grams[places]  # all occurrences of an n-gram end in the same shorter one
        opens = positions[places] == k - 1
        opening = np.bincount(entries[opens], minlength=len(seen))
        levels.append(_Counts(context_keys, gram_keys, seen, opening, shorter))
        grams[places] = entries
    return levels
