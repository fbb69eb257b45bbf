"""What a method costs and what it gives: captions per second of one core, in float32 and in int8, beside mean S.

250 captions of the validation split with their pictures, B = 5, four rounds, one thread, processor seconds, the least
of two calls that take turns.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import torch
from problems import caption_templates_with_pictures, trained_pair

from bibs import fill_templates
from bibs.models.int8 import choose_precision, in_precision

NUM_EXAMPLES = 250
REPEATS = 2
METHODS: dict[str, dict[str, Any]] = {
    "URNN-f": {"method": "forward"},
    "BiRNN-f+b": {"method": "rerank-sum"},
    "GSN (ordered)": {"method": "gsn"},
    "BiBS (from the right)": {"start": "backward"},
    "BiBS": {},
}


def run() -> list[dict[str, object]]:
    all_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    _, infiller = trained_pair()
    pair = infiller.forward, infiller.backward
    banned = (infiller.vocabulary.start, infiller.vocabulary.end, infiller.vocabulary.unk)
    precisions = dict.fromkeys(("float32", choose_precision("auto", pair)))
    rows: dict[tuple[str, str], dict[str, object]] = {
        (name, precision): {"method": name, "precision": precision} for name in METHODS for precision in precisions
    }
    for removed in (0.25, 0.5, 0.75):
        templates, pictures = caption_templates_with_pictures(infiller, NUM_EXAMPLES, removed)
        calls = {
            (name, precision): partial(
                fill_templates,
                *(in_precision(model, precision) for model in pair),
                templates,
                conditions=pictures,
                banned=banned,
                **options,
            )
            for name, options in METHODS.items()
            for precision in precisions
        }
        seconds = dict.fromkeys(calls, float("inf"))
        for _ in range(REPEATS):
            for key, call in calls.items():
                began = time.thread_time()
                found = call()
                seconds[key] = min(seconds[key], time.thread_time() - began)
                rows[key][f"S, {removed:.0%}"] = round(sum(fills[0].score for fills in found) / len(found), 2)
        for key, taken in seconds.items():
            rows[key][f"captions/s, {removed:.0%}"] = round(NUM_EXAMPLES / taken)
    torch.set_num_threads(all_threads)
    return list(rows.values())
