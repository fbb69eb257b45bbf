"""How many words a blank has, where its slots hold tokens: some tokens begin a word, the others go on with one.

The leftmost token of a blank begins a word. So K tokens are n words if n - 1 of the K - 1 others begin one, or, which
is the same, if K - n of them go on. One of the two is *counted*, whichever needs fewer states: a partial fill is in
state h if it has read h counted tokens of the blank in which it stands. Near side, token and far side must come to a
total within bounds,

    message_t(h, y) = max of [ c_b' + g_b'(y) ] over the b' with   low <= h + counted(y) + h_b' <= high      (N, S, V)

and counting is the same from either end. Behind a blank it begins again at 0. Where a lower bound is the only one,
what is above it needs no number of its own. Of a far side that nobody has seen, only its slots are known.

Every state has B beams of its own, as with required phrases.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bibs.search import Layout, Tokens

from .slots import Penalties, SlotRules, top_k

ANY, BEGINNINGS, OTHERS = range(3)
"""Which tokens are counted in a slot: none, those that begin a word, or those that go on with one."""


class WordCount(NamedTuple):
    """The words of one blank, which is a run of open slots."""

    minimum: int  # 1 or more
    maximum: int | None
    joined: bool = False  # to what stands before it, without a space: its leftmost token begins no word, but is counted


class Tally(NamedTuple):
    """What is counted in a blank of a certain number of slots, and what it must come to."""

    kind: int
    low: int
    high: int
    most: int  # slots in which something can be counted

    @staticmethod
    def of(count: WordCount, num_slots: int) -> Tally:
        most = num_slots - 1
        low, high = count.minimum - 1, most if count.maximum is None else min(count.maximum - 1, most)
        tallies = Tally(BEGINNINGS, low, high, most), Tally(OTHERS, most - high, most - low, most)
        return min(tallies, key=lambda tally: tally.num_states)

    @property
    def num_states(self) -> int:
        return 1 + (self.low if self.is_open else self.high)

    @property
    def is_open(self) -> bool:
        """Whether there cannot be too many."""
        return self.high >= self.most

    def after(self, state: int, counted: int) -> int:
        """The state after one more token, -1 where that is too much."""
        total = state + counted
        return min(total, self.low) if self.is_open else total if total <= self.high else -1

    def complete(self, near: int, far: int) -> bool:
        return near + far >= self.low and (self.is_open or near + far <= self.high)

    def reachable(self, state: int, slots_left: int) -> bool:
        return any(self.complete(state, more) for more in range(slots_left + 1))


@dataclass(frozen=True)
class Subwords:
    """Which tokens begin a word, and how many words the blanks of each template have, from left to right."""

    begins: Tensor  # (V,)
    counts: Sequence[Sequence[WordCount]]
    max_slots: int  # of a blank

    def of(self, templates: Sequence[int]) -> Subwords:
        return Subwords(self.begins, [self.counts[template] for template in templates], self.max_slots)

    def num_states(self, template: int) -> int:
        """The most that any length of its blanks needs."""
        lengths = ((count, k) for count in self.counts[template] for k in range(count.minimum, self.max_slots + 1))
        return max((Tally.of(*each).num_states for each in lengths), default=1)


class Place(NamedTuple):
    """One slot of a region, in reading order."""

    tally: Tally
    leftmost: bool = False
    last: bool = True  # of its blank, as it is read
    left: int = 0  # slots of the blank that are read later, in which something can be counted
    joined: bool = False


FIXED = Place(Tally(ANY, 0, 0, 0))


def places_of(layout: Layout, counts: Sequence[WordCount], *, turned: bool) -> list[Place]:
    """What the slots of a layout, in reading order, have to do with the words of its blanks."""
    places: list[Place] = []
    given = iter(reversed(counts) if turned else counts)
    for fixed, run in itertools.groupby(layout.region, key=lambda slot: isinstance(slot, int)):
        num_slots = len(list(run))
        if fixed:
            places += [FIXED] * num_slots
            continue
        count = next(given)
        tally = Tally.of(count, num_slots)
        for place in range(num_slots):
            last = place == num_slots - 1
            left = num_slots - 1 - place - (turned and not last)  # a leftmost slot counts nothing
            here = tally._replace(kind=ANY) if (leftmost := last if turned else place == 0) else tally
            places.append(Place(here, leftmost, last, left, count.joined))
    return places


class WordCounts(SlotRules):
    """Slot rules, and blanks with a certain number of words."""

    def __init__(
        self,
        layouts: Sequence[Layout],
        banned: Sequence[int],
        penalties: Sequence[Penalties],
        vocab_size: int,
        like: Tensor,
        subwords: Subwords,
        *,
        turned: bool,
    ) -> None:
        super().__init__(layouts, banned, penalties, vocab_size, like)
        begins = subwords.begins.to(like.device)
        self.counted = torch.stack([torch.zeros_like(begins), begins, ~begins])  # (3, V)
        self.leftmost_bias = torch.where(torch.stack([begins, ~begins]), 0.0, -torch.inf).to(like)  # (2, V)
        self.places = [places_of(*each, turned=turned) for each in zip(layouts, subwords.counts, strict=True)]
        self.num_groups = max(place.tally.num_states for places in self.places for place in [*places, FIXED])

    def bias(self, examples: Tensor, slot: int) -> Tensor:
        bias = super().bias(examples, slot)
        here = self._here(examples, slot)
        if not any(place.leftmost for place in here):
            return bias
        bias = bias.repeat(len(here) // len(bias), 1)
        for row, place in zip(bias, here, strict=True):
            if place.leftmost:
                row += self.leftmost_bias[int(place.joined)]
        return bias

    def steer(self, examples: Tensor, slot: int, bias: Tensor, message: Tensor | None) -> Tensor:
        here, states = self._here(examples, slot), range(self.num_groups)
        if message is None:
            possible = [[place.tally.reachable(state, place.left) for state in states] for place in here]
            behind = self._zeros(possible, bias)[:, :, None].expand(-1, -1, bias.shape[1])  # (m, S, V)
        else:
            behind = torch.full_like(message, -torch.inf)
            for near, far in itertools.product(states, states):
                fits = [[place.tally.complete(near, far)] for place in here]
                if any(fit for (fit,) in fits):
                    behind[:, near] = torch.maximum(behind[:, near], message[:, far] + self._zeros(fits, bias))
        counted = self.counted[[place.tally.kind for place in here]][:, None]  # (m, 1, V)
        uncounted, one_more = (self._moved(behind, here, step) for step in (0, 1))
        return torch.where(counted, one_more, uncounted) + bias[:, None]

    def candidates(self, examples: Tensor, slot: int, ranked: Tensor, count: int) -> tuple[Tensor, Tensor | None]:
        """The best tokens that are counted, and the best that are not: they come to different states."""
        if self.num_groups == 1:
            return super().candidates(examples, slot, ranked, count)
        here = self._here(examples, slot)
        counted = self.counted[[place.tally.kind for place in here]][:, None]  # (m, 1, V)
        tokens, groups = [], []
        for step, barred in ((0, counted), (1, ~counted)):
            some = ranked.masked_fill(barred, -torch.inf)
            best = top_k(some.flatten(0, 1), count).view(*some.shape[:2], count)
            moves = self._next(here, step, ranked).masked_fill(self._lasts(here, ranked), 0)  # (m, S)
            tokens.append(best)
            groups.append(torch.where(some.gather(2, best) > -torch.inf, moves[:, :, None], -1))
        return torch.cat(tokens, 2), torch.cat(groups, 2)

    def penalty(self, example: int, fill: Tokens) -> float:
        """A fill with another number of words has lost everything."""
        state = 0
        for place, token in zip(self.places[example], fill, strict=True):
            state = place.tally.after(state, int(self.counted[place.tally.kind, token]))
            if state < 0 or (place.last and not place.tally.complete(state, 0)):
                return torch.inf
            state = 0 if place.last else state
        return super().penalty(example, fill)

    def _here(self, examples: Tensor, slot: int) -> list[Place]:
        return [self.places[row][slot] for row in examples.tolist()]

    def _next(self, here: Sequence[Place], step: int, like: Tensor) -> Tensor:
        """The state that each state comes to (m, S), -1 for none."""
        rows = [[place.tally.after(state, step) for state in range(self.num_groups)] for place in here]
        return torch.tensor(rows, device=like.device)

    def _lasts(self, here: Sequence[Place], like: Tensor) -> Tensor:
        return torch.tensor([[place.last] for place in here], device=like.device)

    def _moved(self, behind: Tensor, here: Sequence[Place], step: int) -> Tensor:
        following = self._next(here, step, behind)[:, :, None]  # (m, S, 1)
        moved = behind.gather(1, following.clamp(0, self.num_groups - 1).expand_as(behind))
        return moved.masked_fill(following < 0, -torch.inf)

    def _zeros(self, possible: Sequence[Sequence[bool]], like: Tensor) -> Tensor:
        return torch.where(torch.tensor(possible, device=like.device), 0.0, -torch.inf).to(like)
