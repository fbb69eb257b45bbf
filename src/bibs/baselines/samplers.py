"""Berglund's samplers and coordinate descent: chains of complete fills, changed one slot at a time.

GSN draws, and coordinate descent maximises,

    P(y_t | rest)  proportional to  P_f(y_t | y_<t) P_g(y_t | y_>t)

The unidirectional sampler draws from P_f(y_t | rest), proportional to P_f(Y), for which the whole rest of the sequence
is scored with every token tried. Chains walk through the trees of the search, so what they read again costs nothing.
"""

from __future__ import annotations

import zlib

import torch
from torch import Tensor

from bibs.search import DIRECTIONS, Batch, Direction, Fill, Fills, OneOf, Settings, finish, opposite

from .one_way import plain_beams
from .settings import BaselineSettings


def gsn(batch: Batch, settings: Settings, baseline: BaselineSettings) -> list[list[Fill]]:
    """GSN (ordered): B chains from the init beams, 2 x num_rounds sweeps in alternating order, ranked by S."""
    chains = _Chains(batch, settings, settings.num_beams)
    uniforms = chains.uniforms(baseline.seed, 2 * settings.num_rounds)  # (C, sweeps, W)
    return _sweep(chains, settings, uniforms)


def coordinate_descent(batch: Batch, settings: Settings, baseline: BaselineSettings) -> list[list[Fill]]:
    """The paper's coordinate descent: as `gsn`, but with the best token instead of a drawn one, and one chain."""
    return _sweep(_Chains(batch, settings, 1), settings, None)


def gsn_random(batch: Batch, settings: Settings, baseline: BaselineSettings) -> list[list[Fill]]:
    """GSN as Berglund et al. run it: slots at random, as many updates as `gsn` makes."""
    chains = _Chains(batch, settings, settings.num_beams)
    where, uniforms = (chains.uniforms(baseline.seed, 2 * settings.num_rounds, purpose) for purpose in (1, 0))
    num_free = chains.free.sum(1)  # (C,)
    for number in range(2 * settings.num_rounds * max(num_free.tolist(), default=0)):
        rows = (number < 2 * settings.num_rounds * num_free).nonzero().flatten()  # (n,) the chains still going
        # Counted along each chain's own width: a wider neighbour in the batch must not change what it draws.
        at = rows, number // chains.widths[rows], number % chains.widths[rows]
        nth = (where[at] * num_free[rows]).long()  # the nth free slot, from 0
        slots = ((chains.free[rows].cumsum(1) - 1 == nth[:, None]) & chains.free[rows]).long().argmax(1)  # (n,)
        chains.change(rows, slots, uniforms[at])
        chains.record(rows[(number + 1) % num_free[rows] == 0])
    return finish(batch, chains.proposals, settings, "sum")


def unidirectional_gibbs(batch: Batch, settings: Settings, baseline: BaselineSettings) -> list[list[Fill]]:
    """Exact conditionals of the forward model alone: left-to-right sweeps over the `shortlist` likeliest tokens."""
    chains = _Chains(batch, settings, settings.num_beams, "forward")
    uniforms = chains.uniforms(baseline.seed, 2 * settings.num_rounds)  # (C, sweeps, W)
    side = batch.forward
    for sweep in range(2 * settings.num_rounds):
        for slot in range(chains.fills.shape[1]):
            rows = chains.free[:, slot].nonzero().flatten()
            if not len(rows):
                continue
            slots = torch.full_like(rows, slot)
            likely = chains.says("forward", rows, slots) + chains.bias(rows, slots)
            scores, tried = likely.topk(min(baseline.shortlist, likely.shape[1]))  # (n, shortlist)
            variants = chains.fills[rows, None].repeat(1, tried.shape[1], 1)  # (n, shortlist, W)
            variants[:, :, slot] = tried
            owners = [owner for owner in chains.owners[rows].tolist() for _ in range(tried.shape[1])]
            sequences = [
                (*fill[: len(side.layouts[owner].region)], *side.layouts[owner].rest)
                for owner, fill in zip(owners, variants.flatten(0, 1).tolist(), strict=True)
            ]
            known = side.tree.recall([side.roots[owner] for owner in owners], sequences)
            floors = torch.full_like(known.totals, -torch.inf)
            whole = side.tree.score(known, floors).view(tried.shape).masked_fill(scores == -torch.inf, -torch.inf)
            picked = _draw(whole, uniforms[rows, sweep, slot])
            chains.put(rows, slots, tried.gather(1, picked[:, None])[:, 0], whole)
        chains.record(torch.arange(len(chains.fills), device=uniforms.device))
    return finish(batch, chains.proposals, settings, "sum")


