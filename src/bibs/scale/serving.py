"""`bibs serve --engine ray`: the same application in replicas of Ray Serve. Needs the extra `bibs[ray]`.

Ray's proxy spreads requests over the replicas, and lets `max_queued` of them wait. A replica is the whole application
around a model of its own; requests that arrive together are gathered by `@serve.batch` instead of by `Batcher`. The
bounds of a request, and how many a replica takes at a time (`--max-waiting`), are the application's.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from ray import serve

from bibs.infiller import Infiller
from bibs.scale.on_ray import connected
from bibs.serving import ServiceSettings, create_app
from bibs.serving.batching import ClosedError, Job
from bibs.serving.run import listen, say_address

Run = Callable[[Any, list[Any]], Sequence[Any]]
Outcome = list[Any] | BaseException


@dataclass(frozen=True)
class Replicas:
    """How many models answer, how many requests may wait for one, and in which Ray."""

    count: int = 1
    max_queued: int = 256
    address: str | None = None

    def __post_init__(self) -> None:
        for name, value in (("--replicas", self.count), ("--max-queued-requests", self.max_queued)):
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {value}")


class ServeQueue:
    """`Batcher`'s place in a replica. The model has one thread; what fails is one job's own."""

    def __init__(
        self,
        run: Run,
        *,
        max_items: int = 64,
        max_wait: float = 0.010,
        on_batch: Callable[[int, float], None] = lambda items, seconds: None,
    ) -> None:
        self._run_items, self._on_batch = run, on_batch
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bibs-model")
        self._closed = False

        @serve.batch(max_batch_size=max_items, batch_wait_timeout_s=max_wait, batch_size_fn=_count_items)
        async def gather(jobs: list[Job]) -> list[Outcome]:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, jobs)

        self._gather = gather

    def submit(self, job: Job) -> asyncio.Future[list[Any]]:
        if self._closed:
            raise ClosedError("the service is stopping")
        return asyncio.ensure_future(self._answer(job))

    @property
    def is_running(self) -> bool:
        return not self._closed

    def close(self) -> None:
        self._closed = True
        self._thread.shutdown()

    async def _answer(self, job: Job) -> list[Any]:
        outcome = await self._gather(job)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Jobs of one key run together."""
        outcomes: dict[Job, Outcome] = {}
        for key in dict.fromkeys(job.key for job in jobs):
            outcomes |= self._run_together([job for job in jobs if job.key == key])
        return [outcomes[job] for job in jobs]

    def _run_together(self, jobs: list[Job]) -> dict[Job, Outcome]:
        items, began = [item for job in jobs for item in job.items], time.monotonic()
        try:
            results = list(self._run_items(jobs[0].key, items))
            self._on_batch(len(items), time.monotonic() - began)
        except Exception as error:
            if len(jobs) == 1:
                return {jobs[0]: error}
            return {job: outcome for each in jobs for job, outcome in self._run_together([each]).items()}
        found = iter(results)
        return {job: [next(found) for _ in job.items] for job in jobs}


def _count_items(jobs: list[Job]) -> int:
    return sum(len(job.items) for job in jobs)


def build_app(load: Callable[[], Infiller], settings: ServiceSettings, log_level: str) -> FastAPI:
    """In a replica: its model and the application around it."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # an answer says itself what was not found
    logging.getLogger("bibs.serving").setLevel(log_level.upper())
    return create_app(load(), settings, make_queue=ServeQueue)


@contextmanager
def serving_on_ray(
    load: Callable[[], Infiller],
    settings: ServiceSettings,
    replicas: Replicas,
    *,
    host: str,
    port: int,
    log_level: str = "warning",
) -> Iterator[int]:
    """The port of a service that answers while the block runs."""
    with listen(host, port) as free:
        port = free.getsockname()[1]  # Ray listens in a process of its own: it is told the number

    def build() -> FastAPI:  # Ray takes a plain function for a builder, and anything else for the application
        return build_app(load, settings, log_level)

    make = serve.deployment(
        name="bibs",
        num_replicas=replicas.count,
        max_ongoing_requests=8 * settings.limits.waiting,  # the application refuses what is too much, in its own words
        max_queued_requests=replicas.max_queued,
        ray_actor_options={"num_cpus": 1},
    )
    application = make(serve.ingress(build)()).bind()
    with connected(replicas.address, replicas.count):
        logging.getLogger("ray.serve").setLevel(logging.ERROR)
        quiet = {"log_level": "ERROR", "enable_access_log": False}
        try:
            serve.start(http_options={"host": host, "port": port}, logging_config=quiet)
            serve.run(application, name="bibs", route_prefix="/", logging_config=quiet)
            yield port
        except RuntimeError as error:
            raise ValueError(f"Ray Serve could not begin: {' '.join(str(error).split())[:300]}") from None
        finally:
            serve.shutdown()  # type: ignore[no-untyped-call]


def serve_on_ray(
    load: Callable[[], Infiller],
    settings: ServiceSettings,
    replicas: Replicas,
    *,
    host: str,
    port: int,
    log_level: str = "info",
) -> None:
    """Serve until Ctrl-C or SIGTERM; requests that were taken are answered."""
    stop = threading.Event()
    with serving_on_ray(load, settings, replicas, host=host, port=port, log_level=log_level) as number:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda *_: stop.set())
        say_address(host, number)
        stop.wait()
