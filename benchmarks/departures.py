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
from unittest.mock import patch

import torch
from problems import caption_templates_with_pictures, trained_pair

from bibs import fill_templates
from bibs.search import Batch, Frontier, Settings, Side, beam, bidirectional
from bibs.search.beam import DEAD, Extension, Pass

NUM_EXAMPLES = 300
VARIANTS = {  # whether with tails, whether with triples
    "ours": (False, False),
    "tails instead of frontier": (True, False),
    "triples instead of unique (b, y)": (False, True),
    "both": (True, True),
}

plain_choose, plain_pass, plain_steps = beam._choose, beam.run_pass, bidirectional.run_steps


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
                    patches.enter_context(patch.object(bidirectional, "run_steps", counts.run_steps))
                    patches.enter_context(patch.object(beam, "_choose", counts.choose))
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


def pass_with_tails(near: Side, heard: Sequence[Sequence[Pass]] = ()) -> list[Pass]:
    """A pass that is heard with only those partial fills of its frontiers from which its final fills have grown."""
    passes = []
    for example, done in enumerate(plain_pass(near, heard)):
        fills = [fill[::-1] if near.turned else fill for fill in done.fills]
        frontiers = []
        for slot, frontier in enumerate(done.frontiers):
            tails = {fill[:slot] for fill in fills}
            beams = [each for each in zip(frontier.nodes, frontier.scores, strict=True) if each != DEAD]
            kept = [each for each in beams if near.tree.path(slot, each[0]) in tails]
            frontiers.append(near.stand(slot, {example: [kept]})[example])
        passes.append(Pass(tuple(frontiers), done.fills))
    return passes


class Triples:
    """Keeps the (b, y) of the B best triples, and counts the places that duplicates have taken."""

    def __init__(self) -> None:
        self.lost = self.places = 0

    def run_steps(self, batch: Batch, settings: Settings) -> list[bidirectional.Step]:
        """In place of `bidirectional.run_steps`: notes which side is the far one."""
        self.batch = batch
        return plain_steps(batch, settings)

    def choose(self, near: Side, slot: int, keys: dict[int, tuple[Frontier, ...]]) -> dict[int, list[list[Extension]]]:
        """In place of `beam._choose`. The B best triples are all made of the B best (b, y)."""
        chosen = plain_choose(near, slot, keys)
        far = self.batch["forward" if near.turned else "backward"]
        for example, (_, *heard) in keys.items():
            (group,) = chosen[example]
            if heard and group:  # one chain hears one pass
                table = far.tree.log_probs(len(near.layouts[example].region) - 1 - slot)
                tokens = torch.tensor([each.token for each in group])
                told = table[list(heard[0].nodes)][:, tokens] + torch.tensor(heard[0].scores)[:, None]  # (B', B)
                ranks = torch.tensor([each.rank for each in group])
                triples = ranks - told.amax(0) + told
                triples = triples.masked_fill(triples.isnan(), -torch.inf)  # -inf less -inf: no connection
                worst = triples.flatten().topk(near.num_beams).values[-1]  # the last of the B best
                kept = (triples.amax(0) >= worst).tolist()
                chosen[example] = [[each for each, stays in zip(group, kept, strict=True) if stays]]
                self.lost += len(group) - sum(kept)
                self.places += len(group)
        return chosen
