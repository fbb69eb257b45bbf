"""Bidirectional Beam Search as the paper writes it: every connection (b, y, b') is built and ranked.

An independent second implementation: it judges law 1 in the tests and is what the message form is measured against.
Slow on purpose, simple on purpose: one blank width per batch, no look-up, nothing leaves early.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bibs import StepModel
from fakes import State, select_rows

Prefix = tuple[int, ...]
Slots = Sequence[int | None]


@dataclass
class JudgedPass:
    """What one pass over one template should see. Fills are in its reading order."""

    direction: str
    frontiers: list[dict[Prefix, float]]  # slot -> partial fill -> running score
    ranking: dict[Prefix, float]  # complete fill -> what it was chosen by, best first

    @property
    def beams(self) -> list[set[Prefix]]:
        return [set(frontier) for frontier in self.frontiers]


@dataclass
class LiteralPass:
    direction: str
    prefixes: list[list[list[Prefix]]]  # slot, example, beam -> partial fill in reading order
    scores: list[Tensor]  # slot -> (N, K)
    log_probs: list[Tensor]  # slot -> (N, K, V)
    fills: list[list[Prefix]]  # example, beam -> complete fill in reading order, best first
    ranking: Tensor  # (N, K)

    def of(self, example: int) -> JudgedPass:
        def alive(prefixes: list[list[Prefix]], values: Tensor) -> dict[Prefix, float]:
            pairs = zip(prefixes[example], values[example].tolist(), strict=True)
            return {prefix: value for prefix, value in pairs if value > -torch.inf}

        frontiers = [alive(prefixes, scores) for prefixes, scores in zip(self.prefixes, self.scores, strict=True)]
        return JudgedPass(self.direction, frontiers, alive(self.fills, self.ranking))


def cut(template: Slots) -> tuple[list[int], list[int | None], list[int]]:
    """What stands before the first free slot, all up to the last one, and what stands behind it."""
    free = [slot for slot, token in enumerate(template) if token is None]
    first, last = (free[0], free[-1] + 1) if free else (len(template), len(template))
    return list(template[:first]), list(template[first:last]), list(template[last:])


def directions(start: str, num_rounds: int) -> list[str]:
    """Of each pass: a plain one, then two a round."""
    both = ("backward", "forward") if start == "backward" else ("forward", "backward")
    return [both[number % 2] for number in range(1 + 2 * num_rounds)]


def literal_pass(
    model: StepModel,
    opening: tuple[Tensor, State],
    regions: Sequence[Slots],
    banned: Sequence[int],
    num_beams: int,
    far: LiteralPass | None,
    direction: str,
) -> LiteralPass:
    log_probs, state = opening
    num_examples, vocab_size = log_probs.shape
    width = len(regions[0])
    log_probs = log_probs[:, None]  # (N, K, V)
    scores = log_probs.new_zeros(num_examples, 1)
    prefixes: list[list[Prefix]] = [[()] for _ in range(num_examples)]
    seen = LiteralPass(direction, [], [], [], [], scores)
    for slot in range(width):
        seen.prefixes.append(prefixes)
        seen.scores.append(scores)
        seen.log_probs.append(log_probs)
        allowed = torch.zeros(num_examples, vocab_size, dtype=torch.bool)
        for example, region in enumerate(regions):
            token = region[slot]
            if token is None:
                allowed[example] = True
                allowed[example, list(banned)] = False
            else:
                allowed[example, token] = True
        connections = (scores[:, :, None] + log_probs)[..., None]  # (N, K, V, 1)
        if far is not None:
            beyond = far.scores[width - 1 - slot][:, :, None] + far.log_probs[width - 1 - slot]  # (N, K', V)
            connections = connections + beyond.transpose(1, 2)[:, None]  # (N, K, V, K'): the whole cube
        best = connections.amax(3).masked_fill(~allowed[:, None], -torch.inf)  # the best b' of each (b, y)
        ranking, index = best.flatten(1).topk(min(num_beams, best[0].numel()))
        parents, tokens = index // vocab_size, index % vocab_size
        own = (scores[:, :, None] + log_probs).flatten(1).gather(1, index)
        scores = own.masked_fill(ranking == -torch.inf, -torch.inf)
        prefixes = [
            [
                (*prefixes[n][parent], token)
                for parent, token in zip(parents[n].tolist(), tokens[n].tolist(), strict=True)
            ]
            for n in range(num_examples)
        ]
        if slot + 1 < width:
            rows = (torch.arange(num_examples)[:, None] * log_probs.shape[1] + parents).flatten()
            stepped, state = model.step(tokens.flatten(), select_rows(state, rows))
            log_probs = stepped.view(num_examples, -1, vocab_size)
        seen.ranking = ranking
    seen.fills = prefixes
    return seen


def literal_search(
    forward: StepModel,
    backward: StepModel,
    templates: Sequence[Slots],
    *,
    banned: Sequence[int] = (),
    num_beams: int = 5,
    num_rounds: int = 4,
    start: str = "backward",
    conditions: Sequence[object] | Tensor | None = None,
) -> list[LiteralPass]:
    """Every pass, the plain one first. All templates must have regions of one width."""
    lefts, regions, rights = zip(*map(cut, templates), strict=True)
    turned = [region[::-1] for region in regions]
    sides = {"forward": (forward, lefts, regions), "backward": (backward, [right[::-1] for right in rights], turned)}
    openings = {name: model.start(contexts, conditions)[:2] for name, (model, contexts, _) in sides.items()}
    passes: list[LiteralPass] = []
    for direction in directions(start, num_rounds):
        model, _, oriented = sides[direction]
        far = passes[-1] if passes else None
        passes.append(literal_pass(model, openings[direction], oriented, banned, num_beams, far, direction))
    return passes
