"""What two departures from the paper change: B = 5, from the right as in the paper, fills of all passes rescored.

The paper hears the tails of the far pass's final sequences, where we hear its frontiers, and keeps the B best triples
(b, y, b'), where we keep the B best (b, y). A (b, y) that comes in several triples is held once, and the places of its
duplicates stay empty. To hold it as often as it comes is not tried: duplicates would take places in later slots too.

300 captions of the validation split with their pictures. S is the best fill's, less ours: the mean over the captions
and its standard error. Places lost are those of duplicates, among all places of the steered choices that were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from unittest.mock import patch

import torch
from problems import caption_templates_with_pictures, trained_pair
from torch import Tensor

from bibs import fill_templates
from bibs.search import beam, bidirectional
from bibs.search.beam import DEAD, Extensions, Fills, Pass, Side

NUM_EXAMPLES = 300
VARIANTS = {  # whether with tails, whether with triples
    "ours": (False, False),
    "tails instead of frontier": (True, False),
    "triples instead of unique (b, y)": (False, True),
    "both": (True, True),
}

plain_choose, plain_extend, plain_pass = beam._choose, beam._extend, beam.run_pass


def run() -> list[dict[str, object]]:
    all_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    _, infiller = trained_pair()
    banned = (infiller.vocabulary.start, infiller.vocabulary.end, infiller.vocabulary.unk)
    rows: dict[str, dict[str, object]] = {name: {"search": name} for name in VARIANTS}
    for removed in (0.25, 0.5, 0.75):
        templates, pictures = caption_templates_with_pictures(infiller, NUM_EXAMPLES, removed)
        scores = {}
        for name, (tails, triples) in VARIANTS.items():
            counts = Triples()
            with ExitStack() as patches:
                if tails:
                    patches.enter_context(patch.object(bidirectional, "run_pass", pass_with_tails))
                if triples:
                    patches.enter_context(patch.object(beam, "_extend", counts.extend))
                found = fill_templates(
                    infiller.forward,
                    infiller.backward,
                    templates,
                    conditions=pictures,
                    banned=banned,
                    num_beams=5,
                    start="backward",
                )
            scores[name] = torch.tensor([fills[0].score for fills in found], dtype=torch.float64)
            less = scores[name] - scores["ours"]
            error = float(less.std()) / NUM_EXAMPLES**0.5
            rows[name][f"S less ours, {removed:.0%}"] = f"{float(less.mean()):.3f} ± {error:.3f}"
            rows[name][f"places lost, {removed:.0%}"] = f"{counts.lost / max(1, counts.places):.1%}"
    torch.set_num_threads(all_threads)
    return list(rows.values())


def pass_with_tails(near: Side, far: Side | None = None, heard: Sequence[Pass] = ()) -> Pass:
    """A pass that is heard with only those partial fills of its frontiers from which its final fills have grown."""
    done = plain_pass(near, far, heard)
    frontiers: list[list[int]] = [[] for _ in done.frontiers]
    for slot in range(max(map(len, done.frontiers))):
        examples = [example for example, held in enumerate(done.frontiers) if slot < len(held)]
        held = [done.frontiers[example][slot] for example in examples]
        nodes, scores = near.nodes[held], near.scores[held]
        gone = torch.zeros_like(nodes, dtype=torch.bool)
        for row, example in enumerate(examples):
            tails = {fill[:slot] for fill in done.fills[example]}
            for place in (nodes[row] != DEAD).nonzero().tolist():
                gone[row][tuple(place)] = near.prefixes.path(int(nodes[row][tuple(place)])) not in tails
        nodes, scores = nodes.masked_fill(gone, DEAD), scores.masked_fill(gone, -torch.inf)
        for example, number in zip(examples, near.number(examples, nodes, scores), strict=True):
            frontiers[example].append(number)
    return Pass(list(map(tuple, frontiers)), done.fills)


class Triples:
    """Keeps the (b, y) of the B best triples, and counts the places that duplicates have taken."""

    def __init__(self) -> None:
        self.lost = self.places = 0

    def extend(
        self, near: Side, far: Side | None, slot: int, examples: Sequence[int], keys: Sequence[tuple[int, ...]]
    ) -> list[int | Fills]:
        """In place of `beam._extend`."""
        heard = {example: key[1:] for example, key in zip(examples, keys, strict=True)}
        with patch.object(beam, "_choose", partial(self.choose, far, heard)):
            return plain_extend(near, far, slot, examples, keys)

    def choose(
        self,
        far: Side,
        heard: dict[int, tuple[int, ...]],
        near: Side,
        slot: int,
        examples: Tensor,
        frontiers: Tensor,
        message: Tensor | None,
    ) -> Extensions:
        """In place of `beam._choose`. The B best triples are all made of the B best (b, y)."""
        chosen = plain_choose(near, slot, examples, frontiers, message)
        if message is None:
            return chosen
        others = torch.tensor([heard[example] for example in examples.tolist()])[:, 0]  # (m,): one chain, one pass
        nodes, scores = far.nodes[others][:, 0], far.scores[others][:, 0]  # (m, B')
        tokens = chosen.tokens.expand(-1, nodes.shape[1], -1)  # (m, B', B)
        told = far.prefixes.log_probs(nodes.flatten(), tokens.flatten(0, 1)).view_as(tokens) + scores[..., None]
        triples = chosen.ranking - told.amax(1, keepdim=True) + told
        triples = triples.masked_fill(triples.isnan(), -torch.inf)  # -inf less -inf: no connection
        worst = triples.flatten(1).topk(near.num_beams).values[:, -1]  # (m,) the last of the B best
        lost = (triples.amax(1) < worst[:, None])[:, None]  # (m, 1, B)
        self.lost += int(lost.sum())
        self.places += lost.numel()
        chosen.scores.masked_fill_(lost, -torch.inf)
        chosen.ranking.masked_fill_(lost, -torch.inf)
        return chosen
