"""A template, as search sees it: a row of token ids with None at each free slot.

START and END are ordinary fixed tokens at its two ends. The slots from the first free one to the last are the
*region* that a pass runs over; what stands before it is a model's context, what stands behind it the `rest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Template: TypeAlias = Sequence[int | None]


@dataclass(frozen=True)
class Layout:
    """A template cut in three, in one reading order."""

    context: tuple[int, ...]
    region: tuple[int | None, ...]
    rest: tuple[int, ...]

    @staticmethod
    def of(template: Template) -> Layout:
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


def check_templates(templates: Sequence[Template], vocab_size: int) -> list[Layout]:
    for index, template in enumerate(templates):
        name = f"`templates[{index}]`"
        if isinstance(template, (int, str)) or not isinstance(template, Sequence):
            raise ValueError(f"{name} must be a list of token ids and None, but is {template!r}")
        if not template:
            raise ValueError(f"{name} must hold at least one slot, but is empty")
        for token in template:
            if token is None:
                continue
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab_size:
                raise ValueError(f"{name} must hold None or ids from 0 to {vocab_size - 1}, but holds {token!r}")
        if template[0] is None or template[-1] is None:
            end = "first" if template[0] is None else "last"
            raise ValueError(f"{name} must have fixed tokens (START, END) at both ends, but its {end} slot is free")
    return [Layout.of(template) for template in templates]
