"""One thread that owns the model, and the jobs that wait for it.

Jobs of one key that arrive together run together: `max_items` items at most, or what has come within `max_wait`
seconds. A job that is alone does not wait: only where the last batch had company is more expected. Whoever waits no
longer cancels the job's future, and the job leaves the queue. If a batch fails, its jobs run one by one, so that the
failure of one is never that of another. After `close` nothing more is taken, and all that was taken is run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any


class ClosedError(RuntimeError):
    """The queue takes nothing more."""


@dataclass(frozen=True, eq=False)
class Job:
    """Items that are answered together; `future` is set to their results."""

    key: Hashable
    items: Sequence[Any]
    future: Future[list[Any]] = field(default_factory=Future)


class Batcher:
    def __init__(
        self,
        run: Callable[[Any, list[Any]], Sequence[Any]],
        *,
        max_items: int = 64,
        max_wait: float = 0.010,
        on_batch: Callable[[int, float], None] = lambda items, seconds: None,
    ) -> None:
        """`run(key, items)` gives the result of each; `on_batch` hears how many items it had, and the seconds."""
        self._run_items, self._max_items, self._max_wait, self._on_batch = run, max_items, max_wait, on_batch
        self._pending: dict[Job, None] = {}  # in the order of arrival
        self._changed = threading.Condition()
        self._closing = self._had_company = False
        self._thread = threading.Thread(target=self._work, name="bibs-batcher", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> Future[list[Any]]:
        with self._changed:
            if self._closing:
                raise ClosedError("the service is stopping")
            self._pending[job] = None
            self._changed.notify()
        job.future.add_done_callback(lambda _: self._pending.pop(job, None))
        return job.future

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive() and not self._closing

    def close(self) -> None:
        """Run what was taken, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next_batch():
            if alive := [job for job in batch if job.future.set_running_or_notify_cancel()]:
                self._run(alive)

    def _next_batch(self) -> list[Job]:
        """The oldest job, and those that can run with it; nothing at the end."""
        with self._changed:
            while True:
                while not self._pending and not self._closing:
                    self._changed.wait()
                if self._had_company:
                    self._wait_for_company()
                batch = self._take()  # nothing, where the last one to wait has just given up
                self._had_company = len(batch) > 1 or bool(self._pending)
                if batch or self._closing:
                    return batch

    def _wait_for_company(self) -> None:
        until = time.monotonic() + self._max_wait
        while not self._closing and sum(len(job.items) for job in list(self._pending)) < self._max_items:
            if not self._changed.wait(max(0.0, until - time.monotonic())):
                return

    def _take(self) -> list[Job]:
        batch: list[Job] = []
        room = self._max_items
        for job in list(self._pending):  # a copy: whoever gives up takes a job out at any time
            if not batch or (job.key == batch[0].key and len(job.items) <= room):
                batch.append(job)
                room -= len(job.items)
        for job in batch:
            self._pending.pop(job, None)
        return batch

    def _run(self, batch: Sequence[Job]) -> None:
        items, begin = [item for job in batch for item in job.items], time.monotonic()
        try:
            results = list(self._run_items(batch[0].key, items))
            if len(results) != len(items):
                raise RuntimeError(f"{len(items)} items have {len(results)} results")
            self._on_batch(len(items), time.monotonic() - begin)
        except BaseException as error:  # whatever it is, it must not end the thread
            if len(batch) == 1:
                batch[0].future.set_exception(error)
            for job in batch if len(batch) > 1 else ():
                self._run([job])
            return
        for job in batch:
            job.future.set_result(results[: len(job.items)])
            del results[: len(job.items)]
