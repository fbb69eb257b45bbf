"""Where BiBS begins, and how many rounds it takes: at both ends, at the right end as in the paper, and there with twice
the beams.

500 captions of the validation split with their pictures. S is the mean over the captions of the best fill's; times are
processor seconds of one thread, in units of the paper's start.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from problems import caption_templates_with_pictures, trained_pair

from bibs import fill_templates

NUM_EXAMPLES = 500
STARTS: dict[str, dict[str, Any]] = {
    "from the right": {"start": "backward", "num_rounds": 4},
    "from the left": {"start": "forward", "num_rounds": 4},
    "both ends, one round": {"start": "both", "num_rounds": 1},
    "both ends, two rounds": {"start": "both", "num_rounds": 2},
    "both ends, three rounds": {"start": "both", "num_rounds": 3},
    "both ends, four rounds": {"start": "both", "num_rounds": 4},
    "from the right, B = 10": {"start": "backward", "num_rounds": 4, "num_beams": 10},
}


def run() -> list[dict[str, object]]:
    all_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    _, infiller = trained_pair()
    banned = (infiller.vocabulary.start, infiller.vocabulary.end, infiller.vocabulary.unk)
    rows: dict[str, dict[str, object]] = {name: {"start": name} for name in STARTS}
    for removed in (0.25, 0.5, 0.75):
        templates, pictures = caption_templates_with_pictures(infiller, NUM_EXAMPLES, removed)
        seconds = {}
        for name, options in STARTS.items():
            began = time.process_time()
            found = fill_templates(
                infiller.forward, infiller.backward, templates, conditions=pictures, banned=banned, **options
            )
            seconds[name] = time.process_time() - began
            rows[name][f"S, {removed:.0%}"] = round(sum(fills[0].score for fills in found) / len(found), 3)
            rows[name][f"time, {removed:.0%}"] = round(seconds[name] / seconds["from the right"], 2)
    torch.set_num_threads(all_threads)
    return list(rows.values())
