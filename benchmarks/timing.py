"""Ratios within one run: the contenders take turns, and medians are compared. Machines are shared and noisy."""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence


def interleaved(contenders: Mapping[str, Callable[[], object]], repeats: int = 7) -> dict[str, float]:
    """The median seconds of each, one run of each in turn, after one run to warm up."""
    for contender in contenders.values():
        contender()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, contender in contenders.items():
            began = time.perf_counter()
            contender()
            seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in seconds.items()}


def _peak(connection: object, function: Callable[..., Callable[[], object]], arguments: Sequence[object]) -> None:
    work = function(*arguments)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    work()
    connection.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)  # type: ignore[attr-defined]


def peak_mebibytes(function: Callable[..., Callable[[], object]], *arguments: object) -> float:
    """How much a process of its own grows while it runs `function(*arguments)()`, the preparation not counted."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_peak, args=(sender, function, arguments))
    process.start()
    kibibytes: int = receiver.recv()
    process.join()
    return kibibytes / 1024
