"""What single baselines are told besides the settings of every search."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BaselineSettings:
    seed: int = 0  # of the samplers
    shortlist: int = 100  # tokens that the unidirectional sampler tries in each slot
    max_fills: int = 100_000  # the most that may be enumerated
