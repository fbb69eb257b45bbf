"""Bidirectional Beam Search as the paper writes it: every connection (b, y, b') is built and ranked.

An independent second implementation: it judges law 1 in the tests and is what the message form is measured against.
Slow on purpose, simple on purpose: one blank width per batch, no look-up, nothing leaves early.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bibs.search.step_model import State, StepModel, select_rows


@dataclass
class LiteralPass:
    prefixes: list[list[list[tuple[int, ...]]]]  # slot, example, beam -> partial fill in reading order
    scores: list[Tensor]  # slot -> (N, K)
    log_probs: list[Tensor]  # slot -> (N, K, V)
    fills: list[list[tuple[int, ...]]]  # example, beam -> complete fill in reading order, best first
    ranking: Tensor  # (N, K)


def literal_pass(
    model: StepModel,
    opening: tuple[Tensor, State],
    regions: Sequence[Sequence[int | None]],
    banned: Sequence[int],
    num_beams: int,
    far: LiteralPass | None,
) -> LiteralPass:
    log_probs, state = opening
    num_examples, vocab_size = log_probs.shape
    width = len(regions[0])
    log_probs = log_probs[:, None]  # (N, K, V)
    scores = log_probs.new_zeros(num_examples, 1)
    prefixes: list[list[tuple[int, ...]]] = [[()] for _ in range(num_examples)]
    seen = LiteralPass([], [], [], [], scores)
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
    seen.fills, seen.ranking = prefixes, ranking
    return seen


def literal_search(
    forward: StepModel,
    backward: StepModel,
    templates: Sequence[Sequence[int | None]],
    *,
    banned: Sequence[int] = (),
    num_beams: int = 5,
    num_rounds: int = 4,
    conditions: Tensor | None = None,
) -> list[LiteralPass]:
    """Every pass, the plain right-to-left one first. All templates must have regions of one width."""
    spans = []
    for template in templates:
        free = [slot for slot, token in enumerate(template) if token is None]
        spans.append((free[0], free[-1] + 1))
    regions = [template[a:b] for template, (a, b) in zip(templates, spans, strict=True)]
    left = [template[:a] for template, (a, _) in zip(templates, spans, strict=True)]
    right = [template[b:][::-1] for template, (_, b) in zip(templates, spans, strict=True)]
    openings = {
        True: (forward, forward.start(left, conditions)[:2], regions),
        False: (backward, backward.start(right, conditions)[:2], [region[::-1] for region in regions]),
    }
    passes: list[LiteralPass] = []
    for number in range(1 + 2 * num_rounds):
        model, opening, oriented = openings[number % 2 == 1]
        passes.append(literal_pass(model, opening, oriented, banned, num_beams, passes[-1] if passes else None))
    return passes
