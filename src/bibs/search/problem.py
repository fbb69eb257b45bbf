"""What is searched for: a row of token ids with None at each free slot; how it is searched, and what comes back.

START and END are ordinary fixed tokens at the two ends of a template. What stands between its first and its last open
slot is the *region* that a pass runs over; what stands before it is a model's context, what stands behind it the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Tokens: TypeAlias = tuple[int, ...]
Direction: TypeAlias = Literal["forward", "backward"]
Start: TypeAlias = Literal["forward", "backward", "both"]

DIRECTIONS: tuple[Direction, Direction] = ("forward", "backward")


def opposite(direction: Direction) -> Direction:
    return "backward" if direction == "forward" else "forward"


@dataclass(frozen=True)
class Gap:
    """A blank of at least `minimum` words and at most `maximum` (None: as many as the search allows)."""

    minimum: int = 1
    maximum: int | None = None

    def __post_init__(self) -> None:
        if self.minimum < 0 or (self.maximum is not None and self.maximum < max(1, self.minimum)):
            raise ValueError(f"a gap must have 0 <= minimum <= maximum and 1 <= maximum, but is {self!r}")


@dataclass(frozen=True)
class OneOf:
    """A free slot that only some tokens may fill: words that end in 's, say."""

    tokens: Tokens


Template: TypeAlias = Sequence[int | Gap | OneOf | None]


@dataclass(frozen=True)
class Layout:
    """A template with gaps of certain lengths, cut in three, in one reading order."""

    context: Tokens
    region: tuple[int | OneOf | None, ...]
    rest: Tokens

    @staticmethod
    def of(template: Template, lengths: Sequence[int] = ()) -> Layout:
        """The three parts are cut where the template is open, so they have the same context whatever the lengths."""
        open_slots = [place for place, token in enumerate(template) if not isinstance(token, int)]
        first, last = (open_slots[0], open_slots[-1] + 1) if open_slots else (len(template), len(template))
        given = iter(lengths)
        region: list[int | OneOf | None] = []
        for token in template[first:last]:
            region += [None] * next(given) if isinstance(token, Gap) else [token]
        context, rest = (
            [token for token in side if isinstance(token, int)] for side in (template[:first], template[last:])
        )
        return Layout(tuple(context), tuple(region), tuple(rest))

    def mirrored(self) -> Layout:
        """The same read from the other end. A template without a blank is all context, either way."""
        if not self.rest:
            return Layout(self.context[::-1], (), ())
        return Layout(self.rest[::-1], self.region[::-1], self.context[::-1])

    def fill(self, tokens: Sequence[int]) -> Tokens:
        return (*self.context, *tokens, *self.rest)

    def free_words(self, tokens: Sequence[int]) -> Tokens:
        """Of the tokens of a filled region, those in free slots."""
        return tuple(token for token, slot in zip(tokens, self.region, strict=True) if not isinstance(slot, int))


@dataclass(frozen=True)
class TracedPass:
    """What one pass of a search saw: for figures, and for a reader who wants to follow the beams."""

    direction: Direction
    tokens: Tokens  # the whole sequence of its top fill
    score: float  # S of that sequence
    ranking_score: float  # what the pass itself ranked it by
    frontiers: tuple[tuple[tuple[Tokens, float], ...], ...]  # per slot, in reading order: partial fill, running score


@dataclass(frozen=True)
class Fill:
    """One filled template."""

    tokens: Tokens
    score: float  # S = forward_score + backward_score
    ranking_score: float  # what the method sorts by
    forward_score: float
    backward_score: float
    rounds: int = 0
    lengths: tuple[int, ...] = ()  # of each gap, where the template has any
    penalty: float = 0.0  # what its words lost for standing in earlier answers, which no score shows
    trace: tuple[TracedPass, ...] = ()


@dataclass(frozen=True)
class Settings:
    """How a search is run; `bibs.methods.Options` says what each means, and `bibs.checks` what is refused."""

    num_beams: int = 5
    num_rounds: int = 4
    num_return_sequences: int = 1
    start: Start = "both"
    rescore: bool = True
    trace: bool = False
    lookup: bool = True
    batch_size: int | None = None
    max_memory: int = 512
    exact: bool = True
    """Whether what comes back is scored again where the models are quick copies of others; no option of a user's."""
