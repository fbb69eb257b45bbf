"""Every fill there is, for small problems and to judge the rest."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import prod

import torch

from bibs.search import Batch, Fill, Fills, Settings, Side, finish

from .settings import BaselineSettings


def enumerate_fills(batch: Batch, settings: Settings, baseline: BaselineSettings) -> list[list[Fill]]:
    """Score all fills of each template by S."""
    proposals: list[Fills] = []
    for example, layout in enumerate(batch.layouts):
        allowed = _allowed(batch.forward, example)
        if prod(map(len, allowed)) > baseline.max_fills:
            slots = zip(allowed, layout.region, strict=True)
            free = Counter(len(tokens) for tokens, slot in slots if not isinstance(slot, int))
            product_of = " x ".join(f"{tokens}^{count}" for tokens, count in free.items())
            raise ValueError(
                f"`method` 'exact' must not enumerate more than {baseline.max_fills} fills (`max_fills`), "
                f"but {free.total()} free slots make {product_of}"
            )
        _read_all(batch.forward, example, allowed)
        _read_all(batch.backward, example, allowed[::-1])
        possible = batch.forward.rules.penalty
        proposals.append({fill: 0.0 for fill in product(*allowed) if possible(example, fill) < torch.inf})
    return finish(batch, proposals, settings, "sum")


def _allowed(side: Side, example: int) -> list[list[int]]:
    """The tokens that may stand in each slot."""
    row = torch.tensor([example], device=side.tree.device)
    biases = (side.rules.bias(row, slot)[0] for slot in range(len(side.layouts[example].region)))
    return [(bias > -torch.inf).nonzero().flatten().tolist() for bias in biases]


def _read_all(side: Side, example: int, allowed: list[list[int]]) -> None:
    """Read every beginning into the tree, so that fills share what they begin with."""
    nodes = [side.roots[example]]
    for depth, tokens in enumerate(allowed[:-1]):
        parents, choices = zip(*product(nodes, tokens), strict=True) if nodes and tokens else ((), ())
        nodes = side.tree.read(depth, parents, choices)
