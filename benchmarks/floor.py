"""Benchmark 3: one plain LSTM pass against the bare matrix products that it cannot avoid."""

from __future__ import annotations

from collections.abc import Callable

import torch
from problems import lstm_pair, random_templates
from timing import interleaved
from torch import Tensor

from bibs.constraints import Demands
from bibs.search import Layout, Settings, Trees, run_pass

NUM_EXAMPLES, NUM_BEAMS, WIDTH, HIDDEN, VOCAB = 64, 5, 8, 512, 10_000


def products(multiply: Callable[[Tensor, Tensor], Tensor], weights: list[Tensor]) -> Callable[[], object]:
    """The recurrent and the output product of every step of the pass, 320 rows each."""
    rows = torch.randn(NUM_EXAMPLES * NUM_BEAMS, HIDDEN)

    def work() -> None:
        for _ in range(WIDTH - 1):
            for weight in weights:
                multiply(rows, weight)

    return work


def run() -> list[dict[str, object]]:
    forward, _ = lstm_pair(HIDDEN, VOCAB)
    templates = random_templates(NUM_EXAMPLES, WIDTH, VOCAB)
    layouts = [Layout.of(template) for template in templates]
    trees = Trees.of(forward, forward, Settings(num_beams=NUM_BEAMS))
    trees.forward.begin([layout.context for layout in layouts], None)
    demands = Demands.plain(VOCAB, (0, 1, 2), NUM_EXAMPLES)

    def one_pass() -> None:
        trees.forward.forget()
        run_pass(trees.side(trees.forward, layouts, range(NUM_EXAMPLES), demands))

    shapes = [(4 * HIDDEN, HIDDEN), (VOCAB, HIDDEN)]
    tall = [torch.randn(shape) for shape in shapes]
    wide = [weight.t().contiguous() for weight in tall]
    contenders: dict[str, Callable[[], object]] = {
        "pass": torch.inference_mode()(one_pass),
        "rows @ weight.T": products(lambda rows, weight: rows @ weight.t(), tall),
        "rows @ transposed": products(lambda rows, weight: rows @ weight, wide),
        "weight @ rows.T": products(lambda rows, weight: weight @ rows.t(), tall),
    }
    seconds = interleaved(contenders, repeats=15)
    passed = seconds.pop("pass")
    fastest = min(seconds, key=lambda name: seconds[name])
    return [
        {
            "fastest layout": fastest,
            "share of the floor": f"{seconds[fastest] / passed:.0%}",
            "GFLOP/s of the floor": round(
                2 * (WIDTH - 1) * NUM_EXAMPLES * NUM_BEAMS * sum(a * b for a, b in shapes) / seconds[fastest] / 1e9
            ),
        }
    ]
