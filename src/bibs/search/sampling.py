"""Berglund's samplers and coordinate descent: chains of complete fills, changed one slot at a time.

GSN draws, and coordinate descent maximises,

    P(y_t | rest)  proportional to  P_f(y_t | y_<t) P_g(y_t | y_>t)

A sweep in one direction is a pass of the one search loop with a single beam, told by the last sweep in the other
direction what stands beyond each slot. The unidirectional sampler draws from P_f(y_t | rest), proportional to P_f(Y),
for which the whole rest of the sequence is scored with every token tried.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from .beam import FREE, Pass, beam_search, top_k
from .pair import DIRECTIONS, Fill, Memory, Pair, Proposal, finish, opposite, propose
from .remembering import RememberingModel
from .scoring import Asked, Remembered, score_fills
from .settings import Direction, Settings


def gsn(pair: Pair, settings: Settings) -> list[list[Fill]]:
    """GSN (ordered): B chains from the init beams, 2 x num_rounds sweeps in alternating order, ranked by S."""
    chains = _start(pair, settings, settings.start, settings.num_beams)
    return _sweep(chains, settings, drawn=True)


def coordinate_descent(pair: Pair, settings: Settings) -> list[list[Fill]]:
    """The paper's coordinate descent: as `gsn`, but with the best token instead of a drawn one, and one chain."""
    chains = _start(pair, settings, settings.start, 1)
    return _sweep(chains, settings, drawn=False)


def gsn_random(pair: Pair, settings: Settings) -> list[list[Fill]]:
    """GSN as Berglund et al. run it: slots at random, as many updates as `gsn` makes."""
    chains = _start(pair, settings, settings.start, settings.num_beams)
    standing = {direction: _Standing.begin(chains, direction) for direction in DIRECTIONS}
    where, draws = (chains.uniforms(settings, 2 * settings.num_rounds, purpose=p) for p in (1, 0))  # (C, sweeps, W)
    widths = chains.pair.forward.widths
    free = chains.pair.forward.slots == FREE  # (C, W)
    free &= torch.arange(free.shape[1], device=free.device) < widths[:, None]
    num_free = free.sum(1)
    for number in range(2 * settings.num_rounds * int(num_free.max())):
        rows = (number < 2 * settings.num_rounds * num_free).nonzero().flatten()  # (n,) the chains still going
        # Counted along each chain's own width: a wider neighbour in the batch must not change what it draws.
        at = rows, number // widths[rows], number % widths[rows]
        nth = (where[at] * num_free[rows]).long()  # the nth free slot, from 0
        slots = ((free[rows].cumsum(1) - 1 == nth[:, None]) & free[rows]).long().argmax(1)  # (n,)
        logits = standing["forward"].go_to(chains, rows, slots)
        logits = logits + standing["backward"].go_to(chains, rows, widths[rows] - 1 - slots)
        tokens = _draw(logits.index_fill(1, chains.pair.forward.banned, -torch.inf), draws[at])
        fills = chains.fills.clone()
        fills[rows, slots] = tokens
        chains = replace(chains, fills=fills)
        chains.record(rows[(number + 1) % num_free[rows] == 0])
    return chains.finish(settings)


@dataclass
class _Standing:
    """Where one model stands in each chain: it has read up to `slots`, and what it read before is still good."""

    direction: Direction
    model: RememberingModel
    states: Tensor  # (C, W, 2) at each slot, in the model's reading order
    slots: Tensor  # (C,)

    @staticmethod
    def begin(chains: _Chains, direction: Direction) -> _Standing:
        opening = chains.pair[direction]
        states = opening.state[:, None].repeat(1, opening.slots.shape[1], 1)
        return _Standing(direction, cast(RememberingModel, opening.model), states, torch.zeros_like(opening.widths))

    def go_to(self, chains: _Chains, rows: Tensor, slots: Tensor) -> Tensor:
        """Read on, or go back, to one slot of each of some chains; what the model says (n, V) there."""
        if self.model.forget_if_full():
            self.slots = torch.zeros_like(self.slots)
        tokens = chains.read_by(self.direction)
        for slot in range(int(slots.max())):
            moving = rows[(self.slots[rows] <= slot) & (slot < slots)]
            if len(moving):
                self.states[moving, slot + 1] = self.model.read(tokens[moving, slot], self.states[moving, slot])
        self.slots[rows] = slots
        return self.model.log_probs(self.states[rows, slots])


