"""An n-gram model with interpolated Kneser-Ney smoothing (`bibs.models.kneser_ney`) as a `StepModel`.

The longest stored n-gram says the probability; each longer context that was seen, but never with this token,
costs its backoff weight:

    log P(y | h) = log P_k(y | h_k) + sum_{j > k} log g_j(h_j),     h_j the last j - 1 tokens of h

So the dense row of a step is the unigram row plus one number, overwritten where the context has n-grams, from
short contexts to long ones. A dense row costs far less per number than scattered ones: the contexts that have
many n-grams keep their whole rows ready, and a step begins with the row of the longest such context.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bibs.models import kneser_ney
from bibs.models.kneser_ney import Ints
from bibs.models.storage import load_tensors, save_tensors
from bibs.search import Conditions

NO_TOKEN = -1
"""Stands in a state where a context is shorter than the model could use."""

DENSE_SHARE = 1 / 64
"""A context followed by at least this share of the vocabulary keeps its whole row ready, ..."""

MAX_DENSE_ROWS = 1024
MAX_DENSE_NUMBERS = 1 << 22
"""... as long as there are no more than so many rows, and numbers in them (16 MiB of float32)."""

MAX_ORDER = 1024
"""Of a model that is loaded: a state has room for so many tokens."""

_SAVED = ("context_keys", "gram_keys", "log_probs", "log_backoffs")


@dataclass(frozen=True)
class _Level:
    """`kneser_ney.Level` as tensors, with the n-grams of context c at `offsets[c]` to `offsets[c + 1]`."""

    context_keys: Tensor  # (C,) int64, sorted
    gram_keys: Tensor  # (G,) int64, sorted
    log_probs: Tensor  # (G,)
    log_backoffs: Tensor  # (C,)
    offsets: Tensor  # (C + 1,) int64

    @classmethod
    def make(cls, tensors: Mapping[str, Tensor], vocab_size: int) -> _Level:
        gram_keys = tensors["gram_keys"]
        firsts = torch.arange(len(tensors["context_keys"]) + 1, device=gram_keys.device) * vocab_size
        return cls(**tensors, offsets=torch.searchsorted(gram_keys, firsts))


class NGramModel:
    """Counts as a model. It reads in the direction it was trained in, and takes no conditions."""

    def __init__(self, levels: Sequence[_Level], *, vocab_size: int, order: int) -> None:
        """Use `train` or `load`."""
        self.vocab_size = vocab_size
        self.order = order
        self._levels = tuple(levels)
        root = self._levels[0]
        uniform = root.log_backoffs - math.log(vocab_size)  # (1,)
        self._unigrams = uniform.repeat(vocab_size).index_copy(0, root.gram_keys, root.log_probs)  # (V,)
        self._rows = self._unigrams[None]  # (H, V): the unigrams, then the contexts that keep their rows ready
        self._row_of = tuple(torch.zeros_like(level.context_keys) for level in self._levels)  # (C,); 0: none
        self._prepare_rows()

    # -- training --

    @classmethod
    def train(
        cls,
        sequences: Iterable[Sequence[int]],
        *,
        vocab_size: int,
        order: int = 3,
        reverse: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> NGramModel:
        """Count sequences of token ids, each with its START and END. `reverse` counts them right to left."""
        return cls._estimate(*_flatten(sequences, vocab_size), vocab_size, order, reverse, dtype)

    @classmethod
    def train_pair(
        cls,
        sequences: Iterable[Sequence[int]],
        *,
        vocab_size: int,
        order: int = 3,
        dtype: torch.dtype = torch.float32,
    ) -> tuple[NGramModel, NGramModel]:
        """A model that reads left to right and one that reads right to left, from the same sequences."""
        tokens, lengths = _flatten(sequences, vocab_size)
        forward = cls._estimate(tokens, lengths, vocab_size, order, False, dtype)
        return forward, cls._estimate(tokens, lengths, vocab_size, order, True, dtype)

    @classmethod
    def _estimate(
        cls, tokens: Ints, lengths: Ints, vocab_size: int, order: int, reverse: bool, dtype: torch.dtype
    ) -> NGramModel:
        if order < 1:
            raise ValueError(f"`order` must be at least 1, but is {order}")
        if not dtype.is_floating_point:
            raise ValueError(f"`dtype` must be a floating-point type, but is {dtype}")
        if reverse:  # turns each sequence round, and their order, which counts do not see
            tokens, lengths = tokens[::-1], lengths[::-1]
        positions = np.arange(len(tokens)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        if not positions.any():
            raise ValueError("`sequences` must hold at least one of two tokens or more, but hold none")
        levels = []
        for level in kneser_ney.estimate(tokens, positions, vocab_size=vocab_size, order=order):
            tensors = {name: torch.from_numpy(getattr(level, name)) for name in _SAVED}
            cast = {name: x.to(dtype) if x.is_floating_point() else x for name, x in tensors.items()}
            levels.append(_Level.make(cast, vocab_size))
        return cls(levels, vocab_size=vocab_size, order=order)

    # -- the StepModel protocol; a state is (R, order - 1): the last tokens, the newest in the last column --

    def start(self, contexts: Sequence[Sequence[int]], conditions: Conditions = None) -> tuple[Tensor, Tensor, Tensor]:
        """Read N ragged contexts: log_probs (N, V) of the next token, the state, and the scores (N,)."""
        if conditions is not None and any(condition is not None for condition in conditions):
            raise ValueError("`conditions` must be None for an n-gram model, which knows words only")
        tokens, lengths = _flatten(contexts, self.vocab_size)
        if not len(lengths) or not lengths.all():
            raise ValueError("`contexts` must hold at least one context, and each at least one token")
        ends = np.cumsum(lengths)
        positions = np.arange(len(tokens)) - np.repeat(ends - lengths, lengths)
        back = np.arange(self.order - 1, 0, -1)  # (order - 1,): how far back each column of a state looks
        state = _history(tokens, ends, lengths, back)  # (N, order - 1)
        scored = np.flatnonzero(positions)
        history = _history(tokens, scored, positions[scored], back)  # (M, order - 1)
        log_probs = self._log_probs_of(self._to_tensor(tokens[scored]), self._to_tensor(history))
        owners = np.repeat(np.arange(len(lengths)), lengths)[scored]
        scores = log_probs.new_zeros(len(lengths)).index_add_(0, self._to_tensor(owners), log_probs)
        new_state = self._to_tensor(state)
        return self._log_probs(new_state), new_state, scores

    def step(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Read one token (R,) in each row: log_probs (R, V) of the next, and the new state."""
        if tokens.numel():
            _check_range(int(tokens.min()), int(tokens.max()), self.vocab_size)
        new_state = torch.cat([state, tokens[:, None]], dim=1)[:, 1:]  # (R, order - 1)
        return self._log_probs(new_state), new_state

    def score(self, continuations: Sequence[Sequence[int]], state: Tensor, floors: Tensor | None = None) -> Tensor:
        """The log probability (R,) of each continuation after its first token, read from its row of the state.

        All tokens are scored at once, whatever the `floors`.
        """
        tokens, lengths = _flatten(continuations, self.vocab_size)
        known = state.cpu().numpy()  # (R, order - 1): what stands before each continuation
        ends = np.cumsum(lengths + known.shape[1])
        joined = np.empty(int(ends[-1]), np.int64)
        positions = np.arange(len(joined)) - np.repeat(ends - lengths, lengths + known.shape[1])  # below 0: known
        joined[positions < 0], joined[positions >= 0] = known.ravel(), tokens
        scored = np.flatnonzero(positions > 0)
        back = np.arange(self.order - 1, 0, -1)
        history = _history(joined, scored, positions[scored] + known.shape[1], back)  # (M, order - 1)
        log_probs = self._log_probs_of(self._to_tensor(joined[scored]), self._to_tensor(history))
        owners = np.repeat(np.arange(len(lengths)), lengths + known.shape[1])[scored]
        return log_probs.new_zeros(len(lengths)).index_add_(0, self._to_tensor(owners), log_probs)

    def _contexts(self, state: Tensor) -> list[Tensor]:
        """The context id (R,) of each row at each level; -1 where the context was never seen."""
        contexts = [torch.zeros(len(state), dtype=torch.int64, device=state.device)]
        for k, level in enumerate(self._levels[1:], start=1):
            farthest = state[:, -k]
            # What extends an unseen context gets a key below 0, as no stored one has.
            keys = torch.where(farthest < 0, -1, contexts[-1] * self.vocab_size + farthest)
            contexts.append(_find(level.context_keys, keys))
        return contexts

    def _log_probs(self, state: Tensor) -> Tensor:  # (R, order - 1) -> (R, V)
        contexts = self._contexts(state)
        backoffs = self._backoffs(contexts, len(state))
        bases, shifts = torch.zeros_like(contexts[0]), backoffs[0]  # (R,), (R,)
        covered = torch.zeros_like(bases)  # (R,): the level that the base row already stands for
        for k, ids in enumerate(contexts[1:], start=1):
            ready = torch.where(ids < 0, 0, self._row_of[k][ids.clamp(min=0)])
            bases = torch.where(ready > 0, ready, bases)
            shifts = torch.where(ready > 0, backoffs[k], shifts)
            covered = torch.where(ready > 0, k, covered)
        log_probs = self._rows.index_select(0, bases).add_(shifts[:, None])  # (R, V)
        flat = log_probs.view(-1)
        for k, (level, ids) in enumerate(zip(self._levels[1:], contexts[1:], strict=True), start=1):
            rows = ((ids >= 0) & (covered < k)).nonzero()[:, 0]
            firsts, ends = level.offsets[ids[rows]], level.offsets[ids[rows] + 1]
            entries, owners = _ranges(firsts, ends - firsts)
            rows = rows[owners]
            places = rows * self.vocab_size + level.gram_keys[entries] % self.vocab_size
            flat.scatter_(0, places, level.log_probs[entries] + backoffs[k][rows])
        return log_probs

    def _log_probs_of(self, tokens: Tensor, state: Tensor) -> Tensor:  # (R,), (R, order - 1) -> (R,)
        contexts = self._contexts(state)
        backoffs = self._backoffs(contexts, len(state))
        log_probs = self._unigrams[tokens] + backoffs[0]
        for level, ids, backoff in zip(self._levels[1:], contexts[1:], backoffs[1:], strict=True):
            entries = _find(level.gram_keys, ids * self.vocab_size + tokens)
            found = level.log_probs[entries.clamp(min=0)] + backoff
            log_probs = torch.where(entries < 0, log_probs, found)
        return log_probs

    def _backoffs(self, contexts: Sequence[Tensor], num_rows: int) -> list[Tensor]:
        """For each level, the sum (R,) of the log backoff weights of all levels above it."""
        totals = [self._unigrams.new_zeros(num_rows)]
        for level, ids in zip(reversed(self._levels[1:]), reversed(contexts[1:]), strict=True):
            weights = torch.where(ids < 0, 0, level.log_backoffs[ids.clamp(min=0)])
            totals.append(totals[-1] + weights)
        return totals[::-1]

    def _prepare_rows(self) -> None:
        """Compute the rows of the contexts with the most n-grams, within the bounds above."""
        counts = [level.offsets.diff() for level in self._levels]  # (C,) each
        most = torch.cat(counts[1:]).sort(descending=True).values if len(counts) > 1 else counts[0][:0]
        limit = min(MAX_DENSE_ROWS, MAX_DENSE_NUMBERS // self.vocab_size)
        least = DENSE_SHARE * self.vocab_size
        if len(most) > limit:
            least = max(least, int(most[limit]) + 1)
        rows = [self._rows]
        row_of = [self._row_of[0]]
        num_rows = 1
        for k in range(1, len(self._levels)):
            ids = (counts[k] >= least).nonzero()[:, 0]
            # A few contexts at a time, so that what is scattered on the way stays small.
            rows += [self._log_probs(state) for state in torch.split(self._state_of(ids, k), 64)]
            places = torch.arange(num_rows, num_rows + len(ids), device=ids.device)
            row_of.append(self._row_of[k].index_copy(0, ids, places))
            num_rows += len(ids)
        self._rows, self._row_of = torch.cat(rows), tuple(row_of)

    def _state_of(self, ids: Tensor, num_tokens: int) -> Tensor:
        """The state (R, order - 1) of contexts of `num_tokens` tokens, given by their ids."""
        state = ids.new_full((len(ids), self.order - 1), NO_TOKEN)
        for k in range(num_tokens, 0, -1):
            keys = self._levels[k].context_keys[ids]
            state[:, -k] = keys % self.vocab_size
            ids = keys // self.vocab_size
        return state

    # -- devices and files --

    def to(self, device: torch.device | str) -> NGramModel:
        """The same model with its tensors on `device`."""
        levels = [
            _Level.make({name: getattr(level, name).to(device) for name in _SAVED}, self.vocab_size)
            for level in self._levels
        ]
        return NGramModel(levels, vocab_size=self.vocab_size, order=self.order)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file, which appears whole or not at all."""
        tensors = {"order_and_vocab_size": torch.tensor([self.order, self.vocab_size])}
        for k, level in enumerate(self._levels, start=1):
            tensors |= {f"{k}.{name}": getattr(level, name) for name in _SAVED}
        save_tensors(Path(path), tensors)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, vocab_size: int | None = None) -> NGramModel:
        """Read what `save` wrote, in the precision it was written in; a model of another `vocab_size` is refused."""
        tensors = load_tensors(Path(path))
        settings = tensors.pop("order_and_vocab_size", torch.empty(0))
        names = [[f"{k}.{name}" for name in _SAVED] for k in range(1, len(tensors) // len(_SAVED) + 1)]
        if settings.shape != (2,) or not names or set(tensors) != set(chain.from_iterable(names)):
            raise ValueError(f"{path} does not hold an n-gram model")
        order, size = settings.tolist()
        if vocab_size not in (None, size):
            raise ValueError(f"{path} must be a model of {vocab_size} words, but is one of {size}")
        vocab_size = int(size)
        levels = [dict(zip(_SAVED, (tensors[name] for name in level), strict=True)) for level in names]
        if not len(levels) <= order <= MAX_ORDER or vocab_size < 1 or not _fit_together(levels, vocab_size):
            raise ValueError(f"{path} is damaged: its tensors do not make an n-gram model")
        return cls([_Level.make(level, vocab_size) for level in levels], vocab_size=vocab_size, order=int(order))

    def _to_tensor(self, array: Ints) -> Tensor:
        return torch.from_numpy(array).to(self._unigrams.device)


def _fit_together(levels: Sequence[Mapping[str, Tensor]], vocab_size: int) -> bool:
    """Whether tensors have the kinds, sizes and order that look-up relies on: a file may come from anybody."""
    num_before = 1
    if len({level[name].dtype for level in levels for name in ("log_probs", "log_backoffs")}) > 1:
        return False
    for level in levels:
        contexts, grams = level["context_keys"], level["gram_keys"]
        for keys, bound in ((contexts, num_before * vocab_size), (grams, contexts.numel() * vocab_size)):
            if keys.dtype != torch.int64 or keys.ndim != 1 or bool((keys.diff() <= 0).any()):
                return False
            if len(keys) and (int(keys[0]) < 0 or int(keys[-1]) >= bound):
                return False
        for numbers, keys in ((level["log_probs"], grams), (level["log_backoffs"], contexts)):
            if not numbers.is_floating_point() or numbers.shape != keys.shape or not bool((numbers < math.inf).all()):
                return False
        num_before = len(contexts)
    return len(levels[0]["context_keys"]) == 1


def _flatten(sequences: Iterable[Sequence[int]], vocab_size: int) -> tuple[Ints, Ints]:
    """All tokens end to end, and the length of each sequence."""
    sequences = list(sequences)
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    tokens = np.fromiter(chain.from_iterable(sequences), np.int64, int(lengths.sum()))
    if len(tokens):
        _check_range(int(tokens.min()), int(tokens.max()), vocab_size)
    return tokens, lengths


def _check_range(lowest: int, highest: int, vocab_size: int) -> None:
    if lowest < 0 or highest >= vocab_size:
        wrong = lowest if lowest < 0 else highest
        raise ValueError(f"a token must be between 0 and {vocab_size - 1}, but one is {wrong}")


def _history(tokens: Ints, places: Ints, reach: Ints, back: Ints) -> Ints:
    """The tokens that stand `back` before each place; NO_TOKEN beyond its `reach`."""
    within = back <= reach[:, None]  # (M, order - 1)
    return np.where(within, tokens[np.where(within, places[:, None] - back, 0)], NO_TOKEN)


def _find(sorted_keys: Tensor, keys: Tensor) -> Tensor:
    """The place of each key, or -1 where it is absent."""
    places = torch.searchsorted(sorted_keys, keys).clamp(max=len(sorted_keys) - 1)
    return torch.where(sorted_keys[places] == keys, places, -1)


def _ranges(firsts: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers of R ranges, end to end, and the range that each belongs to."""
    owners = torch.repeat_interleave(counts)
    shifts = firsts - (counts.cumsum(0) - counts)  # (R,)
    return torch.arange(len(owners), device=counts.device) + shifts[owners], owners
