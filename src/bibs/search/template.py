"""A template, as search sees it: a row of token ids with None at each free slot.

START and END are ordinary fixed tokens at its two ends. The slots from the first free one to the last are the
*region* that a pass runs over; what stands before it is a model's context, what stands behind it the `rest`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

MAX_REQUIRED = 4
"""How many words may be required: the search keeps beams for every subset of them."""


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
Penalties: TypeAlias = Mapping[int, float]
"""What a token loses in each free slot that it fills."""


@dataclass(frozen=True)
class Layout:
    """A template cut in three, in one reading order; what must appear in its free slots, and what should not."""

    context: tuple[int, ...]
    region: tuple[int | None, ...]
    rest: tuple[int, ...]
    # Not shown, since samplers seed themselves by what is.
    required: tuple[int, ...] = field(default=(), repr=False)
    penalties: Penalties = field(default_factory=dict, repr=False, hash=False)

    @staticmethod
    def of(template: Slots, required: Sequence[int] = (), penalties: Penalties | None = None) -> Layout:
        free = [position for position, token in enumerate(template) if token is None]
        first, last = (free[0], free[-1] + 1) if free else (len(template), len(template))
        context = tuple(token for token in template[:first] if token is not None)
        rest = tuple(token for token in template[last:] if token is not None)
        return Layout(context, tuple(template[first:last]), rest, tuple(required), penalties or {})

    def mirrored(self) -> Layout:
        """The same template read from the other end. A template without a blank is all context, either way."""
        if not self.region:
            return replace(self, context=self.context[::-1])
        return replace(self, context=self.rest[::-1], region=self.region[::-1], rest=self.context[::-1])

    def fill(self, tokens: Sequence[int]) -> tuple[int, ...]:
        return (*self.context, *tokens, *self.rest)

    @property
    def has_room(self) -> bool:
        return self.region.count(None) >= len(self.required)

    def penalty(self, tokens: Sequence[int]) -> float:
        """What the tokens of a filled region lose."""
        return sum(self.penalties.get(token, 0.0) for token in self.free_words(tokens)) if self.penalties else 0.0

    def free_words(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Of the tokens of a filled region, those in free slots."""
        return tuple(token for token, slot in zip(tokens, self.region, strict=True) if slot is None)


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


def check_required(
    required: Sequence[Sequence[int]], templates: Sequence[Template], banned: Sequence[int], vocab_size: int
) -> None:
    if len(required) != len(templates):
        raise ValueError(f"`must_include` must hold one per template ({len(templates)}), but holds {len(required)}")
    for index, (tokens, template) in enumerate(zip(required, templates, strict=True)):
        name = f"`must_include[{index}]`"
        if isinstance(tokens, (int, str)) or not isinstance(tokens, Sequence):
            raise ValueError(f"{name} must be a list of token ids, but is {tokens!r}")
        if len(tokens) > MAX_REQUIRED:
            raise ValueError(f"{name} must hold at most {MAX_REQUIRED} tokens, but holds {len(tokens)}")
        for token in tokens:
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab_size:
                raise ValueError(f"{name} must hold ids from 0 to {vocab_size - 1}, but holds {token!r}")
            if token in banned:
                raise ValueError(f"{name} must hold no id that is `banned`, but holds {token}")
        if len(set(tokens)) < len(tokens):
            raise ValueError(f"{name} must hold distinct ids, but holds {list(tokens)}")
        room = free_slots(template)
        if len(tokens) > room:
            raise ValueError(f"{name} must fit in the free slots of its template ({room:g}), but holds {len(tokens)}")


def free_slots(template: Template) -> float:
    """How many words the template can take: without bound where a gap has none."""
    longest = [math.inf if slot.maximum is None else slot.maximum for slot in template if isinstance(slot, Gap)]
    return sum(slot is None for slot in template) + sum(longest)


def stretch(template: Template, lengths: Sequence[int]) -> list[int | None]:
    """The template with each gap as so many free slots."""
    given = iter(lengths)
    slots: list[int | None] = []
    for token in template:
        slots += [None] * next(given) if isinstance(token, Gap) else [token]
    return slots