def _sweep(chains: _Chains, settings: Settings, uniforms: Tensor | None) -> list[list[Fill]]:
    """Change slot after slot in alternating order: by draws (C, sweeps, W), or to the best token without any."""
    direction = chains.start
    every = torch.arange(len(chains.fills), device=chains.fills.device)
    for sweep in range(2 * settings.num_rounds):
        direction = opposite(direction)
        for place in range(chains.fills.shape[1]):
            rows = every[chains.widths > place]
            slots = chains.turn(direction, rows, torch.full_like(rows, place))
            rows, slots = rows[chains.free[rows, slots]], slots[chains.free[rows, slots]]
            chains.change(rows, slots, None if uniforms is None else uniforms[rows, sweep, place])
        chains.record(every)
    return finish(chains.batch, chains.proposals, settings, "sum")


class _Chains:
    """C chains, several to an example: the present fill of each, and where either model stands in it."""

    def __init__(self, batch: Batch, settings: Settings, chains_each: int, start: Direction | None = None) -> None:
        self.batch = batch
        self.start: Direction = start or ("forward" if settings.start == "forward" else "backward")
        beams = [list(fills)[:chains_each] for fills in plain_beams(batch, self.start)]
        self.proposals: list[Fills] = [dict.fromkeys(fills, 0.0) for fills in beams]  # every fill recorded
        self.ranks = [rank for fills in beams for rank in range(len(fills))]  # which of its example's chains each is
        owners = [example for example, fills in enumerate(beams) for _ in fills]
        width = max(1, *(len(layout.region) for layout in batch.layouts))
        regions = [batch.layouts[owner].region for owner in owners]
        device = batch.forward.tree.device
        padded = [[*fill, *[0] * (width - len(fill))] for fills in beams for fill in fills]
        free = [[not isinstance(slot, int) for slot in region] + [False] * (width - len(region)) for region in regions]
        self.fills = torch.tensor(padded, dtype=torch.long, device=device).view(-1, width)  # (C, W) from left to right
        self.free = torch.tensor(free, dtype=torch.bool, device=device).view(-1, width)  # (C, W)
        self.owners = torch.tensor(owners, dtype=torch.long, device=device)  # (C,)
        self.widths = torch.tensor([len(region) for region in regions], dtype=torch.long, device=device)
        roots = {d: torch.tensor(batch[d].roots, device=device)[self.owners] for d in DIRECTIONS}
        self.nodes = {d: roots[d][:, None].repeat(1, width) for d in DIRECTIONS}  # (C, W) in reading order
        self.read = {d: torch.zeros_like(self.owners) for d in DIRECTIONS}  # (C,) up to where the nodes are right

    def turn(self, direction: Direction, rows: Tensor, slots: Tensor) -> Tensor:
        """Slots (n,) from left to right as places in the reading order of a direction, and the other way round."""
        return slots if direction == "forward" else self.widths[rows] - 1 - slots

    def says(self, direction: Direction, rows: Tensor, slots: Tensor) -> Tensor:
        """What one model says (n, V) of slots (n,) of the present fills, having read what stands before them."""
        tree, nodes, read = self.batch[direction].tree, self.nodes[direction], self.read[direction]
        if tree.is_full:
            tree.forget()
            read.zero_()
        ends = self.turn(direction, rows, slots)
        for place in range(int(read[rows].min()), int(ends.max())):
            moving = rows[(read[rows] <= place) & (place < ends)]
            if len(moving):
                tokens = self.fills[moving, self.turn(direction, moving, torch.full_like(moving, place))]
                following = tree.read(place, nodes[moving, place].tolist(), tokens.tolist())
                nodes[moving, place + 1] = torch.tensor(following, device=nodes.device)
        read[rows] = ends
        said = tree.context_scores.new_empty(len(rows), tree.vocab_size)
        for depth in sorted(set(ends.tolist())):
            here = (ends == depth).nonzero().flatten()
            said[here] = tree.log_probs(depth)[nodes[rows[here], depth]]
        return said

    def bias(self, rows: Tensor, slots: Tensor) -> Tensor:
        """(1, V): samplers take neither penalties nor required words, so all free slots are alike, unless one has a
        choice: (n, V)."""
        rules = self.batch.forward.rules
        alike = not any(isinstance(slot, OneOf) for layout in self.batch.layouts for slot in layout.region)
        places = [(rows[:1], slots[0])] if alike else zip(rows[:, None], slots, strict=True)
        return torch.cat([rules.bias(self.owners[row], int(slot)) for row, slot in places])

    def change(self, rows: Tensor, slots: Tensor, uniforms: Tensor | None) -> None:
        """Draw a new token for one slot of each of some chains, or take the best one."""
        if not len(rows):
            return
        scores = self.says("forward", rows, slots).add_(self.says("backward", rows, slots)).add_(self.bias(rows, slots))
        tokens = scores.argmax(1) if uniforms is None else _draw(scores, uniforms)
        self.put(rows, slots, tokens, scores)

    def put(self, rows: Tensor, slots: Tensor, tokens: Tensor, scores: Tensor) -> None:
        """Where nothing is possible by the scores (n, M), the present token stays."""
        possible = (scores > -torch.inf).any(1)
        self.fills[rows, slots] = torch.where(possible, tokens, self.fills[rows, slots])

    def record(self, rows: Tensor) -> None:
        """Note the present fills of some chains."""
        columns = (each[rows].tolist() for each in (self.owners, self.widths, self.fills))
        for owner, width, fill in zip(*columns, strict=True):
            self.proposals[owner].setdefault(tuple(fill[:width]), 0.0)

    def uniforms(self, seed: int, num_sweeps: int, purpose: int = 0) -> Tensor:
        """(C, num_sweeps, W) numbers in [0, 1) that depend on the seed and the template, not on the batch."""
        drawn = torch.zeros(len(self.ranks), num_sweeps, self.fills.shape[1])
        for chain, (owner, rank) in enumerate(zip(self.owners.tolist(), self.ranks, strict=True)):
            layout = self.batch.layouts[owner]
            key = repr((seed, purpose, rank, layout.context, layout.region, layout.rest))
            generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
            width = len(layout.region)
            drawn[chain, :, :width] = torch.rand(num_sweeps, width, generator=generator)
        return drawn.to(self.fills.device)


def _draw(logits: Tensor, uniforms: Tensor) -> Tensor:
    """Draw from softmax(logits) (n, M) by inverting its cumulative sum at `uniforms` (n,); (n,) indices."""
    cumulative = logits.softmax(1).cumsum_(1)  # NaN in a row that allows nothing
    targets = uniforms.to(cumulative)[:, None] * cumulative[:, -1:]
    index = torch.searchsorted(cumulative, targets, right=True).clamp_(max=logits.shape[1] - 1)
    impossible = logits.gather(1, index) == -torch.inf  # where rounding led past the last possible one
    return torch.where(impossible, logits.argmax(1, keepdim=True), index)[:, 0]
