"""Benchmark 1: the message form against the literal B x V x B search (tests/literal.py), time and peak memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from problems import lstm_pair, random_templates
from timing import interleaved, peak_mebibytes

from bibs import bidirectional_beam_search
from literal import literal_search

NUM_EXAMPLES, WIDTH, NUM_ROUNDS = 16, 6, 1


def prepare(form: str, num_beams: int) -> Callable[[], object]:
    """A plain pass and one round; no look-up and no rescoring, so that both take the same model steps."""
    forward, backward = lstm_pair()
    templates = random_templates(NUM_EXAMPLES, WIDTH)
    if form == "literal":
        return lambda: literal_search(forward, backward, templates, num_beams=num_beams, num_rounds=NUM_ROUNDS)
    return lambda: bidirectional_beam_search(
        forward,
        backward,
        templates,
        num_beams=num_beams,
        num_rounds=NUM_ROUNDS,
        start="backward",
        lookup=False,
        rescore=False,
        batch_size=NUM_EXAMPLES,
    )


def run() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for num_beams in (5, 10, 20):
        seconds = interleaved({form: prepare(form, num_beams) for form in ("message", "literal")}, repeats=3)
        memory = {form: peak_mebibytes(prepare, form, num_beams) for form in ("message", "literal")}
        rows.append(
            {
                "B": num_beams,
                "time, literal / message": round(seconds["literal"] / seconds["message"], 2),
                "peak MiB, message": round(memory["message"]),
                "peak MiB, literal": round(memory["literal"]),
                "memory, literal / message": round(memory["literal"] / memory["message"], 2),
            }
        )
    return rows
