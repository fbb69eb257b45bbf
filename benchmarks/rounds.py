"""Benchmark 2: BiBS to convergence (four rounds at most) against one plain forward beam search of the same width.

In bare passes: contexts read, the pass or passes run, their fills taken, nothing scored. Rescoring is apart: the whole
call, which scores the fills of all passes exactly; also in calls of `method="forward"`, which reads both contexts and
scores its answer under both models, as every method does for its user. Two columns do not depend on the machine: rows
stepped, and tokens asked, which rescoring has to score, or to give up where their fill cannot win. Where the processor
has the instructions, every ratio is printed for int8, too, in the same float32 units.

One thread is how `bibs eval --workers` runs, a process a core; its times are CPU seconds, which other work on the
machine disturbs least. With all threads they are seconds on the clock.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import torch
from problems import caption_templates, trained_pair
from timing import interleaved

from bibs import StepModel, fill_templates
from bibs.constraints import Demands
from bibs.models.int8 import choose_precision, in_precision
from bibs.search import Batch, Fill, Layout, Settings, Trees, run_pass, run_steps
from fakes import CountingModel, CountingScoringModel

NUM_EXAMPLES = 256
SETTINGS = Settings(start="backward")


def run() -> list[dict[str, object]]:
    all_threads = torch.get_num_threads()
    table: list[dict[str, object]] = []
    for num_threads in sorted({1, all_threads}):
        torch.set_num_threads(num_threads)
        for removed in (0.25, 0.5, 0.75):
            table += _rows(removed, num_threads)
    torch.set_num_threads(all_threads)
    return table


def _rows(removed: float, num_threads: int) -> list[dict[str, object]]:
    """One row for each precision."""
    _, infiller = trained_pair()
    pair, vocabulary = (infiller.forward, infiller.backward), infiller.vocabulary
    banned = (vocabulary.start, vocabulary.end, vocabulary.unk)
    templates = caption_templates(infiller, NUM_EXAMPLES, removed)
    size = 320 // SETTINGS.num_beams
    ordered = sorted(templates, key=lambda template: -template.count(None))
    parts = [ordered[begin : begin + size] for begin in range(0, NUM_EXAMPLES, size)]
    demands = Demands.plain(len(vocabulary), banned, size)

    @torch.inference_mode()
    def plain(model: StepModel) -> None:
        """The paper's URNN-f: read the contexts, one pass, take its top fills."""
        trees = Trees.of(model, model, SETTINGS)
        for part in parts:
            layouts = [Layout.of(template) for template in part]
            trees.forward.begin([layout.context for layout in layouts], None)
            run_pass(trees.side(trees.forward, layouts, range(len(part)), demands))

    @torch.inference_mode()
    def passes(models: tuple[StepModel, StepModel], settings: Settings) -> None:
        def search(batch: Batch, settings: Settings) -> list[list[Fill]]:
            run_steps(batch, settings)
            return [[] for _ in batch.layouts]

        trees = Trees.of(*models, settings)
        for part in parts:
            trees.begin(part)
            trees.search(search, [Layout.of(template) for template in part], range(len(part)), demands)

    call = partial(fill_templates, templates=templates, banned=banned, start="backward")
    precisions = dict.fromkeys(("float32", choose_precision("auto", pair)))
    contenders: dict[str, Callable[[], object]] = {}
    for precision in precisions:
        models = tuple(in_precision(model, precision) for model in pair)
        contenders |= {
            f"plain {precision}": partial(plain, models[0]),
            f"forward {precision}": partial(call, *models, method="forward"),
            f"bibs {precision}": partial(passes, models, SETTINGS),
            f"no look-up {precision}": partial(passes, models, replace(SETTINGS, lookup=False)),
            f"rescored {precision}": partial(call, *models),
        }
    clock = time.thread_time if num_threads == 1 else time.perf_counter
    seconds = interleaved(contenders, repeats=3, clock=clock)
    counted = CountingScoringModel(pair[0]), CountingScoringModel(pair[1])
    rounds = [fills[0].rounds for fills in call(*counted)]
    stepped, scored = (sum(getattr(model, what) for model in counted) for what in ("rows", "scored"))
    plain(counting := CountingModel(pair[0]))

    def ratio(name: str, unit: str) -> float:
        return round(seconds[name] / seconds[unit], 2)

    return [
        {
            "threads": num_threads,
            "removed": f"{removed:.0%}",
            "precision": precision,
            "plain / pass": ratio(f"plain {precision}", "plain float32"),
            "BiBS / pass": ratio(f"bibs {precision}", "plain float32"),
            "no look-up / pass": ratio(f"no look-up {precision}", "plain float32"),
            "rescored / pass": ratio(f"rescored {precision}", "plain float32"),
            "rescored / forward": ratio(f"rescored {precision}", "forward float32"),
            "rows stepped": round(stepped / counting.rows, 2),
            "tokens asked": round(scored / counting.rows, 2),
            "mean rounds": round(sum(rounds) / len(rounds), 2),
        }
        for precision in precisions
    ]
