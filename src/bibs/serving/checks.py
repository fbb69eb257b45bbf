"""What is wrong with a request is found here, before it queues. What passes can be searched, at a bounded cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from bibs.checks import check_method
from bibs.constraints import Phrases, least_words, num_states
from bibs.infiller import Infiller
from bibs.methods import SAMPLERS
from bibs.text import Template, banned_words, required_phrases

from .schemas import FillRequest
from .settings import Limits

MOST_LAYOUTS = 40
"""Combinations of lengths that several gaps are searched with at most (lengths/plan.py)."""


class RefusedError(ValueError):
    """What is wrong with a request, in one line."""

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(" ".join(message.split()))
        self.status = status


@dataclass(frozen=True)
class Checked:
    """A request that can be searched, but for its pictures."""

    templates: tuple[str, ...]
    errors: tuple[str | None, ...]  # per template
    must_include: tuple[tuple[str, ...], ...]  # per template
    options: dict[str, Any]  # what the templates share


def check_fill(asked: FillRequest, infiller: Infiller, limits: Limits) -> Checked:
    """What all templates share must be right; a template of a list may be wrong alone."""
    templates = (asked.template,) if isinstance(asked.template, str) else tuple(asked.template)
    if len(templates) > limits.templates:
        raise RefusedError(f"`template` must hold at most {limits.templates} texts, but holds {len(templates)}")
    required = _required(asked.must_include, len(templates))
    options = asked.options()
    _check_options(asked, limits)
    phrases: dict[tuple[str, ...], Phrases] = {}
    try:
        for words in dict.fromkeys(required):
            infiller([], must_include=list(words), **options)  # no template: all else is checked
            bad = banned_words("bad_words", asked.bad_words, infiller.vocabulary)
            phrases[words] = tuple(required_phrases("must_include", words, infiller.vocabulary, banned=bad))
            check_method(asked.method, asked.method in SAMPLERS, [phrases[words]], asked.diversity_penalty)
    except ValueError as error:
        raise RefusedError(_as_asked(str(error))) from None
    errors: list[str | None] = []
    rows = 0
    for text, words in zip(templates, required, strict=True):
        try:
            rows += _check_template(text, phrases[words], asked, infiller, limits)
            errors.append(None)
        except ValueError as error:
            errors.append(_as_asked(str(error)))
    if rows > limits.rows:
        what = "templates x beams x rounds x answers x lengths"
        raise RefusedError(f"a request must cost at most {limits.rows} rows ({what}), but costs {rows}")
    return Checked(templates, tuple(errors), required, options)


def _required(must_include: Sequence[Any], count: int) -> tuple[tuple[str, ...], ...]:
    if not any(isinstance(words, list) for words in must_include):
        return (tuple(must_include),) * count
    if len(must_include) != count:
        raise RefusedError(f"`must_include` must hold one list per template ({count}), but holds {len(must_include)}")
    return tuple(map(tuple, must_include))


def _check_options(asked: FillRequest, limits: Limits) -> None:
    most = {
        "num_beams": limits.beams,
        "num_rounds": limits.rounds,
        "num_return_sequences": limits.rows,
        "max_length": limits.blank_words,
        "shortlist": limits.rows,
        "max_fills": limits.fills,
        "max_memory": limits.memory,
        "batch_size": limits.templates,
        "alternatives": limits.alternatives,
    }
    for name, largest in most.items():
        value = getattr(asked, name)
        if value is not None and value > largest:
            raise RefusedError(f"`{name}` must be at most {largest} here, but is {value}")
    if len(asked.bad_words) > limits.bad_words:
        raise RefusedError(f"`bad_words` must hold at most {limits.bad_words} words, but holds {len(asked.bad_words)}")


def _check_template(text: str, phrases: Phrases, asked: FillRequest, infiller: Infiller, limits: Limits) -> int:
    """The rows that a template costs; a ValueError where it cannot be filled."""
    if len(text) > limits.characters:
        raise ValueError(f"a template must have at most {limits.characters} characters, but has {len(text)}")
    template = Template.parse(text)
    gaps = [blank for blank in template.blanks if blank.minimum != blank.maximum]
    num_words = template.num_words + sum(blank.minimum == 0 for blank in gaps)
    if num_words > limits.words:
        raise ValueError(f"a template must have at most {limits.words} words, but has {num_words}")
    if len(gaps) > limits.gaps:
        raise ValueError(f"a template must have at most {limits.gaps} blanks of unknown length, but has {len(gaps)}")
    for gap in gaps:
        if max(gap.minimum, gap.maximum or 0) > limits.blank_words:
            longest = max(gap.minimum, gap.maximum or 0)
            raise ValueError(f"a blank must have at most {limits.blank_words} words here, but may have {longest}")
    sizes = [max(1, (gap.maximum or asked.max_length) - gap.minimum + 1) for gap in gaps]
    rows = _rows(asked, template, sizes, len(infiller.vocabulary)) * num_states(phrases)
    if rows > limits.rows:
        raise ValueError(f"a template must cost at most {limits.rows} rows (beams x rounds x answers x lengths)")
    lengths = asked.model_dump(include={"lengths", "max_length", "num_lengths"})
    infiller.parse(text, room=least_words(phrases), length_prior=infiller.length_prior, **lengths)
    return rows


def _rows(asked: FillRequest, template: Template, sizes: Sequence[int], vocab_size: int) -> int:
    """Beams x rounds x answers x lengths; `sizes` has the number of lengths of each gap."""
    if asked.method == "exact":
        free = sum(blank.maximum or asked.max_length for blank in template.blanks)
        fills: int = (vocab_size - 3) ** free
        if fills > asked.max_fills:
            raise ValueError(
                f"`method` 'exact' must not enumerate more than {asked.max_fills} fills (`max_fills`), but {free} free "
                "slots make more"
            )
        return max(1, fills)
    tried = asked.shortlist if asked.method == "unidirectional-gibbs" else 1
    rows = asked.num_beams * max(1, asked.num_rounds) * asked.num_return_sequences
    return rows * tried * _layouts(asked, sizes)


def _layouts(asked: FillRequest, sizes: Sequence[int]) -> int:
    """How many combinations of lengths are searched, at most."""
    several, few = prod(sizes), asked.num_lengths
    if few is None or not sizes:
        return several
    if len(sizes) == 1:
        return several if asked.lengths == "paper" else min(several, few + 1)
    return several if several <= few ** len(sizes) else min(several, MOST_LAYOUTS)


def _as_asked(message: str) -> str:
    """What is `templates` and `images` in Python is `template` and `image` here."""
    return " ".join(message.replace("`templates", "`template").replace("`images", "`image").split())
