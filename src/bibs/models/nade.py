"""NADE (Berglund et al., NIPS 2015): a bidirectional network trained for blanks, with a MISSING token at its input.

    P(y_t | known) = softmax(W_f h_f,t + W_b h_b,t + b),   each free slot of the input read as MISSING

In training every word is missing with probability `missing`, and the missing words are predicted, each by itself. A
blank is filled from left to right: a word is drawn given the known words and those already drawn, and put in place.
What stands right of a slot does not change before its turn, so a fill costs one pass of either network. With
`cutoffs` the softmax over [h_f, h_b] is adaptive (`bibs.models.output`); either way it is exact, over all words.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bibs.models.birnn import left_states, right_states
from bibs.models.directory import CONFIG, load_config
from bibs.models.output import AdaptiveOutput, DenseOutput
from bibs.models.recurrent import RecurrentConfig, RecurrentModel, add_normalisation
from bibs.models.storage import check_tensors, load_weights, save_weights
from bibs.search import Conditions, select_conditions

NADE_WEIGHTS = "nade.safetensors"

BATCH_ROWS = 512
"""Fills that are drawn at once."""


@dataclass(frozen=True)
class NADEFill:
    """A filled template; `score` sums the log probabilities that its words had when each was put in place."""

    tokens: tuple[int, ...]
    score: float


class Reader(RecurrentModel):
    """One side of a NADE: a recurrent network that reads V words and MISSING, and predicts nothing by itself."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(replace(config, vocab_size=config.vocab_size + 1, cutoffs=()))
        del self.output

    def begin(self, rows: int, conditions: Conditions) -> Any:
        """The state of `rows` rows that have read their pictures and nothing else; None if there are no pictures."""
        first = self.first_inputs(conditions, rows)
        return None if first is None else self.network(first[:, None])[1]

    def read(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Read one token (R,) in each row: the top layer's hidden state (R, H), and the new state."""
        hidden, state = self.network(self.embedding(tokens)[:, None], state)
        return hidden[:, 0], state


class NADE(nn.Module):
    """Two `Reader`s of V words and MISSING, whose id is V, and one output over the V words."""

    def __init__(self, config: RecurrentConfig, *, missing: float = 0.5) -> None:
        """`config` is that of either direction, without MISSING; its `vocab_size` is V."""
        super().__init__()
        if not 0 < missing < 1:
            raise ValueError(f"`missing` must be above 0 and below 1, but is {missing}")
        self.config = config
        self.vocab_size = config.vocab_size
        self.missing = missing
        self.left, self.right = Reader(config), Reader(config)
        size = 2 * config.hidden_size
        self.output: DenseOutput | AdaptiveOutput
        if config.cutoffs:
            self.output = AdaptiveOutput(size, config.vocab_size, config.cutoffs)
        else:
            self.output = DenseOutput(size, config.vocab_size)

    @classmethod
    def from_pair(cls, forward: RecurrentModel, backward: RecurrentModel, *, missing: float = 0.5) -> NADE:
        """A NADE to train on from a pair: where no word is missing, it begins as the product of the two.

        (With `cutoffs`: the product within every cluster, and over the clusters.) MISSING begins as the mean word.
        """
        if forward.config != backward.config:
            raise ValueError(f"both models must have one shape, but have {forward.config} and {backward.config}")
        model = cls(forward.config, missing=missing)
        for reader, side in ((model.left, forward), (model.right, backward)):
            weights = {name: weight for name, weight in side.state_dict().items() if not name.startswith("output.")}
            words = weights["embedding.weight"]
            weights["embedding.weight"] = torch.cat([words, words.mean(0, keepdim=True)])
            reader.load_state_dict(weights)
        outputs = forward.output.state_dict(), backward.output.state_dict()
        model.output.load_state_dict({name: _joined(name, *(part[name] for part in outputs)) for name in outputs[0]})
        return model

    def normalise(self, mean: Tensor, scale: float, axes: Tensor | None = None) -> None:
        """As `RecurrentModel.normalise`, on both sides."""
        for reader in (self.left, self.right):
            reader.normalise(mean, scale, axes)

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
        slots = hidden[:, 1:-1]  # (N, T-2): those that are predicted
        left = left_states(self.left, shown, conditions)[slots]  # (M, H)
        right = right_states(self.right, shown, ends, conditions)[slots]  # (M, H)
        targets = tokens[:, 1:-1][slots]  # (M,)
        return -self.output.target_log_probs(torch.cat([left, right], 1), targets).sum(), targets.numel()

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
        banned: Sequence[int] = (),
        seed: int = 0,
    ) -> list[list[NADEFill]]:
        """Fill each template (token ids, None at each free slot, START first and END last).

        `num_samples` fills are made of each; equal ones are merged, and the best `score` comes first. With
        `sample=False` the most probable word is taken each time. A template's fills do not depend on the others.
        """
        if num_samples < 1:
            raise ValueError(f"`num_samples` must be at least 1, but is {num_samples}")
        for index, template in enumerate(templates):
            if len(template) < 3 or template[0] is None or template[-1] is None:
                raise ValueError(f"template {index} must have a slot between a first and a last token that are given")
        self.eval()
        order = sorted(range(len(templates)), key=lambda index: len(templates[index]))  # little padding
        size = max(1, BATCH_ROWS // num_samples)
        results: list[list[NADEFill]] = [[] for _ in templates]
        for begin in range(0, len(order), size):
            batch = order[begin : begin + size]
            rows = [index for index in batch for _ in range(num_samples)]
            noise = [_noise(templates[index], num_samples, seed) for index in batch] if sample else None
            tokens, scores = self._fill_rows(
                [templates[row] for row in rows], select_conditions(conditions, rows), noise, banned
            )
            for place, index in enumerate(batch):
                mine = slice(place * num_samples, (place + 1) * num_samples)
                length = len(templates[index])
                results[index] = _merged([tuple(row[:length]) for row in tokens[mine].tolist()], scores[mine].tolist())
        return results

    def _fill_rows(
        self,
        templates: Sequence[Sequence[int | None]],
        conditions: Conditions,
        noise: Sequence[Tensor] | None,
        banned: Sequence[int],
    ) -> tuple[Tensor, Tensor]:
        """One fill of each of R templates, the whole of it (R, T), and its score (R,)."""
        weight = self.left.embedding.weight
        lengths = torch.tensor([len(template) for template in templates])
        longest = int(lengths.max())
        padded = [[*template, *[0] * (longest - len(template))] for template in templates]
        free = torch.tensor([[token is None for token in row] for row in padded], device=weight.device)  # (R, T)
        shown = [[self.missing_token if token is None else token for token in row] for row in padded]
        tokens = torch.tensor(shown, device=weight.device)  # (R, T)
        uniforms = weight.new_zeros(tokens.shape)
        if noise is not None:
            uniforms[free] = torch.cat([row for rows in noise for row in rows]).to(uniforms)
        known_right = right_states(self.right, tokens, lengths, conditions)  # (R, T-2, H)
        hidden, state = self.left.read(tokens[:, 0], self.left.begin(len(tokens), conditions))
        scores = weight.new_zeros(len(tokens))
        never = torch.tensor(list(banned), device=weight.device, dtype=torch.long)
        for slot in range(1, longest - 1):
            rows = free[:, slot].nonzero().squeeze(1)
            if len(rows):
                known = torch.cat([hidden[rows], known_right[rows, slot - 1]], dim=1)  # (F, 2H)
                log_probs = self.output.log_probs(known).index_fill(1, never, -torch.inf)  # (F, V)
                chosen = log_probs.argmax(1) if noise is None else _draw(log_probs, uniforms[rows, slot])
                scores[rows] += log_probs.gather(1, chosen[:, None]).squeeze(1)
                tokens[rows, slot] = chosen
            hidden, state = self.left.read(tokens[:, slot], state)
        return tokens, scores

    def save(self, path: Path | str, *, dtype: torch.dtype | None = torch.float16) -> None:
        save_weights(Path(path), self.state_dict(), dtype)

    @classmethod
    def load(cls, path: Path | str, config: RecurrentConfig, *, missing: float = 0.5) -> NADE:
        tensors = load_weights(Path(path))
        config.check_against(tensors, Path(path))
        with torch.device("meta"):
            model = cls(config, missing=missing)
        add_normalisation(tensors, model.state_dict())
        check_tensors(tensors, model.state_dict(), Path(path))
        model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, assign=True)
        return model.eval()


