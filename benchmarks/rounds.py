"""Benchmark 2: BiBS to convergence (four rounds at most) against one plain forward beam search of the same width.

In bare passes: contexts read, the pass or passes run, their fills taken, nothing scored. Rescoring is apart: the whole
call, which scores the fills of all passes exactly; also in calls of `method="forward"`, which reads both contexts and
scores its answer under both models, as every method does for its user. Two columns do not depend on the machine: rows
stepped, and tokens asked, which rescoring has to score, or to give up where their fill cannot win.

One thread is how `bibs eval --workers` runs, a process a core; its times are CPU seconds, which other work on the
machine disturbs least. With all threads they are seconds on the clock.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import torch
from problems import caption_templates, trained_pair
from timing import interleaved

from bibs import StepModel, fill_templates
from bibs.constraints import Demands
from bibs.search import Batch, Fill, Layout, Settings, Trees, run_pass, run_steps
from fakes import CountingModel, CountingScoringModel

NUM_EXAMPLES = 256
SETTINGS = Settings(start="backward")


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
    size = 320 // SETTINGS.num_beams
    ordered = sorted(templates, key=lambda template: -template.count(None))
    parts = [ordered[begin : begin + size] for begin in range(0, NUM_EXAMPLES, size)]
    demands = Demands.plain(forward.vocab_size, banned, size)

    @torch.inference_mode()
    def plain(model: StepModel = forward) -> None:
        """The paper's URNN-f: read the contexts, one pass, take its top fills."""
        trees = Trees.of(model, backward, SETTINGS)
        for part in parts:
            layouts = [Layout.of(template) for template in part]
            trees.forward.begin([layout.context for layout in layouts], None)
            run_pass(trees.side(trees.forward, layouts, range(len(part)), demands))

    @torch.inference_mode()
    def passes(settings: Settings) -> None:
        def search(batch: Batch, settings: Settings) -> list[list[Fill]]:
            run_steps(batch, settings.start, settings.num_rounds)
            return [[] for _ in batch.layouts]

        trees = Trees.of(forward, backward, settings)
        for part in parts:
            trees.begin(part)
            trees.search(search, [Layout.of(template) for template in part], range(len(part)), demands)

    call = partial(fill_templates, forward, backward, templates, banned=banned, start="backward")
    seconds = interleaved(
        {
            "plain": plain,
            "forward": partial(call, method="forward"),
            "bibs": partial(passes, SETTINGS),
            "no look-up": partial(passes, replace(SETTINGS, lookup=False)),
            "rescored": call,
        },
        repeats=3,
        clock=time.thread_time if num_threads == 1 else time.perf_counter,
    )
    counted = CountingScoringModel(forward), CountingScoringModel(backward)
    rounds = [fills[0].rounds for fills in fill_templates(*counted, templates, banned=banned, start="backward")]
    stepped, scored = (sum(getattr(model, what) for model in counted) for what in ("rows", "scored"))
    plain(counting := CountingModel(forward))
    return {
        "threads": num_threads,
        "removed": f"{removed:.0%}",
        "BiBS / pass": round(seconds["bibs"] / seconds["plain"], 2),
        "no look-up / pass": round(seconds["no look-up"] / seconds["plain"], 2),
        "rescored / pass": round(seconds["rescored"] / seconds["plain"], 2),
        "rescored / forward": round(seconds["rescored"] / seconds["forward"], 2),
        "rows stepped": round(stepped / counting.rows, 2),
        "tokens asked": round(scored / counting.rows, 2),
        "mean rounds": round(sum(rounds) / len(rounds), 2),
    }
