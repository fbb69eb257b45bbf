"""Any causal language model of transformers as a `StepModel` (extra `hf`).

A row of the state holds the keys and values of every token that was read, layer by layer, and a mask: contexts of
different lengths are padded on the left, and nobody looks at the padding. The place of a token is its number among the
real ones, so a context means the same whatever it is padded with. Each step makes the state one token longer. Whether
the model reads to the right or to the left is not its business: it gets tokens in its own reading order.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bibs.search import Conditions, map_state

LOGITS_AT_ONCE = 2**24
"""Numbers that one call of the network may return: 64 MiB. Long contexts are read some rows at a time."""

NUM_WRITTEN, LENGTH_WRITTEN = 8, 12
"""How many texts of how many tokens the forward model writes, to see which way the backward one reads."""


class CausalState(NamedTuple):
    """What R rows have read: T tokens each, some of them padding."""

    keys: tuple[Tensor, ...]  # of each layer (R, heads, T, size)
    values: tuple[Tensor, ...]
    mask: Tensor  # (R, T) whether each is a real token


class CausalModel:
    """A causal language model, in float32, which scores tokens and is not trained any more."""

    def __init__(self, network: Any, name: str = "model") -> None:
        """`network` is what `AutoModelForCausalLM` loads; errors call it by `name`."""
        self.network = network.float().eval()
        self.name = name
        self.vocab_size: int = network.get_output_embeddings().weight.shape[0]
        self.max_length: int | None = getattr(network.config, "max_position_embeddings", None)

    @property
    def device(self) -> torch.device:
        return self.network.device  # type: ignore[no-any-return]

    @cached_property
    def numbers_per_token(self) -> int:
        """How many numbers the state of a row grows by with each token."""
        _, state, _ = self.start([[0]])
        return sum(part.numel() for part in (*state.keys, *state.values))

    @torch.inference_mode()
    def start(
        self, contexts: Sequence[Sequence[int]], conditions: Conditions = None
    ) -> tuple[Tensor, CausalState, Tensor]:
        """Read N ragged contexts: log_probs (N, V) of the next token, the state, and the scores (N,)."""
        if conditions is not None and any(condition is not None for condition in conditions):
            raise ValueError("`conditions` must be None for a causal language model, which reads tokens only")
        longest = max(map(len, contexts))
        padded = [[0] * (longest - len(context)) + list(context) for context in contexts]
        tokens = torch.tensor(padded, device=self.device)  # (N, T)
        lengths = torch.tensor(list(map(len, contexts)), device=self.device)
        mask = torch.arange(longest, device=self.device) >= longest - lengths[:, None]  # (N, T)
        parts = []
        for rows in self._some_rows(len(contexts), longest):
            log_probs, state = self._read(tokens[rows], mask[rows])
            token_scores = log_probs[:, :-1].gather(2, tokens[rows, 1:, None])[:, :, 0]  # (n, T-1)
            parts.append((log_probs[:, -1].clone(), state, token_scores.masked_fill(~mask[rows, :-1], 0.0).sum(1)))
        last, states, scores = zip(*parts, strict=True)
        return torch.cat(last), map_state(lambda *tensors: torch.cat(tensors), *states), torch.cat(scores)

    @torch.inference_mode()
    def step(self, tokens: Tensor, state: CausalState) -> tuple[Tensor, CausalState]:
        """Read one token (R,) in each row: log_probs (R, V) of the next, and the new state."""
        log_probs, state = self._read(tokens[:, None], torch.ones_like(tokens, dtype=torch.bool)[:, None], state)
        return log_probs[:, -1], state

    @torch.inference_mode()
    def score(self, continuations: Sequence[Sequence[int]], state: CausalState, floors: Tensor | None = None) -> Tensor:
        """The log probability (R,) of each continuation after its first token, in one pass; no floor is needed."""
        longest = max(map(len, continuations))
        padded = [list(row) + [0] * (longest - len(row)) for row in continuations]  # what is read later changes nothing
        tokens = torch.tensor(padded, device=self.device)  # (R, T)
        lengths = torch.tensor(list(map(len, continuations)), device=self.device)
        mask = torch.arange(longest, device=self.device) < lengths[:, None]
        if longest == 1:
            return torch.zeros(len(continuations), device=self.device)
        scores = []
        for rows in self._some_rows(len(continuations), longest):
            log_probs, _ = self._read(tokens[rows, :-1], mask[rows, :-1], map_state(itemgetter(rows), state))
            token_scores = log_probs.gather(2, tokens[rows, 1:, None])[:, :, 0]  # (r, T-1)
            scores.append(token_scores.masked_fill(~mask[rows, 1:], 0.0).sum(1))
        return torch.cat(scores)

    def _some_rows(self, count: int, width: int) -> list[slice]:
        size = max(1, LOGITS_AT_ONCE // (width * self.vocab_size))
        return [slice(first, first + size) for first in range(0, count, size)]

    def _read(self, tokens: Tensor, mask: Tensor, state: CausalState | None = None) -> tuple[Tensor, CausalState]:
        """Read T more tokens (R, T): log_probs (R, T, V) of what follows each, and the state after the last."""
        from transformers import DynamicCache

        cache = DynamicCache()
        if state is not None:
            for layer, (keys, values) in enumerate(zip(state.keys, state.values, strict=True)):
                cache.update(keys, values, layer)
            mask = torch.cat([state.mask, mask], 1)
        if self.max_length is not None and int(mask.sum(1).max()) > self.max_length:
            raise ValueError(
                f"a text must have at most {self.max_length} tokens, the positions of {self.name}, "
                f"but has {int(mask.sum(1).max())}"
            )
        places = (mask.long().cumsum(1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        read = self.network(
            input_ids=tokens,
            attention_mask=mask.long(),
            position_ids=places,
            past_key_values=cache,
            use_cache=True,
        )
        layers = getattr(read.past_key_values, "layers", ())
        if not layers or any(getattr(layer, "keys", None) is None for layer in layers):
            raise ValueError(f"{self.name} must keep keys and values of what it has read, but does not")
        cached = CausalState(tuple(layer.keys for layer in layers), tuple(layer.values for layer in layers), mask)
        return read.logits.log_softmax(2), cached


def load_pair(forward: Any, backward: Any, tokenizer: Any, device: Any) -> tuple[tuple[CausalModel, CausalModel], Any]:
    """Two models and their tokenizer, from directories, names on the hub, or what is loaded already."""
    transformers = _require()
    own = [_load(transformers.AutoTokenizer, name, each) for name, each in _with_tokenizers(forward, backward)]
    if tokenizer is None and not own:
        raise ValueError("`tokenizer` must be given where neither `forward` nor `backward` holds one, but is None")
    read = own[0] if tokenizer is None else _load(transformers.AutoTokenizer, "tokenizer", tokenizer)
    if any(other.get_vocab() != read.get_vocab() for other in own):
        raise ValueError("`forward`, `backward` and `tokenizer` must share one vocabulary, but their tokens differ")
    models = []
    for name, source in (("forward", forward), ("backward", backward)):
        network = _load(transformers.AutoModelForCausalLM, name, source)
        if device is not None:
            try:
                network = network.to(device)
            except (RuntimeError, AssertionError, NotImplementedError):
                raise ValueError(f"`device` must be one that torch can use here, but is {device!r}") from None
        models.append(CausalModel(network, f"`{name}`"))
    return (models[0], models[1]), read


@torch.inference_mode()
def reads_backward(forward: CausalModel, backward: CausalModel, start: int, banned: Sequence[int]) -> bool:
    """Whether `backward` finds what `forward` writes more probable from its end than from its beginning."""
    generator = torch.Generator().manual_seed(0)
    log_probs, state, _ = forward.start([[start]] * NUM_WRITTEN)
    columns = []
    for _ in range(LENGTH_WRITTEN):
        log_probs[:, list(banned)] = -torch.inf
        tokens = torch.multinomial(log_probs.softmax(1).cpu(), 1, generator=generator)[:, 0]
        columns.append(tokens)
        log_probs, state = forward.step(tokens.to(forward.device), state)
    written = torch.stack(columns, 1)  # (N, T)
    scores = [float(backward.start(rows.tolist())[2].sum()) for rows in (written.flip(1), written)]
    return scores[0] > scores[1]


def _require() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ImportError(
            f'causal language models need transformers, which could not be imported ({error}): pip install ".[hf]"'
        ) from None
    return transformers


def _with_tokenizers(*sources: Any) -> list[tuple[str, Any]]:
    """The models that hold a tokenizer of their own, beside their weights."""
    names = zip(("forward", "backward"), sources, strict=True)
    return [(name, each) for name, each in names if isinstance(each, str | os.PathLike) and _holds_tokenizer(each)]


def _holds_tokenizer(source: str | os.PathLike[str]) -> bool:
    return not Path(source).is_dir() or (Path(source) / "tokenizer.json").exists()


def _load(kind: Any, name: str, source: Any) -> Any:
    if not isinstance(source, str | os.PathLike):
        return source
    try:
        return kind.from_pretrained(source, trust_remote_code=False)  # no code that a directory brings along
    except (OSError, ValueError, KeyError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"`{name}` must be a directory or a name on the hub that loads, but {source!s} does not: {reason}"
        ) from None
