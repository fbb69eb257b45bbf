"""The exact score of filled sequences under one model: log P of every token after the first.

The sequences form a tree that is walked level by level: those that share a beginning share its steps, and what a pass
was told (the log probabilities and states of its frontiers) is looked up. All rows of one step stand at the same
depth, so that a state which grows with depth can be joined too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .beam import Expansion, Opening, Pass
from .step_model import join_rows, select_rows

MAX_VALUES = 2**24
"""How many log probabilities scoring holds at once: 64 MiB in float32."""


class _Node(NamedTuple):
    """A beginning of some sequences: a row of what the pass was told at this depth, or of what was stepped anew."""

    fresh: bool
    row: int


def score_fills(
    opening: Opening, fills: Sequence[Sequence[tuple[int, ...]]], memory: Pass | None = None
) -> list[list[float]]:
    """The whole-sequence score of each fill of each example. Fills are given in the model's reading order."""
    chunk = max(1, MAX_VALUES // opening.model.vocab_size)
    pairs = [(example, fill) for example, group in enumerate(fills) for fill in group]
    scores: list[float] = []
    for begin in range(0, len(pairs), chunk):
        scores += _score_chunk(opening, pairs[begin : begin + chunk], memory)
    values = iter(scores)
    return [[next(values) for _ in group] for group in fills]


def _score_chunk(opening: Opening, pairs: Sequence[tuple[int, tuple[int, ...]]], memory: Pass | None) -> list[float]:
    sequences = [(*fill, *opening.layouts[example].rest) for example, fill in pairs]
    results = [0.0] * len(pairs)
    at = [example for example, _ in pairs]  # the node at which each sequence stands
    nodes = [_Node(False, example) for example in range(len(opening.layouts))]
    totals = opening.scores  # (nodes,)
    kept: Expansion | None = Expansion(opening.log_probs[:, None], opening.state)
    fresh: Expansion | None = None
    for depth in range(1 + max(map(len, sequences))):
        for row in [row for row, sequence in enumerate(sequences) if len(sequence) == depth]:
            results[row] = float(totals[at[row]])
        going = [row for row, sequence in enumerate(sequences) if len(sequence) > depth]
        if not going:
            break
        edges: dict[tuple[int, int], int] = {}
        for row in going:
            at[row] = edges.setdefault((at[row], sequences[row][depth]), len(edges))
        parents = [nodes[node] for node, _ in edges]
        tokens = torch.tensor([token for _, token in edges], device=opening.slots.device)
        totals = totals[[node for node, _ in edges]] + _pick(kept, fresh, parents, tokens)
        going_on = {at[row] for row in going if len(sequences[row]) > depth + 1}
        nodes, kept, fresh = _descend(opening, parents, tokens, going_on, kept, fresh, memory, depth)
    return results


def _pick(kept: Expansion | None, fresh: Expansion | None, parents: list[_Node], tokens: Tensor) -> Tensor:
    """The log probability of each token (E,) after its parent."""
    picked = []
    for source, is_fresh in ((kept, False), (fresh, True)):
        edges = [edge for edge, parent in enumerate(parents) if parent.fresh == is_fresh]
        if edges:
            assert source is not None
            values = source.log_probs.flatten(0, 1)[[parents[edge].row for edge in edges], tokens[edges]]
            picked.append((edges, values))
    joined = torch.cat([values for _, values in picked])
    order = torch.tensor([edge for edges, _ in picked for edge in edges], device=tokens.device)
    return torch.empty_like(joined).index_copy(0, order, joined)


def _descend(
    opening: Opening,
    parents: list[_Node],
    tokens: Tensor,
    going_on: set[int],
    kept: Expansion | None,
    fresh: Expansion | None,
    memory: Pass | None,
    depth: int,
) -> tuple[list[_Node], Expansion | None, Expansion | None]:
    """The nodes one level down. Those that memory does not hold, and from which some sequence goes on, are stepped."""
    below = memory.expansions[depth + 1] if memory and depth + 1 < len(memory.expansions) else None
    remembered = _remembered(memory, depth) if below is not None else {}
    nodes: list[_Node] = []
    stepped: list[int] = []
    for edge, (parent, token) in enumerate(zip(parents, tokens.tolist(), strict=True)):
        row = None if parent.fresh else remembered.get((parent.row, token))
        if row is None and edge in going_on:
            stepped.append(edge)
        nodes.append(_Node(True, len(stepped) - 1) if row is None else _Node(False, row))
    if not stepped:
        return nodes, below, None
    states = []
    for source, is_fresh in ((kept, False), (fresh, True)):
        rows = [parents[edge].row for edge in stepped if parents[edge].fresh == is_fresh]
        if rows:
            assert source is not None
            states.append(select_rows(source.state, torch.tensor(rows, device=tokens.device)))
    # The joined states come as kept rows, then fresh ones: number the stepped edges the same way.
    stepped.sort(key=lambda edge: parents[edge].fresh)
    for row, edge in enumerate(stepped):
        nodes[edge] = _Node(True, row)
    log_probs, state = opening.step(tokens[stepped], join_rows(states), depth + 1)
    return nodes, below, Expansion(log_probs[:, None], state)


def _remembered(memory: Pass | None, depth: int) -> dict[tuple[int, int], int]:
    """(row of the parent at this depth, token) -> row of the extended partial fill one level down."""
    assert memory is not None
    above, below = memory.expansions[depth].log_probs.shape[1], memory.expansions[depth + 1].log_probs.shape
    choice = memory.choices[depth].first(below[0])
    found = {}
    columns = (choice.parents.tolist(), choice.tokens.tolist(), choice.alive.tolist())
    for example, (parents, tokens, alive) in enumerate(zip(*columns, strict=True)):
        for beam in range(below[1]):
            if alive[beam]:
                found[example * above + parents[beam], tokens[beam]] = example * below[1] + beam
    return found
