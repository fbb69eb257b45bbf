"""Words with reasons: how well each word of a sentence fits what stands on either side of it, and what else would fit.

    forward      log P_f(y_t | y_<t)       backward      log P_g(y_t | y_>t)
    P(y_t | rest) = P_f(y_t | y_<t) P_g(y_t | y_>t) / sum over allowed y of P_f(y | y_<t) P_g(y | y_>t)

The last line is the bidirectional network's own output (models/birnn.py), over the words that may stand in the slot.
Each model reads each sentence once, in its own direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from bibs.search import Conditions, Fill, OneOf, StepModel, Tokens, select_conditions
from bibs.text import Template, Vocabulary, words_as_typed

MAX_NUMBERS = 1 << 24
"""Log probabilities that are kept at once, of either model: 64 MiB."""


Slot: TypeAlias = int | OneOf | None
"""A token that was given, a choice of tokens, or any."""


class Alternative(NamedTuple):
    text: str
    probability: float


@dataclass(frozen=True)
class Word:
    """One word of a completion."""

    text: str  # as it stands in the completion
    before: str  # what stands between it and the word before it
    known: bool  # whether the models know it
    blank: int | None  # the number of the blank that it fills; None for a word of the template
    forward: float  # log P_f(word | all before it)
    backward: float  # log P_g(word | all after it)
    probability: float | None = None  # P(word | rest), where it fills a blank
    alternatives: tuple[Alternative, ...] = ()  # the best others by P(word | rest), best first


class Choice(NamedTuple):
    """What P(y_t | rest) says of one slot."""

    probability: float  # of the token that stands there
    others: list[tuple[int, float]]  # best first


class Reasons(NamedTuple):
    """What the two models say of the tokens of one sentence, START and END included."""

    forward: list[float]  # per token; 0 for the first, which is given
    backward: list[float]  # per token; 0 for the last
    choices: dict[int, Choice]  # by place, for the free ones


@torch.inference_mode()
def find_reasons(
    forward: StepModel,
    backward: StepModel,
    sentences: Sequence[Tokens],
    slots: Sequence[Sequence[Slot]],
    *,
    count: int,
    banned: Sequence[int] = (),
    conditions: Conditions = None,
) -> list[Reasons]:
    """Read whole sentences of token ids, made of `slots` (an id where one was given); `count` is of the others."""
    free = [[place for place, slot in enumerate(row) if not isinstance(slot, int)] for row in slots]
    reasons: list[Reasons] = []
    for some in _batches(free, forward.vocab_size):
        batch, places = [sentences[index] for index in some], [free[index] for index in some]
        mirrored = [[len(tokens) - 1 - place for place in own] for tokens, own in zip(batch, places, strict=True)]
        given = select_conditions(conditions, some)
        ahead, left = _read(forward, batch, places, given)
        behind, right = _read(backward, [tokens[::-1] for tokens in batch], mirrored, given)
        for row, (tokens, own) in enumerate(zip(batch, places, strict=True)):
            choices: dict[int, Choice] = {}
            allowed = [slots[some[row]][place] for place in own]
            if own:
                joint = torch.stack([left[row, p] + right[row, len(tokens) - 1 - p].to(left[row, p]) for p in own])
                choices = dict(zip(own, _choose(joint, [tokens[p] for p in own], allowed, banned, count), strict=True))
            reasons.append(Reasons(ahead[row], behind[row][::-1], choices))
    return reasons


def _batches(free: Sequence[Sequence[int]], vocab_size: int) -> Iterator[list[int]]:
    widest = max(map(len, free), default=0)
    size = max(1, MAX_NUMBERS // (vocab_size * max(1, widest)))
    for first in range(0, len(free), size):
        yield list(range(first, min(first + size, len(free))))


def _read(
    model: StepModel, sentences: Sequence[Tokens], free: Sequence[Sequence[int]], conditions: Conditions
) -> tuple[list[list[float]], dict[tuple[int, int], Tensor]]:
    """The log probability of every token, and by (sentence, place) the whole distribution (V,) at each free place."""
    log_probs, state, _ = model.start([tokens[:1] for tokens in sentences], conditions)  # (R, V)
    scores = [[0.0] for _ in sentences]
    kept: dict[tuple[int, int], Tensor] = {}
    longest = max(map(len, sentences))
    for place in range(1, longest):
        # A sentence that has ended is read on with a word of its own, so that no model has to read past an end.
        targets = [tokens[min(place, len(tokens) - 1)] for tokens in sentences]
        said = log_probs.gather(1, torch.tensor(targets, device=log_probs.device)[:, None])[:, 0].tolist()
        for row, (tokens, score) in enumerate(zip(sentences, said, strict=True)):
            if place < len(tokens):
                scores[row].append(score)
            if place in free[row]:
                kept[row, place] = log_probs[row].clone()
        if place < longest - 1:
            read = [tokens[min(place, max(0, len(tokens) - 2))] for tokens in sentences]
            log_probs, state = model.step(torch.tensor(read, device=log_probs.device), state)
    return scores, kept


def _choose(
    joint: Tensor, chosen: Sequence[int], allowed: Sequence[Slot], banned: Sequence[int], count: int
) -> list[Choice]:
    """What P(y_t | rest) says, given the log products (W, V) of slots in which the tokens `chosen` (W,) stand."""
    tokens = torch.tensor(chosen, device=joint.device)[:, None]  # (W, 1)
    joint[:, list(banned)] = -torch.inf
    for row, slot in zip(joint, allowed, strict=True):
        if isinstance(slot, OneOf):
            others = torch.ones_like(row, dtype=torch.bool)
            others[list(slot.tokens)] = False
            row[others] = -torch.inf
    probabilities = joint.softmax(1).nan_to_num(0.0)  # (W, V); where nothing is possible, nothing is probable
    own = probabilities.gather(1, tokens)[:, 0].tolist()
    best = probabilities.scatter(1, tokens, 0.0).topk(min(count, joint.shape[1]))
    return [
        Choice(probability, [(token, value) for token, value in zip(ids, values, strict=True) if value > 0])
        for probability, ids, values in zip(own, best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def words_of(template: Template, text: str, fill: Fill, reasons: Reasons, vocabulary: Vocabulary) -> tuple[Word, ...]:
    """The words of a filled template, as they stand in its `text`."""
    places = template.cut(range(len(fill.tokens)), fill.lengths)
    blanks = {place: k for k, own in enumerate(places) for place in own}
    endings: dict[int, str] = {}
    for own, typed_endings in zip(places, template.endings, strict=True):
        endings |= dict(zip(own, typed_endings, strict=False))  # a blank of unknown length has none
    typed = iter([word for literal in template.literals for word in words_as_typed(literal)])
    words: list[Word] = []
    end = 0
    for place, token in list(enumerate(fill.tokens))[1:-1]:
        word = vocabulary.words[token] if place in blanks else next(typed)
        if ending := endings.get(place, ""):  # as it was typed
            word = word[: len(word) - len(ending)] + ending
        start = text.index(word, end)
        choice = reasons.choices.get(place)
        words.append(
            Word(
                text=word,
                before=text[end:start],
                known=token != vocabulary.unk,
                blank=blanks.get(place),
                forward=reasons.forward[place],
                backward=reasons.backward[place],
                probability=None if choice is None else choice.probability,
                alternatives=tuple(Alternative(vocabulary.words[t], p) for t, p in choice.others) if choice else (),
            )
        )
        end = start + len(word)
    return tuple(words)
