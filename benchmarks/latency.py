"""One template alone, text only, one thread: what a page or an editor waits for.

In units of one float32 call of `method="forward"` for five known words; and in units of its own bare matrix products,
which are those of the rows that it stepped, in float32, done again without anything around them. Processor seconds, the
least of several calls. `start="backward"` where lengths are known.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from problems import trained_pair
from torch import Tensor

from bibs import Infiller

REPEATS = 7
FIVE_WORDS = "a man _ _ _ _ _ on a wave"
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "five known words": (FIVE_WORDS, {"start": "backward"}),
    "a man ___ a wave": ("a man ___ a wave", {}),
    "the ___ was ___ down the tracks": ("the ___ was ___ down the tracks", {}),
    "five diverse answers": (
        FIVE_WORDS,
        {"start": "backward", "num_return_sequences": 5, "diversity_penalty": 2.0},
    ),
}


def run() -> list[dict[str, object]]:
    all_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    _, exact = trained_pair()
    quick = Infiller(
        forward=exact.forward,
        backward=exact.backward,
        vocabulary=exact.vocabulary,
        length_prior=exact.length_prior,
        precision="auto",
    )
    exact = Infiller(
        forward=exact.forward,
        backward=exact.backward,
        vocabulary=exact.vocabulary,
        length_prior=exact.length_prior,
        precision="float32",
    )
    contenders: dict[str, Callable[[], object]] = {"unit": partial(exact, FIVE_WORDS, method="forward")}
    for name, (template, options) in CALLS.items():
        contenders[f"{name}, float32"] = partial(exact, template, **options)
        contenders[f"{name}, {quick.precision}"] = partial(quick, template, **options)
        contenders[f"{name}, products"] = products(exact, template, options)
    seconds = least(contenders)
    rows: list[dict[str, object]] = [{"call": "forward, five known words (ms)", "float32": _ms(seconds["unit"])}]
    for name in CALLS:
        row: dict[str, object] = {"call": name}
        for precision in dict.fromkeys(("float32", quick.precision)):
            taken = seconds[f"{name}, {precision}"]
            row[precision] = round(taken / seconds["unit"], 2)
            row[f"{precision} / products"] = round(taken / seconds[f"{name}, products"], 2)
        rows.append(row)
    torch.set_num_threads(all_threads)
    empty = dict.fromkeys(rows[1], "")
    return [empty | row for row in rows]


def least(contenders: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The least processor seconds of each, taken in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(REPEATS):
        for name, call in contenders.items():
            began = time.thread_time()
            call()
            seconds[name].append(time.thread_time() - began)
    return {name: min(taken[1:]) for name, taken in seconds.items()}  # the first is a warm-up


def products(infiller: Infiller, template: str, options: dict[str, Any]) -> Callable[[], object]:
    """The float32 products of every step of a call, by the numbers of rows that it stepped."""
    counts: list[int] = []
    stepping = [Counted(model, counts) for model in (infiller.forward, infiller.backward)]
    counted = Infiller(
        forward=stepping[0],
        backward=stepping[1],
        vocabulary=infiller.vocabulary,
        length_prior=infiller.length_prior,
        precision="float32",
    )
    counted(template, **options)
    decoder = infiller.forward.decoder()  # type: ignore[attr-defined]
    output = decoder.output
    matrices = [decoder.layers[0].state, output.first, *output.wide]
    inputs = [torch.randn(max(counts), matrix.weight.shape[0]) for matrix in matrices]

    @torch.inference_mode()
    def work() -> None:
        for count in counts:
            for matrix, rows in zip(matrices, inputs, strict=True):
                matrix(rows[:count])

    return work


class Counted:
    """Passes everything on, and notes how many rows each step had."""

    def __init__(self, model: Any, counts: list[int]) -> None:
        self.model, self.counts, self.vocab_size = model, counts, model.vocab_size
        self.start, self.score = model.start, model.score

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        self.counts.append(len(tokens))
        result: tuple[Tensor, Any] = self.model.step(tokens, state)
        return result


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
