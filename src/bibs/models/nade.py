"""NADE (Berglund et al., NIPS 2015): a bidirectional network trained for blanks, with a MISSING token at its input.

    P(y_t | known) = softmax(W_f h_f,t + W_b h_b,t + b),   each free slot of the input read as MISSING

In training every word is missing with probability `missing`, and the missing words are predicted, each by itself. A
blank is filled one slot at a time: a word is drawn given the known words and those already drawn, and put in place.
The softmax is exact, over all words.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bibs.models.birnn import BiRNN
from bibs.models.recurrent import RecurrentConfig, RecurrentModel
from bibs.models.storage import check_tensors, load_tensors, save_tensors
from bibs.search.step_model import Conditions, select_conditions

ORDERS = ("left-to-right", "random")


@dataclass(frozen=True)
class NADEFill:
    """A filled template; `score` sums the log probabilities that its words had when each was put in place."""

    tokens: tuple[int, ...]
    score: float


class NADE(nn.Module):
    """A `BiRNN` over V words and MISSING, whose id is V. It predicts the V words alone."""

    def __init__(self, config: RecurrentConfig, *, missing: float = 0.5) -> None:
        """`config` is that of either direction, without MISSING; its `vocab_size` is V."""
        super().__init__()
        if config.cutoffs:
            raise ValueError(f"NADE has a dense output: `cutoffs` must be empty, but are {config.cutoffs}")
        if not 0 < missing < 1:
            raise ValueError(f"`missing` must be above 0 and below 1, but is {missing}")
        self.config = config
        self.vocab_size = config.vocab_size
        self.missing = missing
        sides = (RecurrentModel(replace(config, vocab_size=config.vocab_size + 1)) for _ in range(2))
        self.network = BiRNN.from_pair(*sides)

    @property
    def missing_token(self) -> int:
        return self.vocab_size

    def loss(self, tokens: Tensor, lengths: Tensor | None = None, conditions: Conditions = None) -> tuple[Tensor, int]:
        """The summed negative log probability of the words that are made missing, and their count.

        In eval mode the same words of a batch are missing every time, so that losses can be compared.
        """
        chance = None if self.training else torch.Generator(tokens.device).manual_seed(0)
        ends = torch.full((len(tokens),), tokens.shape[1]) if lengths is None else lengths
        hidden = self._draw_missing(tokens, ends.to(tokens.device), chance)  # (N, T)
        shown = tokens.masked_fill(hidden, self.missing_token)
        left, right = self.network.slot_states(shown, ends, conditions)
        slots = hidden[:, 1:-1]
        scores = self.network.scores(left[slots], right[slots])[:, : self.vocab_size]  # (M, V)
        targets = tokens[:, 1:-1][slots]
        return F.cross_entropy(scores, targets, reduction="sum"), targets.numel()

    def _draw_missing(self, tokens: Tensor, lengths: Tensor, chance: torch.Generator | None) -> Tensor:
        """Which tokens (N, T) are missing: never a row's first or last, but at least one word of each row."""
        draws = torch.rand(tokens.shape, generator=chance, device=tokens.device)
        places = torch.arange(tokens.shape[1], device=tokens.device)
        words = (places > 0) & (places < lengths[:, None] - 1)
        lowest = draws.masked_fill(~words, 2.0).argmin(1, keepdim=True)
        return words & ((draws < self.missing) | (places == lowest))

    @torch.no_grad()
    def fill(
        self,
        templates: Sequence[Sequence[int | None]],
        conditions: Conditions = None,
        *,
        num_samples: int = 1,
        sample: bool = True,
        order: str = "left-to-right",
        banned: Sequence[int] = (),
        seed: int = 0,
    ) -> list[list[NADEFill]]:
        """Fill each template (token ids, None at each free slot, START first and END last).

        `num_samples` fills are made of each; equal ones are merged, and the best `score` comes first. With
        `sample=False` the most probable word is taken each time. A template's fills do not depend on the others.
        """
        if num_samples < 1:
            raise ValueError(f"`num_samples` must be at least 1, but is {num_samples}")
        if order not in ORDERS:
            raise ValueError(f"`order` must be one of {', '.join(ORDERS)}, but is {order!r}")
        results = []
        for index, template in enumerate(templates):
            if len(template) < 3 or template[0] is None or template[-1] is None:
                raise ValueError(f"template {index} must have a slot between a first and a last token that are given")
            picture = select_conditions(conditions, [index] * num_samples)
            results.append(self._fill_one(template, picture, num_samples, sample, order, banned, seed))
        return results

    def _fill_one(
        self,
        template: Sequence[int | None],
        conditions: Conditions,
        rows: int,
        sample: bool,
        order: str,
        banned: Sequence[int],
        seed: int,
    ) -> list[NADEFill]:
        self.eval()
        device = self.network.bias.device
        free = [slot for slot, token in enumerate(template) if token is None]
        chance = torch.Generator().manual_seed(zlib.crc32(repr((seed, tuple(template))).encode()))
        keys = torch.rand(rows, len(free), generator=chance)  # slots are taken in the order of their keys
        keys = keys if order == "random" else torch.arange(len(free)).expand(rows, -1)
        turns = torch.tensor(free, dtype=torch.long)[keys.argsort(1)].to(device)  # (R, W)
        noise = torch.rand(rows, len(free), generator=chance).to(device)
        known = torch.tensor([self.missing_token if token is None else token for token in template], device=device)
        tokens = known.repeat(rows, 1)  # (R, T)
        scores = self.network.bias.new_zeros(rows)
        every = torch.arange(rows, device=device)
        for turn in range(len(free)):
            slots = turns[:, turn]
            left, right = self.network.slot_states(tokens, conditions=conditions)
            logits = self.network.scores(left[every, slots - 1], right[every, slots - 1])[:, : self.vocab_size]
            log_probs = logits.log_softmax(1).index_fill(
                1, torch.tensor(list(banned), device=device).long(), -torch.inf
            )
            chosen = _draw(log_probs, noise[:, turn]) if sample else log_probs.argmax(1)  # (R,)
            scores += log_probs[every, chosen]
            tokens[every, slots] = chosen
        best: dict[tuple[int, ...], float] = {}
        for row, score in zip(tokens.tolist(), scores.tolist(), strict=True):
            best[tuple(row)] = max(score, best.get(tuple(row), score))
        return [NADEFill(fill, best[fill]) for fill in sorted(best, key=lambda fill: (-best[fill], fill))]

    def save(self, path: Path | str, *, dtype: torch.dtype | None = torch.float16) -> None:
        tensors = self.state_dict().items()
        save_tensors(Path(path), {name: weight.to(dtype or weight.dtype) for name, weight in tensors})

    @classmethod
    def load(cls, path: Path | str, config: RecurrentConfig, *, missing: float = 0.5) -> NADE:
        model = cls(config, missing=missing)
        tensors = load_tensors(Path(path))
        check_tensors(tensors, model.state_dict(), Path(path))
        model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
        return model.eval()


def _draw(log_probs: Tensor, uniforms: Tensor) -> Tensor:  # (R, V), (R,) -> (R,)
    """A word of each row, by where a number in [0, 1) falls among the probabilities laid end to end."""
    ends = log_probs.double().exp().cumsum(1)  # (R, V)
    aims = uniforms.double() * ends[:, -1]
    found = torch.searchsorted(ends, aims[:, None], right=True).squeeze(1)
    return found.clamp(max=log_probs.shape[1] - 1)