def unidirectional_gibbs(pair: Pair, settings: Settings) -> list[list[Fill]]:
    """Exact conditionals of the forward model alone: left-to-right sweeps over the `shortlist` likeliest tokens."""
    chains = _start(pair, settings, "forward", settings.num_beams)
    every = torch.arange(len(chains.owners), device=chains.fills.device)
    draws = chains.uniforms(settings, 2 * settings.num_rounds, purpose=0)  # (C, sweeps, W)
    opening = chains.pair.forward
    size = min(settings.shortlist, opening.model.vocab_size)
    standing = _Standing.begin(chains, "forward")
    for sweep in range(2 * settings.num_rounds):
        for slot in range(opening.slots.shape[1]):
            going = ((opening.widths > slot) & (opening.slots[:, slot] == FREE)).nonzero().flatten()
            if not len(going):
                continue
            likely = standing.go_to(chains, going, torch.full_like(going, slot))
            likely = likely.index_fill(1, opening.banned, -torch.inf)
            tried = likely.topk(size).indices  # (n, shortlist)
            variants = chains.fills[going, None].repeat(1, size, 1)  # (n, shortlist, W)
            variants[:, :, slot] = tried
            asked = [
                Asked(chain, tuple(row[: int(opening.widths[chain])]))
                for chain, rows in zip(going.tolist(), variants.tolist(), strict=True)
                for row in rows
            ]
            scores = torch.tensor(score_fills(Remembered(opening, None), asked)).view(len(going), size)
            barred = torch.isin(tried, opening.banned)
            scores = scores.to(opening.log_probs).masked_fill(barred, -torch.inf)
            picked = _draw(scores, draws[going, sweep, slot])
            fills = chains.fills.clone()
            fills[going, slot] = tried.gather(1, picked[:, None])[:, 0]
            chains = replace(chains, fills=fills)
        chains.record(every)
    return chains.finish(settings)


@dataclass(frozen=True)
class _Chains:
    """C chains, several to an example, each an example of its own to the loop."""

    base: Pair  # the examples
    pair: Pair  # one row per chain
    owners: list[int]  # (C,) the example of each chain
    ranks: list[int]  # (C,) which of its example's chains it is
    fills: Tensor  # (C, W) present tokens from left to right, FREE beyond the region
    proposals: list[Proposal]  # per example: every state recorded

    def hold(self, direction: Direction) -> Pass:
        """What one model says at every slot of the present fills."""
        return beam_search(replace(self.pair[direction], slots=self.read_by(direction)), num_beams=1, keep=False)

    def read_by(self, direction: Direction) -> Tensor:
        """The present tokens (C, W) in the reading order of one model."""
        return self.fills if direction == "forward" else _turn(self.fills, self.pair.forward.widths)

    def uniforms(self, settings: Settings, num_sweeps: int, purpose: int) -> Tensor:
        """(C, num_sweeps, W) numbers in [0, 1) that depend on the seed and the template, not on the batch."""
        drawn = torch.zeros(len(self.owners), num_sweeps, self.fills.shape[1])
        for chain, (owner, rank) in enumerate(zip(self.owners, self.ranks, strict=True)):
            layout = self.base.forward.layouts[owner]
            generator = torch.Generator().manual_seed(zlib.crc32(repr((settings.seed, purpose, rank, layout)).encode()))
            width = len(layout.region)
            drawn[chain, :, :width] = torch.rand(num_sweeps, width, generator=generator)
        return drawn.to(self.fills.device)

    def record(self, rows: Tensor) -> None:
        """Note the present fills of some chains."""
        widths = self.pair.forward.widths[rows].tolist()
        for row, fill, width in zip(rows.tolist(), self.fills[rows].tolist(), widths, strict=True):
            self.proposals[self.owners[row]].setdefault(tuple(fill[:width]), 0.0)

    def rest(self) -> None:
        """Between sweeps, when nothing stands anywhere: the time to forget."""
        for direction in DIRECTIONS:
            cast(RememberingModel, self.base[direction].model).forget_if_full()

    def finish(self, settings: Settings) -> list[list[Fill]]:
        return finish(self.base, Memory(), self.proposals, settings, "sum")


