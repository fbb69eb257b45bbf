"""What the service tells about itself: numbers for Prometheus, and a log of one JSON object a line.

Neither holds what users wrote; places that are not ours are called "other", so that nobody can fill either with names.
"""

from __future__ import annotations

import json
import logging
import time
import traceback
from typing import Any, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

LOG = logging.getLogger("bibs.serving")
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
EXAMPLES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Each app has its own registry, so that several may live in one process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("bibs_requests", "Requests answered.", ["path", "status"], registry=registry)
        self.seconds = Histogram(
            "bibs_request_seconds", "Until answered.", ["path"], registry=registry, buckets=SECONDS
        )
        self.waiting = Gauge("bibs_waiting", "Requests that are being answered.", registry=registry)
        self.examples = Histogram("bibs_batch_examples", "Decoded together.", registry=registry, buckets=EXAMPLES)
        self.batch = Histogram("bibs_batch_seconds", "Of decoding a batch.", registry=registry, buckets=SECONDS)

    def answered(self, path: str, status: int, seconds: float) -> None:
        self.requests.labels(path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)

    def decoded(self, examples: int, seconds: float) -> None:
        self.examples.observe(examples)
        self.batch.observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)


def describe(error: BaseException, *, with_text: bool) -> dict[str, str]:
    """A fault of ours for the log: its kind and place. The message may hold what a user wrote."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
    said = {"message": " ".join(str(error).split())[:1000]} if with_text else {}
    return {"error": type(error).__name__, "place": place, **said}


class JsonLines(logging.Formatter):
    """`LOG.info("event", extra={"fields": {...}})` as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        fields: dict[str, Any] = getattr(record, "fields", {})
        # A traceback that a library logs could hold what a user wrote: the kind of the error is enough.
        kind = {"error": record.exc_info[0].__name__} if record.exc_info and record.exc_info[0] else {}
        line = {"time": when, "level": record.levelname.lower(), "event": record.getMessage(), **kind, **fields}
        return json.dumps(line, ensure_ascii=False)


def log_to(stream: TextIO, level: str = "info") -> None:
    """Our log and uvicorn's, to one stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    for name in ("bibs.serving", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper())