def load_nade(directory: Path | str) -> NADE:
    """The NADE of a directory that `bibs train --missing` wrote, float32 and in eval mode."""
    directory = Path(directory)
    settings = load_config(directory)
    try:
        config, missing = RecurrentConfig(**settings["nade"]), float(settings["missing"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{directory / CONFIG} is not the configuration of a NADE ({error})") from error
    return NADE.load(directory / NADE_WEIGHTS, config, missing=missing)


def _joined(name: str, left: Tensor, right: Tensor) -> Tensor:
    """One output weight that reads [h_f, h_b] and adds what two, of the two sides, make of their own."""
    if left.dim() == 1:
        return left + right
    if name.startswith("tail.") and name.endswith(".0.weight"):  # a cluster's narrow projection: one for each side
        return torch.cat([F.pad(left, (0, right.shape[1])), F.pad(right, (left.shape[1], 0))])
    return torch.cat([left, right], dim=1)


def _noise(template: Sequence[int | None], rows: int, seed: int) -> Tensor:
    """The chance of a template's fills (rows, W): a function of itself and the seed."""
    chance = torch.Generator().manual_seed(zlib.crc32(repr((seed, tuple(template))).encode()))
    return torch.rand(rows, sum(token is None for token in template), generator=chance)


def _merged(fills: Sequence[tuple[int, ...]], scores: Sequence[float]) -> list[NADEFill]:
    best: dict[tuple[int, ...], float] = {}
    for fill, score in zip(fills, scores, strict=True):
        best[fill] = max(score, best.get(fill, score))
    return [NADEFill(fill, best[fill]) for fill in sorted(best, key=lambda fill: (-best[fill], fill))]


def _draw(log_probs: Tensor, uniforms: Tensor) -> Tensor:  # (R, V), (R,) -> (R,)
    """A word of each row, by where a number in [0, 1) falls among the probabilities laid end to end."""
    ends = log_probs.double().exp().cumsum(1)  # (R, V)
    aims = uniforms.double() * ends[:, -1]
    found = torch.searchsorted(ends, aims[:, None], right=True).squeeze(1)
    return found.clamp(max=log_probs.shape[1] - 1)
