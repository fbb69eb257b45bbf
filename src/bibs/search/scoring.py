"""The exact score of filled sequences under one model: log P of every token after the first.

The sequences form a tree that is walked level by level: those that share a beginning share its steps, and what a pass
was told (the log probabilities and states of its frontiers) is looked up. All rows of one step stand at the same
depth, so that a state which grows with depth can be joined too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .beam import Expansion, Opening, Pass
from .step_model import join_rows, select_rows
from .template import Tokens

MAX_VALUES = 2**24
"""How many log probabilities scoring holds at once: 64 MiB in float32."""

FRESH = -1
"""The source of a node that was stepped anew."""


@dataclass(frozen=True)
class Remembered:
    """Where to look things up: an opening, and the last pass from it (if any)."""

    opening: Opening
    memory: Pass | None

    def at(self, depth: int) -> Expansion | None:
        if depth == 0:
            return Expansion(self.opening.log_probs[:, None], self.opening.state)
        expansions = self.memory.expansions if self.memory else ()
        return expansions[depth] if depth < len(expansions) else None

    def below(self, depth: int) -> dict[tuple[int, int], int]:
        """(row of a parent at this depth, token) -> row of the extended partial fill one level down."""
        lower = self.at(depth + 1)
        if lower is None or self.memory is None:
            return {}
        width_above = 1 if depth == 0 else self.memory.expansions[depth].log_probs.shape[1]
        count, width = lower.log_probs.shape[:2]
        choice = self.memory.choices[depth].first(count)
        found = {}
        columns = (choice.parents.tolist(), choice.tokens.tolist(), choice.alive.tolist())
        for example, (parents, tokens, alive) in enumerate(zip(*columns, strict=True)):
            for beam in range(width):
                if alive[beam]:
                    found[example * width_above + parents[beam], tokens[beam]] = example * width + beam
        return found


class Asked(NamedTuple):
    """One sequence to score: a fill, in reading order, of an example of `sources[source]`."""

    source: int
    example: int
    fill: Tokens


class _Node(NamedTuple):
    """A beginning of some sequences: a row of what a source remembers at this depth, or of what was stepped anew."""

    source: int
    row: int


def score_fills(sources: Sequence[Remembered], asked: Sequence[Asked]) -> list[float]:
    """The whole-sequence score of each fill. All sources are of one model and one batch of contexts."""
    if not asked:
        return []
    chunk = max(1, MAX_VALUES // sources[0].opening.model.vocab_size)
    scores: list[float] = []
    for begin in range(0, len(asked), chunk):
        scores += _score_chunk(sources, asked[begin : begin + chunk])
    return scores


def _score_chunk(sources: Sequence[Remembered], asked: Sequence[Asked]) -> list[float]:
    sequences = [(*one.fill, *sources[one.source].opening.layouts[one.example].rest) for one in asked]
    results = [0.0] * len(asked)
    roots: dict[_Node, int] = {}
    at = [roots.setdefault(_Node(one.source, one.example), len(roots)) for one in asked]  # the node each stands at
    nodes = list(roots)
    totals = torch.stack([sources[node.source].opening.scores[node.row] for node in nodes])  # (nodes,)
    fresh: Expansion | None = None
    going = list(range(len(asked)))
    for depth in range(1 + max(map(len, sequences))):
        sums = totals.tolist()
        for row in [row for row in going if len(sequences[row]) == depth]:
            results[row] = sums[at[row]]
        going = [row for row in going if len(sequences[row]) > depth]
        if not going:
            break
        edges: dict[tuple[int, int], int] = {}
        for row in going:
            at[row] = edges.setdefault((at[row], sequences[row][depth]), len(edges))
        parents = [nodes[node] for node, _ in edges]
        tokens = torch.tensor([token for _, token in edges], device=totals.device)

        def told(source: int, depth: int = depth, fresh: Expansion | None = fresh) -> Expansion:
            expansion = fresh if source == FRESH else sources[source].at(depth)
            assert expansion is not None
            return expansion

        totals = totals[[node for node, _ in edges]] + _pick(told, parents, tokens)
        going_on = {at[row] for row in going if len(sequences[row]) > depth + 1}
        nodes, fresh = _descend(sources, told, parents, tokens, going_on, depth)
    return results


def _by_source(parents: Sequence[_Node], edges: Sequence[int]) -> dict[int, list[int]]:
    grouped: dict[int, list[int]] = {}
    for edge in edges:
        grouped.setdefault(parents[edge].source, []).append(edge)
    return grouped


def _pick(told: Callable[[int], Expansion], parents: list[_Node], tokens: Tensor) -> Tensor:
    """The log probability of each token (E,) after its parent."""
    grouped = _by_source(parents, range(len(parents)))
    picked = [
        told(source).log_probs.flatten(0, 1)[[parents[edge].row for edge in edges], tokens[edges]]
        for source, edges in grouped.items()
    ]
    order = torch.tensor([edge for edges in grouped.values() for edge in edges], device=tokens.device)
    joined = torch.cat(picked)
    return torch.empty_like(joined).index_copy(0, order, joined)


def _descend(
    sources: Sequence[Remembered],
    told: Callable[[int], Expansion],
    parents: list[_Node],
    tokens: Tensor,
    going_on: set[int],
    depth: int,
) -> tuple[list[_Node], Expansion | None]:
    """The nodes one level down. Those that no source remembers, and from which a sequence goes on, are stepped."""
    remembered = {source: sources[source].below(depth) for source in {node.source for node in parents} - {FRESH}}
    nodes: list[_Node] = []
    stepped: list[int] = []
    for edge, (parent, token) in enumerate(zip(parents, tokens.tolist(), strict=True)):
        row = remembered[parent.source].get((parent.row, token)) if parent.source != FRESH else None
        nodes.append(_Node(FRESH, 0) if row is None else _Node(parent.source, row))
        if row is None and edge in going_on:
            stepped.append(edge)
    if not stepped:
        return nodes, None
    grouped = _by_source(parents, stepped)
    states = [
        select_rows(told(source).state, torch.tensor([parents[edge].row for edge in edges], device=tokens.device))
        for source, edges in grouped.items()
    ]
    stepped = [edge for edges in grouped.values() for edge in edges]  # the order in which the states are joined
    for row, edge in enumerate(stepped):
        nodes[edge] = _Node(FRESH, row)
    log_probs, state = sources[0].opening.step(tokens[stepped], join_rows(states), depth + 1)
    return nodes, Expansion(log_probs[:, None], state)
