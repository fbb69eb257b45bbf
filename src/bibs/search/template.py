"""A template, as search sees it: a row of token ids with None at each free slot.

START and END are ordinary fixed tokens at its two ends. The slots from the first free one to the last are the
*region* that a pass runs over; what stands before it is a model's context, what stands behind it the `rest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Gap:
    """A blank of unknown length: at least `minimum` free slots, at most `maximum` (None: as the search allows)."""

    minimum: int = 1
    maximum: int | None = None

    def __post_init__(self) -> None:
        if self.minimum < 0 or (self.maximum is not None and self.maximum < max(1, self.minimum)):
            raise ValueError(f"a gap must have 0 <= minimum <= maximum and 1 <= maximum, but is {self}")


Tokens: TypeAlias = tuple[int, ...]
Slots: TypeAlias = Sequence[int | None]
Template: TypeAlias = Sequence[int | Gap | None]


@dataclass(frozen=True)
class Layout:
    """A template cut in three, in one reading order."""

    context: tuple[int, ...]
    region: tuple[int | None, ...]
    rest: tuple[int, ...]

    @staticmethod
    def of(template: Slots) -> Layout:
        free = [position for position, token in enumerate(template) if token is None]
        first, last = (free[0], free[-1] + 1) if free else (len(template), len(template))
        context = tuple(token for token in template[:first] if token is not None)
        rest = tuple(token for token in template[last:] if token is not None)
        return Layout(context, tuple(template[first:last]), rest)

    def mirrored(self) -> Layout:
        """The same template read from the other end. A template without a blank is all context, either way."""
        if not self.region:
            return Layout(self.context[::-1], (), ())
        return Layout(self.rest[::-1], self.region[::-1], self.context[::-1])

    def fill(self, tokens: Sequence[int]) -> tuple[int, ...]:
        return (*self.context, *tokens, *self.rest)


def check_templates(templates: Sequence[Template], vocab_size: int) -> None:
    for index, template in enumerate(templates):
        name = f"`templates[{index}]`"
        if isinstance(template, (int, str)) or not isinstance(template, Sequence):
            raise ValueError(f"{name} must be a list of token ids and None, but is {template!r}")
        if not template:
            raise ValueError(f"{name} must hold at least one slot, but is empty")
        for token in template:
            if token is None or isinstance(token, Gap):
                continue
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab_size:
                raise ValueError(f"{name} must hold None, gaps or ids from 0 to {vocab_size - 1}, but holds {token!r}")
        for end, token in (("first", template[0]), ("last", template[-1])):
            if not isinstance(token, int):
                raise ValueError(f"{name} must have fixed tokens (START, END) at both ends, but its {end} slot is free")


def stretch(template: Template, lengths: Sequence[int]) -> list[int | None]:
    """The template with each gap as so many free slots."""
    given = iter(lengths)
    slots: list[int | None] = []
    for token in template:
        slots += [None] * next(given) if isinstance(token, Gap) else [token]
    return slots
