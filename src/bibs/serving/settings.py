"""What bounds a request, and how the service is run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields


@dataclass(frozen=True)
class Limits:
    """Everything is bounded. `GET /v1/methods` tells these numbers."""

    templates: int = 64  # in one request
    characters: int = 10_000  # of a template
    words: int = 100  # of a template; a blank counts as many as it has at least, and at least one
    gaps: int = 8  # blanks of unknown length in a template
    blank_words: int = 50  # the most that a blank of unknown length may have
    beams: int = 100
    rounds: int = 50
    rows: int = 10_000  # templates x beams x rounds x answers x lengths: what a request may cost
    fills: int = 10_000  # that `exact` enumerates
    memory: int = 512  # MiB that a search may keep
    alternatives: int = 50
    bad_words: int = 1_000
    body_bytes: int = 12 << 20
    pixels: int = 16 << 20  # of a picture
    waiting: int = 64  # requests that are being answered; the next one is refused, rather than left to wait long
    body_seconds: float = 10.0  # within which a body must have arrived
    deadline_seconds: float = 30.0  # within which a request is answered

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise ValueError(f"`{each.name}` must be a number above 0, but is {value!r}")


@dataclass(frozen=True)
class ServiceSettings:
    name: str = "coco"  # of the model
    limits: Limits = field(default_factory=Limits)
    batch_size: int = 64  # examples that are decoded together
    batch_wait: float = 0.010  # seconds that a batch waits for company
    api_key: str = ""  # nothing: anyone may ask
    cors_origins: tuple[str, ...] = ()
    log_text: bool = False  # whether the log may hold what users wrote

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1, but is {self.batch_size}")
        if not self.api_key.isascii() or self.api_key != self.api_key.strip():
            raise ValueError("`api_key` must be plain ASCII without white space around it")
        for origin in self.cors_origins:
            if origin != "*" and (not origin.startswith(("http://", "https://")) or origin.count("/") != 2):
                raise ValueError(f"`cors_origins` must be origins such as https://example.org, but one is {origin!r}")
