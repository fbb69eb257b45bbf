"""What is checked at the door for token ids: the problem before the search, and what the models say while it runs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from numbers import Real

import torch
from torch import Tensor

from bibs.constraints import Phrases, least_words, num_states
from bibs.lengths import LengthPrior
from bibs.search import Conditions, Gap, OneOf, State, StepModel, Template, map_state, select_rows

MAX_STATES = 16
"""How many states of required phrases the search keeps beams for: four words, say, or a phrase of fifteen."""

LEAST = {
    "num_beams": 1,
    "num_rounds": 0,
    "num_return_sequences": 1,
    "batch_size": 1,
    "max_memory": 1,
    "max_length": 1,
    "num_lengths": 1,
    "shortlist": 1,
    "max_fills": 1,
}
"""The least that a setting may be, of those that are whole numbers."""

CHOICES = {"start": ("forward", "backward", "both"), "lengths": ("unknown", "paper")}


class CheckedModel:
    """A model that is blamed for what would be hard to trace later, and that can score, by steps if need be."""

    def __init__(self, name: str, model: StepModel) -> None:
        self.name = name
        self.model = model
        self.vocab_size = model.vocab_size
        self.margin: float | None = getattr(model, "margin", None)

    def start(self, contexts: Sequence[Sequence[int]], conditions: Conditions = None) -> tuple[Tensor, State, Tensor]:
        log_probs, state, scores = self.model.start(contexts, conditions)
        self._check("start()", len(contexts), log_probs, state)
        if float(log_probs.max()) > 1e-3:
            warnings.warn(f"the {self.name} model's log probabilities exceed 0: are they logits?", stacklevel=2)
        return log_probs, state, self._checked_scores("start()", len(contexts), scores)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        log_probs, state = self.model.step(tokens, state)
        self._check("step()", len(tokens), log_probs, state)
        return log_probs, state

    def score(self, continuations: Sequence[Sequence[int]], state: State, floors: Tensor) -> Tensor:
        if hasattr(self.model, "score"):
            return self._checked_scores("score()", len(floors), self.model.score(continuations, state, floors))
        scores = torch.zeros_like(floors)
        rows = torch.arange(len(floors), device=floors.device)  # those still read
        lengths = torch.tensor(list(map(len, continuations)), device=floors.device)
        for place in range(int(lengths.max()) - 1):
            going = (lengths[rows] > place + 1) & (scores[rows] >= floors[rows])
            rows, state = rows[going], select_rows(state, going.nonzero().flatten())
            if not len(rows):
                break
            here = [continuations[row][place : place + 2] for row in rows.tolist()]
            tokens, following = torch.tensor(here, device=floors.device).t()
            log_probs, state = self.step(tokens, state)
            scores[rows] += log_probs.gather(1, following[:, None])[:, 0]
        return scores

    def exact_scores(self, sentences: Sequence[Sequence[int]], conditions: Conditions = None) -> Tensor:
        if hasattr(self.model, "exact_scores"):
            scores = self.model.exact_scores(sentences, conditions)
            return self._checked_scores("exact_scores()", len(sentences), scores)
        return self.start(sentences, conditions)[2]

    def _check(self, call: str, rows: int, log_probs: Tensor, state: State) -> None:
        said = f"the {self.name} model's {call}"
        if log_probs.shape != (rows, self.vocab_size):
            found = tuple(log_probs.shape)
            raise ValueError(f"{said} must return log_probs ({rows}, {self.vocab_size}), but returned {found}")

        def check_rows(tensor: Tensor) -> Tensor:
            if not tensor.ndim or len(tensor) != rows:
                found = tuple(tensor.shape)
                raise ValueError(f"{said} must return a state of {rows} rows, but one of its tensors has shape {found}")
            return tensor

        map_state(check_rows, state)
        peak = float(log_probs.max())  # NaN and +inf survive a maximum
        if not peak < torch.inf:
            raise ValueError(f"{said} returned a log probability of {peak}")

    def _checked_scores(self, call: str, rows: int, scores: Tensor) -> Tensor:
        if scores.shape != (rows,) or not bool((scores < torch.inf).all()):
            raise ValueError(
                f"the {self.name} model's {call} must return scores ({rows},), none NaN or +inf, "
                f"but returned {tuple(scores.shape)}: {scores.tolist()}"
            )
        return scores


def check_setting(name: str, value: object, *, optional: bool) -> None:
    """Refuse what a setting cannot be; None is let through where the setting is `optional`."""
    least, choices = LEAST.get(name), CHOICES.get(name)
    enough = isinstance(value, int) and not isinstance(value, bool) and value >= (least or 0)
    if least is not None and not enough and not (value is None and optional):
        raise ValueError(f"`{name}` must be a whole number of at least {least}, but is {value!r}")
    if name in ("rescore", "trace", "lookup") and not isinstance(value, bool):
        raise ValueError(f"`{name}` must be True or False, but is {value!r}")
    if choices is not None and value not in choices:
        names = ", ".join(map(repr, choices[:-1]))
        raise ValueError(f"`{name}` must be {names} or {choices[-1]!r}, but is {value!r}")
    if name == "length_prior" and not isinstance(value, LengthPrior):
        raise ValueError(f"`length_prior` must be a LengthPrior, but is {value!r:.60}")


def check_problem(
    forward: StepModel,
    backward: StepModel,
    templates: Sequence[Template],
    conditions: Conditions,
    banned: Sequence[int],
) -> None:
    if forward.vocab_size != backward.vocab_size:
        raise ValueError(
            f"`forward` and `backward` must share one vocabulary, "
            f"but their `vocab_size` are {forward.vocab_size} and {backward.vocab_size}"
        )
    if conditions is not None and len(conditions) != len(templates):
        raise ValueError(f"`conditions` must hold one per template ({len(templates)}), but holds {len(conditions)}")
    for token in banned:
        if not 0 <= token < forward.vocab_size:
            raise ValueError(f"`banned` must hold ids from 0 to {forward.vocab_size - 1}, but holds {token}")
    for index, template in enumerate(templates):
        check_template(f"`templates[{index}]`", template, forward.vocab_size)


def check_template(name: str, template: Template, vocab_size: int) -> None:
    if isinstance(template, (int, str)) or not isinstance(template, Sequence):
        raise ValueError(f"{name} must be a list of token ids and None, but is {template!r}")
    if not template:
        raise ValueError(f"{name} must hold at least one slot, but is empty")
    for token in template:
        if isinstance(token, OneOf):
            check_choice(name, token, vocab_size)
        elif not (token is None or isinstance(token, Gap) or _is_id(token, vocab_size)):
            raise ValueError(f"{name} must hold None, gaps or ids from 0 to {vocab_size - 1}, but holds {token!r}")
    for end, token in (("first", template[0]), ("last", template[-1])):
        if not isinstance(token, int):
            raise ValueError(f"{name} must have fixed tokens (START, END) at both ends, but its {end} slot is free")


def check_choice(name: str, choice: OneOf, vocab_size: int) -> None:
    if not choice.tokens or not all(_is_id(token, vocab_size) for token in choice.tokens):
        raise ValueError(
            f"{name} must have choices of ids from 0 to {vocab_size - 1}, one at least, but has {choice!r:.80}"
        )


def read_required(
    must_include: Sequence[Sequence[int | Sequence[int]]] | None,
    templates: Sequence[Template],
    banned: Sequence[int],
    vocab_size: int,
) -> list[Phrases]:
    """The phrases that each template must hold, the longest first; an id alone is a phrase of one."""
    if must_include is None:
        return [()] * len(templates)
    if len(must_include) != len(templates):
        raise ValueError(f"`must_include` must hold one per template ({len(templates)}), but holds {len(must_include)}")
    found = []
    for index, (given, template) in enumerate(zip(must_include, templates, strict=True)):
        name = f"`must_include[{index}]`"
        if isinstance(given, (int, str)) or not isinstance(given, Sequence):
            raise ValueError(f"{name} must be a list of token ids, but is {given!r}")
        phrases = tuple(tuple(each) if isinstance(each, (list, tuple)) else (each,) for each in given)
        for phrase in phrases:
            for token in phrase:
                if not _is_id(token, vocab_size):
                    raise ValueError(f"{name} must hold ids from 0 to {vocab_size - 1}, but holds {token!r}")
                if token in banned:
                    raise ValueError(f"{name} must hold no id that is `banned`, but holds {token}")
        if len(set(phrases)) < len(phrases) or () in phrases:
            raise ValueError(f"{name} must hold distinct ids or lists of ids, none empty, but holds {list(given)}")
        check_states(name, phrases)
        longest = [math.inf if slot.maximum is None else slot.maximum for slot in template if isinstance(slot, Gap)]
        room = sum(slot is None or isinstance(slot, OneOf) for slot in template) + sum(longest)
        if least_words(phrases) > room:
            raise ValueError(
                f"{name} must fit in the free slots of its template ({room:g}), but needs {least_words(phrases)}"
            )
        found.append(tuple(sorted(phrases, key=len, reverse=True)))
    return found


def check_states(name: str, phrases: Phrases) -> None:
    """The search keeps beams for every combination of how far the phrases are read."""
    if num_states(phrases) > MAX_STATES:
        lengths = " x ".join(str(len(phrase) + 1) for phrase in phrases)
        raise ValueError(
            f"{name} must hold at most four words, or fewer and longer phrases (at most {MAX_STATES} states), but has "
            f"{lengths} states"
        )


def check_method(method: str, is_sampler: bool, required: Sequence[Phrases], diversity_penalty: float) -> None:
    if not isinstance(diversity_penalty, Real) or not 0 <= diversity_penalty < math.inf:
        raise ValueError(f"`diversity_penalty` must be a number of at least 0, but is {diversity_penalty!r}")
    if is_sampler and any(required):
        raise ValueError(f"`must_include` must be empty where `method` is a sampler, but {method!r} is one")
    if is_sampler and diversity_penalty:
        raise ValueError(f"`diversity_penalty` must be 0 where `method` is a sampler, but {method!r} is one")


def _is_id(token: object, vocab_size: int) -> bool:
    return isinstance(token, int) and not isinstance(token, bool) and 0 <= token < vocab_size
