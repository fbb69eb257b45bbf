"""From a request that was read to what was found: checks, pictures, the queue, the deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from starlette.types import Receive
from torch import Tensor

from bibs.infiller import Completion, Infiller

from .batching import Batcher, ClosedError, Job
from .checks import Checked, RefusedError, check_fill
from .pictures import Pictures, from_base64
from .schemas import FillRequest
from .settings import ServiceSettings
from .watching import LOG, Metrics, describe

Example: TypeAlias = tuple[str, Tensor | None, tuple[str, ...]]
"""A template, the vector of its picture, and the words that it must include."""


class Queue(Protocol):
    """What a service asks of a queue: `Batcher` here, one that has Ray Serve's batches in a replica of Ray."""

    def submit(self, job: Job) -> Future[list[Any]] | asyncio.Future[list[Any]]: ...

    @property
    def is_running(self) -> bool: ...

    def close(self) -> None: ...


class ClientGoneError(Exception):
    """Nobody waits for the answer."""


@dataclass(frozen=True)
class Found:
    """Per template what was found, or what is wrong with it."""

    checked: Checked
    results: list[list[Completion] | str]


class Service:
    def __init__(
        self,
        infiller: Infiller,
        settings: ServiceSettings,
        metrics: Metrics,
        make_queue: Callable[..., Queue] = Batcher,
    ) -> None:
        self.infiller, self.settings, self.metrics = infiller, settings, metrics
        self.pictures = Pictures(infiller, settings.limits.pixels)
        self.make_queue = make_queue
        self.batcher: Queue | None = None

    @property
    def is_ready(self) -> bool:
        return self.batcher is not None and self.batcher.is_running

    async def start(self) -> None:
        """Start the thread that owns the model, and run once through everything: the first request need not wait."""
        sizes = {"max_items": self.settings.batch_size, "max_wait": self.settings.batch_wait}
        self.batcher = self.make_queue(self._run, **sizes, on_batch=self.metrics.decoded)
        try:
            await self.fill(FillRequest(template="_ _ ___", alternatives=1))
        except Exception as error:  # a model may have little to say here, and much elsewhere
            LOG.warning("could not warm up", extra={"fields": describe(error, with_text=True)})

    def stop(self) -> None:
        if self.batcher is not None:
            self.batcher.close()
        self.pictures.close()

    async def fill(self, asked: FillRequest, *, uploads: Sequence[bytes] = (), receive: Receive | None = None) -> Found:
        """What was found. `receive` tells when the client goes; whatever goes wrong for all is a RefusedError."""
        until = time.monotonic() + self.settings.limits.deadline_seconds
        checked = check_fill(asked, self.infiller, self.settings.limits)
        is_list = not isinstance(asked.template, str)
        if not is_list and checked.errors[0]:
            raise RefusedError(checked.errors[0])
        results: list[list[Completion] | str] = [error or [] for error in checked.errors]
        examples: dict[int, Example] = {}
        try:
            read = self._vectors(asked, checked, uploads)
            vectors = await asyncio.wait_for(read, max(0.0, until - time.monotonic()))
        except asyncio.TimeoutError:
            raise self._too_late() from None
        for place, vector in enumerate(vectors):
            if isinstance(vector, ValueError):
                results[place] = str(vector)
            elif checked.errors[place] is None:
                examples[place] = (checked.templates[place], vector, checked.must_include[place])
        if examples:
            found = await self._search(checked.options, list(examples.values()), until, receive)
            for place, completions in zip(examples, found, strict=True):
                results[place] = str(completions) if isinstance(completions, ValueError) else completions
        if not is_list and isinstance(results[0], str):
            raise RefusedError(results[0])
        return Found(checked, results)

    async def _vectors(
        self, asked: FillRequest, checked: Checked, uploads: Sequence[bytes]
    ) -> list[Tensor | ValueError | None]:
        """Per template the vector of its picture, None without one, or what is wrong with it."""
        count = len(checked.templates)
        if uploads and asked.image is not None:
            raise RefusedError("`image` must be an upload or stand in `request`, but both are given")
        given: list[Any] = list(uploads) or (asked.image if isinstance(asked.image, list) else [asked.image])
        if len(given) == 1:
            given *= count
        elif len(given) != count:
            raise RefusedError(f"`image` must be one, or one per template ({count}), but there are {len(given)}")
        vectors: list[Tensor | ValueError | None] = []
        for picture, error in zip(given, checked.errors, strict=True):
            try:
                data = from_base64(picture) if isinstance(picture, str) else picture
                vectors.append(None if data is None or error else await self.pictures.vector(data))
            except ValueError as wrong:
                vectors.append(wrong)
        return vectors

    async def _search(
        self, options: dict[str, Any], examples: list[Example], until: float, receive: Receive | None
    ) -> list[list[Completion] | ValueError]:
        key = tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in options.items())
        assert self.batcher is not None
        try:
            future = self.batcher.submit(Job(key, examples))
        except ClosedError as error:
            raise RefusedError(str(error), 503) from None
        answer: asyncio.Future[Any] = asyncio.wrap_future(future)  # itself, where it is asyncio's
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            left = max(0.0, until - time.monotonic())
            await asyncio.wait({answer, gone}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()  # type: ignore[no-any-return]
            if gone.done():
                raise ClientGoneError
            raise self._too_late()
        finally:
            answer.cancel()  # what still waits leaves the queue
            gone.cancel()

    def _too_late(self) -> RefusedError:
        return RefusedError(f"there was no answer within {self.settings.limits.deadline_seconds:g} seconds", 504)

    def _run(self, key: tuple[tuple[str, Any], ...], examples: list[Example]) -> list[list[Completion] | ValueError]:
        texts, vectors, words = zip(*examples, strict=True)
        return self.infiller(
            list(texts),
            images=None if all(vector is None for vector in vectors) else list(vectors),
            must_include=list(words),
            on_error="return",
            **dict(key),
        )


async def _until_gone(receive: Receive | None) -> None:
    if receive is None:
        await asyncio.Event().wait()
    else:
        while (await receive())["type"] != "http.disconnect":
            pass
