"""Every fill there is: a beam search whose beam holds the whole space. For small problems, and to judge the rest."""

from __future__ import annotations

from dataclasses import replace

import torch

from .beam import FREE, beam_search
from .pair import Fill, Memory, Pair, finish, propose
from .settings import Settings


def enumerate_fills(pair: Pair, settings: Settings) -> list[list[Fill]]:
    """Score all V^W fills of each template by S."""
    allowed = pair.forward.model.vocab_size - len(pair.forward.banned)
    results = []
    for example in range(len(pair)):
        one = pair.select(torch.tensor([example], device=pair.forward.slots.device))
        free = int((one.forward.slots == FREE).sum())
        if allowed**free > settings.max_fills:
            raise ValueError(
                f"`method` 'exact' must not enumerate more than {settings.max_fills} fills (`max_fills`), "
                f"but {free} free slots of {allowed} tokens make {allowed}^{free}"
            )
        every = replace(one.forward, required=one.forward.required[:, :0])
        latest = beam_search(every, num_beams=max(1, allowed**free), send=False)
        layout = one.forward.layouts[0]
        proposals = [
            {fill: score for fill, score in proposal.items() if set(layout.required) <= set(layout.free_words(fill))}
            for proposal in propose("forward", latest, one.forward.widths.tolist())
        ]
        results += finish(one, Memory().after("forward", latest), proposals, settings, "sum")
    return results
