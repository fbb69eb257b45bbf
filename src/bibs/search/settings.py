"""Every setting of every method, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from .length_prior import UNFITTED, LengthPrior

Direction = Literal["forward", "backward"]
LengthRule = Literal["unknown", "paper"]

ROWS_PER_BATCH = 320
"""Examples x beams that one batch holds unless told otherwise: more is slower, fewer waste the matrix products."""


@dataclass(frozen=True)
class Settings:
    num_beams: int = 5
    num_rounds: int = 4
    num_return_sequences: int = 1
    diversity_penalty: float = 0.0
    start: Direction = "backward"
    rescore: bool = True
    trace: bool = False
    lookup: bool = True
    batch_size: int | None = None
    lengths: LengthRule = "unknown"
    max_length: int = 20
    num_lengths: int | None = 3
    length_prior: LengthPrior = UNFITTED
    seed: int = 0
    shortlist: int = 100
    max_fills: int = 100_000

    def __post_init__(self) -> None:
        at_least = {
            "num_beams": 1,
            "num_rounds": 0,
            "num_return_sequences": 1,
            "shortlist": 1,
            "max_fills": 1,
            "max_length": 1,
        }
        at_least |= {name: 1 for name in ("batch_size", "num_lengths") if getattr(self, name) is not None}
        for name, least in at_least.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"`{name}` must be a whole number of at least {least}, but is {value!r}")
        if not 0 <= self.diversity_penalty < math.inf:
            raise ValueError(f"`diversity_penalty` must be a number of at least 0, but is {self.diversity_penalty!r}")
        if self.start not in ("forward", "backward"):
            raise ValueError(f"`start` must be 'forward' or 'backward', but is {self.start!r}")
        if self.lengths not in ("unknown", "paper"):
            raise ValueError(f"`lengths` must be 'unknown' or 'paper', but is {self.lengths!r}")

    @property
    def examples_per_batch(self) -> int:
        return self.batch_size or max(1, ROWS_PER_BATCH // self.num_beams)
