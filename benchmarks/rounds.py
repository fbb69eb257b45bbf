"""Benchmark 2: BiBS to convergence (four rounds at most) against one plain forward beam search of the same width.

Times, and rows stepped, which do not depend on the machine; both in bare passes (contexts read, one pass, top fills),
and times also in calls of `method="forward"`, which reads both contexts and scores its answer under both models, as
every method does for its user. A token that rescoring scores is a row without its distribution; these stand apart.

One thread is how `bibs eval --workers` runs, a process a core; its times are CPU seconds, which other work on the
machine disturbs least. With all threads they are seconds on the clock.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import torch
from problems import caption_templates, trained_pair
from timing import interleaved

from bibs.search import Opening, beam_search, fill_templates
from bibs.search.template import Layout
from fakes import CountingModel, CountingScoringModel

NUM_EXAMPLES = 64


def run() -> list[dict[str, object]]:
    all_threads = torch.get_num_threads()
    table = [_row(removed, num_threads) for num_threads in sorted({1, all_threads}) for removed in (0.25, 0.5, 0.75)]
    torch.set_num_threads(all_threads)
    return table


def _row(removed: float, num_threads: int) -> dict[str, object]:
    torch.set_num_threads(num_threads)
    _, infiller = trained_pair()
    forward, backward, vocabulary = infiller.forward, infiller.backward, infiller.vocabulary
    banned = (vocabulary.start, vocabulary.end, vocabulary.unk)
    templates = caption_templates(infiller, NUM_EXAMPLES, removed)
    layouts = sorted((Layout.of(t) for t in templates), key=lambda layout: -len(layout.region))

    def plain() -> object:
        """The paper's URNN-f: read the contexts, one pass, take its top fills; nothing is rescored."""
        opening = Opening.read("forward", forward, layouts, banned=banned)
        return beam_search(opening, num_beams=5, keep=False, send=False).fills()

    search = partial(fill_templates, forward, backward, templates, banned=banned, batch_size=NUM_EXAMPLES)
    seconds = interleaved(
        {
            "plain": plain,
            "forward": partial(search, method="forward"),
            "bibs": partial(search, rescore=False),
            "no look-up": partial(search, rescore=False, lookup=False),
            "rescored": partial(search),
        },
        repeats=5,
        clock=time.thread_time if num_threads == 1 else time.perf_counter,
    )
    rounds = [fills[0].rounds for fills in search()]
    counted = CountingScoringModel(forward), CountingScoringModel(backward)
    fill_templates(*counted, templates, banned=banned, batch_size=NUM_EXAMPLES)
    stepped, scored = (sum(getattr(model, what) for model in counted) for what in ("rows", "scored"))
    opening = Opening.read("forward", counting := CountingModel(forward), layouts, banned=banned)
    beam_search(opening, num_beams=5, keep=False, send=False)
    return {
        "threads": num_threads,
        "removed": f"{removed:.0%}",
        "BiBS / pass": round(seconds["bibs"] / seconds["plain"], 2),
        "no look-up / pass": round(seconds["no look-up"] / seconds["plain"], 2),
        "rescored / pass": round(seconds["rescored"] / seconds["plain"], 2),
        "BiBS / forward": round(seconds["bibs"] / seconds["forward"], 2),
        "rescored / forward": round(seconds["rescored"] / seconds["forward"], 2),
        "rows stepped": round(stepped / counting.rows, 2),
        "tokens rescored": round(scored / counting.rows, 2),
        "mean rounds": round(sum(rounds) / len(rounds), 2),
    }
