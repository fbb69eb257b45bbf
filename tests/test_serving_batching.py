"""The queue before the model, under faults."""

from __future__ import annotations

import random
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bibs.serving import batching
from bibs.serving.batching import Batcher, ClosedError, Job

PATIENCE = 60


class Worker:
    """Squares numbers, and remembers what it was asked together. It waits at a gate; some numbers are too much."""

    def __init__(self, *, bad: frozenset[int] = frozenset(), error: type[BaseException] = ArithmeticError) -> None:
        self.calls: list[tuple[Any, list[int]]] = []
        self.gate, self.entered = threading.Event(), threading.Event()
        self.bad, self.error = bad, error

    def __call__(self, key: Any, items: list[int]) -> list[int]:
        self.calls.append((key, list(items)))
        self.entered.set()
        assert self.gate.wait(PATIENCE)
        if self.bad & set(items):
            raise self.error("too much")
        return [item * item for item in items]


def held(worker: Worker, **options: Any) -> Batcher:
    """A queue whose worker is busy with the number 0."""
    batcher = Batcher(worker, **options)
    batcher.submit(Job("first", [0]))
    assert worker.entered.wait(PATIENCE)
    return batcher


def results(jobs: list[Job]) -> list[list[int]]:
    return [job.future.result(PATIENCE) for job in jobs]


def submit(batcher: Batcher, *rows: tuple[str, list[int]]) -> list[Job]:
    jobs = [Job(key, items) for key, items in rows]
    for job in jobs:
        batcher.submit(job)
    return jobs


def test_what_waits_together_runs_together_and_everyone_gets_their_own():
    worker = Worker()
    batcher = held(worker)
    jobs = submit(batcher, ("a", [1]), ("a", [2, 3]), ("a", [4]))
    worker.gate.set()
    assert results(jobs) == [[1], [4, 9], [16]]
    assert worker.calls == [("first", [0]), ("a", [1, 2, 3, 4])]
    batcher.close()


def test_other_keys_never_mix_and_the_oldest_goes_first():
    worker = Worker()
    batcher = held(worker)
    jobs = submit(batcher, ("b", [1]), ("a", [2]), ("b", [3]), ("a", [4]))
    worker.gate.set()
    assert results(jobs) == [[1], [4], [9], [16]]
    assert worker.calls[1:] == [("b", [1, 3]), ("a", [2, 4])]
    batcher.close()


def test_a_batch_has_at_most_so_many_items_unless_one_job_alone_has_more():
    worker = Worker()
    batcher = held(worker, max_items=3)
    jobs = submit(batcher, ("a", [1, 2]), ("a", [3, 4]), ("a", [5]), ("a", [6, 7, 8, 9]))
    worker.gate.set()
    results(jobs)
    assert worker.calls[1:] == [("a", [1, 2, 5]), ("a", [3, 4]), ("a", [6, 7, 8, 9])]
    batcher.close()


@pytest.mark.parametrize("error", [ArithmeticError, MemoryError, SystemExit, KeyboardInterrupt])
def test_one_failure_is_never_that_of_another(error):
    worker = Worker(bad=frozenset([2]), error=error)
    batcher = held(worker)
    first, bad, last = submit(batcher, ("a", [1]), ("a", [2]), ("a", [3]))
    worker.gate.set()
    assert results([first, last]) == [[1], [9]]
    with pytest.raises(error, match="too much"):
        bad.future.result(PATIENCE)
    (after,) = submit(batcher, ("a", [5]))
    assert results([after]) == [[25]]
    batcher.close()


def test_results_that_do_not_fit_are_a_failure_and_move_no_answer_to_another():
    batcher = Batcher(lambda key, items: [0] * (len(items) + 1))
    (job,) = submit(batcher, ("a", [1]))
    with pytest.raises(RuntimeError, match="1 items have 2 results"):
        job.future.result(PATIENCE)
    batcher.close()


def test_whoever_gives_up_leaves_the_queue_at_once_and_is_never_run():
    worker = Worker()
    batcher = held(worker)
    stays, leaves = submit(batcher, ("a", [1]), ("a", [2]))
    assert leaves.future.cancel()
    assert leaves not in batcher._pending
    worker.gate.set()
    assert results([stays]) == [[1]]
    batcher.close()
    assert worker.calls == [("first", [0]), ("a", [1])]


def test_the_thread_outlives_a_queue_that_empties_while_it_waits_for_company():
    worker = Worker()
    worker.gate.set()
    batcher = Batcher(worker, max_wait=0.2)
    batcher._had_company = True  # as after a busy time: it waits for more
    (alone,) = submit(batcher, ("a", [1]))
    alone.future.cancel()
    (after,) = submit(batcher, ("a", [3]))
    assert results([after]) == [[9]]
    assert batcher.is_running
    batcher.close()


def test_what_runs_cannot_be_given_up_and_hurts_nobody():
    worker = Worker()
    batcher = held(worker)
    (job,) = submit(batcher, ("a", [1]))
    worker.gate.set()
    results([job])
    assert not job.future.cancel()
    batcher.close()


def test_closing_runs_what_was_taken_and_takes_nothing_more():
    worker = Worker()
    batcher = held(worker)
    jobs = submit(batcher, ("a", [1]), ("b", [2]), ("a", [3]))
    closing = threading.Thread(target=batcher.close)
    closing.start()
    while batcher.is_running:
        pass
    with pytest.raises(ClosedError, match="the service is stopping"):
        batcher.submit(Job("a", [4]))
    worker.gate.set()
    closing.join(PATIENCE)
    assert [job.future.result(0) for job in jobs] == [[1], [4], [9]]


def test_a_batch_is_counted_once():
    counted: list[int] = []
    worker = Worker()
    batcher = held(worker, on_batch=lambda items, seconds: counted.append(items))
    jobs = submit(batcher, ("a", [1]), ("a", [2, 3]))
    worker.gate.set()
    results(jobs)
    batcher.close()
    assert counted == [1, 3]


@pytest.mark.parametrize("seed", range(3))
def test_a_storm_of_clients_that_give_up_and_items_that_fail_loses_nobody(seed):
    """Every job ends in its own result, its own failure, or was given up by its owner."""
    worker = Worker(bad=frozenset(range(0, 400, 17)))
    worker.gate.set()
    batcher = Batcher(worker, max_items=8, max_wait=0.001)
    chance = random.Random(seed)
    plans = [(number, chance.choice("ab"), chance.random() < 0.3) for number in range(400)]

    def client(plan: tuple[int, str, bool]) -> str:
        number, key, gives_up = plan
        job = Job(key, [number])
        batcher.submit(job)
        if gives_up and job.future.cancel():
            return "given up"
        try:
            return "right" if job.future.result(PATIENCE) == [number * number] else "wrong"
        except (ArithmeticError, CancelledError):
            return "failed" if number % 17 == 0 else "another's failure"

    with ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(client, plans))
    batcher.close()
    assert not batcher._pending
    assert set(ends) == {"right", "failed", "given up"}
    run = {number for _, items in worker.calls for number in items}
    assert not any(number in run for (number, _, _), end in zip(plans, ends, strict=True) if end == "given up")


def test_the_queue_stays_small_enough_to_read():
    assert len(Path(batching.__file__).read_text(encoding="utf-8").splitlines()) <= 120
