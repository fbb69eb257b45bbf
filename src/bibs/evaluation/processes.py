"""Work spread over processes. Small matrix products gain more from a second process than from a second thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.synchronize import Event
from typing import Any, TypeVar

import torch
from torch import multiprocessing

from bibs.training import held_back_interrupts

Result = TypeVar("Result")

_work: Callable[..., Any] | None = None


def do_slices(
    work: Callable[..., Result], slices: Sequence[tuple[Any, ...]], workers: int
) -> Iterator[tuple[int, Result]]:
    """The place of each slice and `work(*slice)`, in the order in which they are done; one worker is this process."""
    if workers <= 1:
        yield from ((place, work(*each)) for place, each in enumerate(slices))
        return
    threads = max(1, torch.get_num_threads() // workers)
    # Not forked: a child of a process that has used its threads may wait for them for ever.
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(work, threads, stop))
    try:
        with held_back_interrupts():  # the workers are started here
            places = {pool.submit(_do, each): place for place, each in enumerate(slices)}
        for done in as_completed(places):
            yield places[done], done.result()
    except BrokenProcessPool:
        raise ValueError("a worker was ended from outside (out of memory?): run again to go on") from None
    finally:
        stop.set()  # whoever is still at work has been given up, and whoever only begins leaves at once
        pool.shutdown(cancel_futures=True)


def _begin(work: Callable[..., Any], threads: int, stop: Event) -> None:
    global _work
    _work = work
    torch.set_num_threads(threads)

    def leave_after(wait: Callable[[], object]) -> None:
        wait()
        os._exit(1)

    # A parent that was killed says nothing: without the second, its workers would wait for ever.
    parent = multiprocessing.parent_process()
    for wait in (stop.wait, *([parent.join] if parent else [])):
        threading.Thread(target=leave_after, args=(wait,), daemon=True).start()


def _do(each: tuple[Any, ...]) -> Any:
    assert _work is not None
    return _work(*each)