def _start(pair: Pair, settings: Settings, direction: Direction, num_chains: int) -> _Chains:
    pair = Pair(*(RememberingModel.open(pair[direction]) for direction in DIRECTIONS))
    opening = pair[direction]
    widths = opening.widths.tolist()
    latest = beam_search(opening, num_beams=settings.num_beams, keep=False, send=False)
    beams = [list(proposal)[:num_chains] for proposal in propose(direction, latest, widths)]
    owners = [example for example, fills in enumerate(beams) for _ in fills]
    ranks = [rank for fills in beams for rank in range(len(fills))]
    padded = [[*fill, *[FREE] * (max(widths) - len(fill))] for fills in beams for fill in fills]
    device = opening.slots.device
    chains = pair.select(torch.tensor(owners, dtype=torch.long, device=device))
    fills = torch.tensor(padded, dtype=torch.long, device=device).reshape(len(owners), max(widths))
    proposals: list[Proposal] = [dict.fromkeys(fills, 0.0) for fills in beams]
    return _Chains(pair, chains, owners, ranks, fills, proposals)


def _sweep(chains: _Chains, settings: Settings, *, drawn: bool) -> list[list[Fill]]:
    """Alternate sweeps, each told by the last one what stands beyond every slot."""
    draws = chains.uniforms(settings, 2 * settings.num_rounds, purpose=0)
    every, widths = torch.arange(len(chains.owners), device=draws.device), chains.pair.forward.widths
    direction, latest = settings.start, chains.hold(settings.start)
    for sweep in range(2 * settings.num_rounds):
        direction = opposite(direction)

        def choose(ranked: Tensor, k: int, slot: int, sweep: int = sweep) -> tuple[Tensor, Tensor]:
            index = _draw(ranked, draws[: len(ranked), sweep, slot])[:, None]
            return ranked.gather(1, index), index

        latest = beam_search(
            chains.pair[direction],
            num_beams=1,
            facing=latest,
            keep=False,
            choose=choose if drawn else top_k,
        )
        tokens = latest.fills()[0][:, 0]  # (C, W) in reading order
        chains = replace(chains, fills=tokens if direction == "forward" else _turn(tokens, widths))
        chains.record(every)
        chains.rest()
    return chains.finish(settings)


def _turn(tokens: Tensor, widths: Tensor) -> Tensor:
    """Reverse the first `widths` tokens of each row (C, W)."""
    places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    turned = torch.where(places < widths[:, None], widths[:, None] - 1 - places, places)
    return tokens.gather(1, turned)


def _draw(logits: Tensor, uniforms: Tensor) -> Tensor:
    """Draw from softmax(logits) (n, V) by inverting its cumulative sum at `uniforms` (n,); (n,) indices.

    A row that allows nothing gives 0.
    """
    cumulative = logits.softmax(1).cumsum_(1)  # NaN in a row that allows nothing
    targets = uniforms.to(cumulative)[:, None] * cumulative[:, -1:]
    index = torch.searchsorted(cumulative, targets, right=True)[:, 0]
    return torch.where(cumulative[:, -1] > 0, index.clamp(max=logits.shape[1] - 1), 0)
