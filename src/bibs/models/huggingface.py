"""Any causal language model of transformers as a `StepModel` (extra `hf`).

A row of the state holds the keys and values of every token that was read, layer by layer, and a mask: contexts of
different lengths are padded on the left, and nobody looks at the padding. The place of a token is its number among the
real ones, so a context means the same whatever it is padded with. Each step makes the state one token longer. Whether
the model reads to the right or to the left is not its business: it gets tokens in its own reading order.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bibs.search import Conditions, map_state

LOGITS_AT_ONCE = 2**24
"""Numbers that one call of the network may return: 64 MiB. Long contexts are read some rows at a time."""


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
            told = log_probs[:, :-1].gather(2, tokens[rows, 1:, None])[:, :, 0]  # (n, T-1)
            parts.append((log_probs[:, -1].clone(), state, told.masked_fill(~mask[rows, :-1], 0.0).sum(1)))
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
            told = log_probs.gather(2, tokens[rows, 1:, None])[:, :, 0]  # (r, T-1)
            scores.append(told.masked_fill(~mask[rows, 1:], 0.0).sum(1))
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
        keys, values = (tuple(getattr(layer, part) for layer in layers) for part in ("keys", "values"))
        return read.logits.log_softmax(2), CausalState(keys, values, mask)
