"""The CNN+RNN captioner, read in one direction: RNN, LSTM or GRU, the picture (if any) as the first input.

    x_0 = W_p s (picture - m) (or a learnt vector where there is none),   x_t = embedding(y_t)
    h_t = cell(x_t, h_{t-1}),   P(y_{t+1} | y_<=t, picture) = softmax(W h_t + b)

The mean m and the scale s are those of the training pictures (0 and 1 where none were counted): image vectors are sums
of positive numbers, and what they all share would drown what tells one picture from another.

The output at x_0 is not scored: the first token of a sequence (START, or END for a model that reads right to
left) is given. Which direction is read is not the model's business: it reads tokens in the order they come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bibs.models import kind
from bibs.models.cells import GATES, NETWORKS, PreparedLayer, prepare_layer
from bibs.models.decoding import Decoder, RecurrentState
from bibs.models.lstm_sequence import lstm_sequence
from bibs.models.output import AdaptiveOutput, DenseOutput
from bibs.models.products import FloatMatrix, Int8Matrix, Matrix, has_int8_instructions, holds_integers
from bibs.models.storage import check_tensors, load_weights, save_weights
from bibs.search import Conditions

SIZES = {
    "vocab_size": 1,
    "hidden_size": 1,
    "embedding_size": 1,
    "num_layers": 1,
    "condition_size": 0,
    "condition_axes": 0,
}
"""The whole numbers of a configuration, and the least that each may be."""


@dataclass(frozen=True)
class RecurrentConfig:
    """The shape of a network. With `cutoffs` the output is an adaptive softmax, and rare words come last.

    `encoder` names what makes the vectors that the network is conditioned on; empty where that is not known. With
    `condition_axes` above 0 the weights hold so many axes, by which vectors of another encoder are told (`kind`).
    """

    vocab_size: int
    hidden_size: int = 512
    embedding_size: int = 512
    num_layers: int = 1
    cell: str = "lstm"
    condition_size: int = 0
    dropout: float = 0.0
    cutoffs: tuple[int, ...] = ()
    encoder: str = ""
    condition_axes: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.cutoffs, Sequence) or not all(map(_is_whole, self.cutoffs)):
            raise ValueError(f"`cutoffs` must be a list of whole numbers, but is {self.cutoffs!r}")
        object.__setattr__(self, "cutoffs", tuple(self.cutoffs))  # JSON gives a list
        for name, least in SIZES.items():
            value = getattr(self, name)
            if not _is_whole(value) or value < least:
                raise ValueError(f"`{name}` must be a whole number of at least {least}, but is {value!r}")
        if not isinstance(self.cell, str) or self.cell not in GATES:
            raise ValueError(f"`cell` must be one of {', '.join(GATES)}, but is {self.cell!r}")
        if not isinstance(self.dropout, int | float) or not 0 <= self.dropout < 1:
            raise ValueError(f"`dropout` must be at least 0 and below 1, but is {self.dropout!r}")
        edges = (0, *self.cutoffs, self.vocab_size)
        if any(low >= high for low, high in pairwise(edges)):
            raise ValueError(f"`cutoffs` must rise and lie between 1 and {self.vocab_size - 1}, but are {self.cutoffs}")

    def check_against(self, tensors: Mapping[str, Tensor], path: Path) -> None:
        """Refuse what no network with these weights can have, before one is made."""
        longest = max((max(tensor.shape, default=0) for tensor in tensors.values()), default=0)
        sizes = {name: (getattr(self, name), longest) for name in SIZES}
        sizes |= {"num_layers": (self.num_layers, len(tensors)), "cutoffs": (len(self.cutoffs), len(tensors))}
        for name, (value, most) in sizes.items():
            if value > most:
                raise ValueError(
                    f"`{name}` must be at most {most}, as {path} says, but is {value} in its configuration"
                )


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class RecurrentModel(nn.Module):
    """A recurrent network that satisfies `StepModel`. `start` and `step` never use dropout or gradients."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = config.vocab_size
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_size)
        if config.condition_size:
            self.condition = nn.Linear(config.condition_size, config.embedding_size)
            self.no_condition = nn.Parameter(torch.zeros(config.embedding_size))
            self.condition_mean: Tensor
            self.condition_scale: Tensor
            self.register_buffer("condition_mean", torch.zeros(config.condition_size))
            self.register_buffer("condition_scale", torch.ones(()))
            if config.condition_axes:
                self.condition_axes: Tensor
                self.register_buffer("condition_axes", torch.zeros(config.condition_axes, config.condition_size))
        between = config.dropout if config.num_layers > 1 else 0.0
        self.network = NETWORKS[config.cell](
            config.embedding_size, config.hidden_size, config.num_layers, batch_first=True, dropout=between
        )
        self.dropout = nn.Dropout(config.dropout)
        self.output: DenseOutput | AdaptiveOutput
        if config.cutoffs:
            self.output = AdaptiveOutput(config.hidden_size, config.vocab_size, config.cutoffs)
        else:
            self.output = DenseOutput(config.hidden_size, config.vocab_size)
        self._decoders: dict[type[Matrix], Decoder] = {}  # of the weights of this version
        self._decoded: tuple[tuple[int, int], ...] = ()

    # -- the whole network at once: training, and the judge of `start` and `step` --

    def hidden(self, tokens: Tensor, conditions: Conditions = None) -> Tensor:
        """The hidden state (N, T, H) of the top layer after each of the tokens (N, T).

        Dropout draws one mask a word for the inputs and one a sentence for the states, whatever the place.
        """
        words, index = torch.unique(tokens, return_inverse=True)  # (U,), (N, T)
        inputs = self.read_words(words)  # (U, E)
        first = self.first_inputs(conditions, len(tokens))
        if first is not None:
            place_0 = torch.arange(len(words), len(words) + len(tokens), device=tokens.device)
            inputs = torch.cat([inputs, first])  # (U+N, E)
            index = torch.cat([place_0[:, None], index], dim=1)  # (N, 1+T)
        inputs = self.dropout(inputs)
        if self.training and self.config.cell == "lstm":
            hidden = self._train_lstm(inputs, index.t()).transpose(0, 1)
        else:
            hidden = self.network(inputs[index])[0]  # (N, [1+]T, H)
        scored = hidden if first is None else hidden[:, 1:]
        mask: Tensor = self.dropout(scored.new_ones(len(tokens), 1, scored.shape[2]))
        return scored * mask

    def read_words(self, words: Tensor) -> Tensor:  # (U,) -> (U, E)
        """The vector by which each word is read."""
        vectors: Tensor = self.embedding(words)
        return vectors

    def _train_lstm(self, inputs: Tensor, index: Tensor) -> Tensor:  # (U, E), (T, N) -> (T, N, H)
        """What `network` gives for `inputs[index]`, with each distinct input projected once."""
        for layer in range(self.config.num_layers):
            weight, state_weight, bias, state_bias = (
                getattr(self.network, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            if layer:
                inputs = self.dropout(inputs.reshape(-1, inputs.shape[2]))  # (T*N, H)
                index = torch.arange(len(inputs), device=inputs.device).view(index.shape)
            table = F.linear(inputs, weight, bias + state_bias).to(weight.dtype)
            inputs = lstm_sequence(table, index, state_weight)  # (T, N, H)
        return inputs

    def forward(self, tokens: Tensor, conditions: Conditions = None) -> Tensor:
        """The log_probs (N, T, V) of what follows each of the tokens (N, T)."""
        return self.output.log_probs(self.hidden(tokens, conditions))

    def loss(self, tokens: Tensor, lengths: Tensor | None = None, conditions: Conditions = None) -> tuple[Tensor, int]:
        """The summed negative log probability of the tokens (N, T) after each row's first, and their count.

        `lengths` (N,) says how many tokens of each row count, its first included; all, where it is None.
        """
        hidden = self.hidden(tokens[:, :-1], conditions)  # (N, T-1, H)
        targets = tokens[:, 1:]
        if lengths is None:
            rows, wanted = hidden.reshape(-1, hidden.shape[-1]), targets.reshape(-1)
        else:
            places = torch.arange(1, tokens.shape[1], device=tokens.device)
            counted = places < lengths.to(tokens.device)[:, None]  # (N, T-1)
            rows, wanted = hidden[counted], targets[counted]
        return -self.output.target_log_probs(rows, wanted).sum(), wanted.numel()

    # -- one token at a time --

    @torch.no_grad()
    def start(
        self, contexts: Sequence[Sequence[int]], conditions: Conditions = None
    ) -> tuple[Tensor, RecurrentState, Tensor]:
        """Read N ragged contexts: log_probs (N, V) of the next token, the state, and the scores (N,)."""
        self.check_contexts(contexts)
        return self.decoder().start(contexts, self.first_inputs(conditions, len(contexts)))

    @torch.no_grad()
    def step(self, tokens: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Read one token (R,) in each row: log_probs (R, V) of the next, and the new state."""
        return self.decoder(checked=False).step(tokens, state)

    @torch.no_grad()
    def score(
        self, continuations: Sequence[Sequence[int]], state: RecurrentState, floors: Tensor | None = None
    ) -> Tensor:
        """The log probability (R,) of each continuation after its first token, read from its row of the state.

        A row is read no further once it is below its floor (R,).
        """
        self.check_contexts(continuations)
        return self.decoder(checked=False).score(continuations, state, floors)

    @torch.no_grad()
    def score_sentences(self, sentences: Sequence[Sequence[int]], conditions: Conditions = None) -> Tensor:
        """The log probability (N,) of each sentence after its first token: the scores of `start`, and no more."""
        self.check_contexts(sentences)
        return self.decoder().read(sentences, self.first_inputs(conditions, len(sentences)))[1]

    def decoder(self, matrix: type[Matrix] = FloatMatrix, *, checked: bool = True) -> Decoder:
        """The weights, ready for decoding with products of one kind: as they are now, or unchecked as of last time.

        To look whether any have changed takes a good part of a short step, and they do not change during a search.
        """
        if checked or matrix not in self._decoders:
            version = tuple((weight.data_ptr(), _version(weight)) for weight in self.parameters())
            if self._decoded != version:
                self._decoded, self._decoders = version, {}
            if matrix not in self._decoders:
                self._decoders[matrix] = self._prepare(matrix)
        return self._decoders[matrix]

    @torch.no_grad()
    def _prepare(self, matrix: type[Matrix]) -> Decoder:
        cell, depth = self.config.cell, self.config.num_layers
        layers = tuple(prepare_layer(self.network, layer, cell, matrix) for layer in range(depth))
        added = layers[0].size - self.config.hidden_size
        if matrix is FloatMatrix:
            table = self._project_words(layers[0])
        else:  # the table is no product of a step: it stays exact, and is shared where it can be
            gates = self.decoder().table.float().view(self.vocab_size, -1, self.config.hidden_size)
            table = (F.pad(gates, (0, added)) if added else gates).flatten(1)
        condition = matrix(self.condition.weight, self.condition.bias) if self.config.condition_size else None
        return Decoder(cell, table, layers, self.output.prepare(matrix, added), condition)

    def _project_words(self, layer: PreparedLayer) -> Tensor:
        """The first layer's projection (V, G*H) of every word.

        Products of weights that are stored as integers are exact as such, and on some processors several times as fast.
        """
        words, weight = self.embedding.weight, self.network.get_parameter("weight_ih_l0")
        if words.device.type == "cpu" and has_int8_instructions() and holds_integers(words) and holds_integers(weight):
            wide = prepare_layer(self.network, 0, self.config.cell, Int8Matrix)
            gates = wide.project(words).view(len(words), -1, wide.size)
            return gates[:, :, : layer.size].flatten(1)
        return layer.project(words)

    # -- conditions --

    def normalise(self, mean: Tensor, scale: float, axes: Tensor | None = None) -> None:
        """From now on `mean` (D,) is taken from every condition, and the rest multiplied by `scale`.

        `axes` (`condition_axes`, D) tell conditions of another encoder.
        """
        with torch.no_grad():
            self.condition_mean.copy_(mean)
            self.condition_scale.fill_(scale)
            if axes is not None:
                self.condition_axes.copy_(axes)

    def first_inputs(
        self, conditions: Conditions, rows: int, project: Callable[[Tensor], Tensor] | None = None
    ) -> Tensor | None:
        """The first input (N, E) of each row; None where the network takes no condition.

        `project` stands for the condition's own product, (N, D) -> (N, E).
        """
        size = self.config.condition_size
        if conditions is not None and len(conditions) != rows:
            raise ValueError(f"`conditions` must be one per example ({rows}), but are {len(conditions)}")
        if not size:
            if conditions is not None and any(one is not None for one in conditions):
                raise ValueError("`conditions` were given, but the model takes none (its `condition_size` is 0)")
            return None
        empty = self.no_condition.expand(rows, -1)  # (N, E)
        if conditions is None:
            return empty
        given = [row for row, one in enumerate(conditions) if one is not None]
        if not given:
            return empty
        vectors = conditions if isinstance(conditions, Tensor) else _stack([conditions[row] for row in given], size)
        if vectors.dim() != 2 or vectors.shape[1] != size:
            raise ValueError(f"a condition must hold {size} numbers, but `conditions` are {tuple(vectors.shape)}")
        vectors = vectors.to(self.no_condition)
        if not self.training and (wrong := self.of_another_encoder(vectors).nonzero().flatten().tolist()):
            raise ValueError(
                f"`conditions` must be image vectors of {self.encoder}, but {len(wrong)} of {len(vectors)} cannot be "
                f"(the first is that of example {given[wrong[0]]})"
            )
        centred = (vectors - self.condition_mean) * self.condition_scale  # (given, D)
        projected: Tensor = (project or self.condition)(centred)  # (given, E)
        if len(given) == rows:
            return projected
        return empty.index_copy(0, torch.tensor(given, device=projected.device), projected)

    @property
    def encoder(self) -> str:
        return self.config.encoder or "the encoder that the model was trained with"

    def of_another_encoder(self, vectors: Tensor) -> Tensor:  # (N, D) -> (N,)
        """Whether each vector cannot be of the encoder of the training pictures, as far as the model knows it."""
        if not self.config.condition_axes:
            return torch.zeros(len(vectors), dtype=torch.bool)
        return kind.of_another_kind(self.condition_axes, self.condition_mean, vectors.to(self.condition_mean))

    def check_contexts(self, contexts: Sequence[Sequence[int]]) -> None:
        if not contexts or not all(len(context) for context in contexts):
            raise ValueError("`contexts` must hold at least one context, and each at least one token")
        low = min(min(context) for context in contexts)
        high = max(max(context) for context in contexts)
        if low < 0 or high >= self.vocab_size:
            wrong = low if low < 0 else high
            raise ValueError(f"a token must be between 0 and {self.vocab_size - 1}, but one is {wrong}")

    def train(self, mode: bool = True) -> RecurrentModel:
        self._decoders = {}
        return super().train(mode)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_decoders": {}}

    # -- files --

    def save(self, path: Path | str, *, dtype: torch.dtype | None = torch.float16) -> None:
        """Write the weights as safetensors, in `dtype` (None: as they are), without the configuration.

        With `torch.int8` every matrix is rounded to integers with a scale a row.
        """
        save_weights(Path(path), self.state_dict(), dtype)

    @classmethod
    def load(cls, path: Path | str, config: RecurrentConfig) -> RecurrentModel:
        """Read weights written by `save` into a float32 network in eval mode."""
        tensors = load_weights(Path(path))
        config.check_against(tensors, Path(path))
        with torch.device("meta"):  # no time spent on initial weights that are thrown away
            model = cls(config)
        add_normalisation(tensors, model.state_dict())
        check_tensors(tensors, model.state_dict(), Path(path))
        whole = {name: tensor.float() for name, tensor in tensors.items()}
        model.load_state_dict(whole, assign=True)
        return model.eval()


def add_normalisation(tensors: dict[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Weights of older models have no mean and no scale of the pictures: they read them as they come."""
    for name in expected.keys() - tensors.keys():
        if name.endswith("condition_mean"):
            tensors[name] = torch.zeros(expected[name].shape)
        elif name.endswith("condition_scale"):
            tensors[name] = torch.ones(expected[name].shape)


def _stack(vectors: Sequence[Any], size: int) -> Tensor:
    """The given vectors (Tensor, ndarray or list) as one (N, size) tensor."""
    for vector in vectors:
        if np.shape(vector) != (size,):
            raise ValueError(f"a condition must hold {size} numbers, but one has shape {np.shape(vector)}")
    if all(isinstance(vector, Tensor) for vector in vectors):
        return torch.stack(list(vectors))
    return torch.from_numpy(np.stack([np.asarray(vector) for vector in vectors]))


def _version(weight: Tensor) -> int:
    return 0 if weight.is_inference() else weight._version
