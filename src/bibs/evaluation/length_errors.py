"""How far the lengths that a method chose are from those that people wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LengthErrors:
    """Of chosen - true, in words."""

    n: int
    within: tuple[float, float, float]  # share of blanks that are at most 0, 1, 2 words off
    mean: float
    histogram: dict[str, int]  # error -> blanks; the errors are text, as JSON wants them

    @staticmethod
    def of(chosen: Sequence[int], true: Sequence[int]) -> LengthErrors:
        errors = [a - b for a, b in zip(chosen, true, strict=True)]
        shares = [sum(abs(error) <= most for error in errors) / len(errors) for most in range(3)]
        counts = Counter(errors)
        return LengthErrors(
            n=len(errors),
            within=(shares[0], shares[1], shares[2]),
            mean=sum(errors) / len(errors),
            histogram={str(error): counts[error] for error in range(min(errors), max(errors) + 1)},
        )
