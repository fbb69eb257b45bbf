"""Ratios within one run: the contenders take turns, and medians are compared. Machines are shared and noisy."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path


def interleaved(
    contenders: Mapping[str, Callable[[], object]], repeats: int = 7, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """The median seconds of each, one run of each in turn, after one run to warm up."""
    for contender in contenders.values():
        contender()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, contender in contenders.items():
            began = clock()
            contender()
            seconds[name].append(clock() - began)
    return {name: statistics.median(values) for name, values in seconds.items()}


def _kibibytes(field: str) -> int:
    """VmRSS (what the process holds) or VmHWM (the most it ever held)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def _peak(connection: Connection, function: Callable[..., Callable[[], object]], arguments: Sequence[object]) -> None:
    work = function(*arguments)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the most from now on
    before = _kibibytes("VmRSS")
    work()
    connection.send(_kibibytes("VmHWM") - before)


def peak_mebibytes(function: Callable[..., Callable[[], object]], *arguments: object) -> float:
    """How much a process of its own grows while it runs `function(*arguments)()`, not counting preparation. (Linux)"""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_peak, args=(sender, function, arguments))
    process.start()
    kibibytes: int = receiver.recv()
    process.join()
    return kibibytes / 1024
