"""One time step of an RNN, LSTM or GRU cell, written for speed at decoding.

With `x_t` the input and `h` the state, every cell needs `W_ih x_t + b_ih` and `W_hh h + b_hh`. At decoding
`x_t` is one of V embeddings, so the first product is a table of V rows that is computed once; what is left of
a step is one matrix product and the gates, done in place. Gates stand in the order of `torch.nn`.

On a CPU tanh takes several times as long as the sigmoid, so the LSTM's is tanh(x) = 2 sigmoid(2x) - 1, and the weights
of the candidate are doubled beforehand: one sigmoid then does for all gates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bibs.models.products import Matrix

CellState: TypeAlias = tuple[Tensor, ...]
"""The state of one layer: (h, c) for LSTM, (h,) for RNN and GRU, each (R, H)."""

GATES = {"rnn": 1, "lstm": 4, "gru": 3}
NETWORKS: dict[str, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


@dataclass(frozen=True)
class PreparedLayer:
    """The weights of one layer. H is the hidden size, or a little more: what is added stays 0 in every state."""

    project: Matrix  # (R, I) -> (R, G*H): both biases are added here, but for the GRU's candidate
    state: Matrix  # (R, H) -> (R, G*H): has a bias for the GRU's candidate alone
    size: int  # H


def prepare_layer(network: nn.RNNBase, layer: int, cell: str, matrix: type[Matrix]) -> PreparedLayer:
    input_weight, state_weight, input_bias, state_bias = (
        getattr(network, f"{name}_l{layer}").detach() for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    size = network.hidden_size
    early = state_bias.clone()  # the part of the state's bias that may be added before the gates
    if cell == "gru":
        early[2 * size :] = 0  # the candidate's is multiplied by the reset gate
    doubled = torch.ones_like(state_bias)
    if cell == "lstm":
        doubled[2 * size : 3 * size] = 2
    added = -size % matrix.unit

    def pad(weight: Tensor) -> Tensor:  # (G*H, ...): every gate to its full size
        gates = weight.view(GATES[cell], size, -1)
        return F.pad(gates, (0, 0, 0, added)).flatten(0, 1)

    def widen(weight: Tensor) -> Tensor:  # (G*H, H)
        return F.pad(pad(weight), (0, added))

    inputs = pad(input_weight * doubled[:, None]) if layer == 0 else widen(input_weight * doubled[:, None])
    return PreparedLayer(
        project=matrix(inputs, pad((input_bias + early) * doubled)[:, 0]),
        state=matrix(widen(state_weight * doubled[:, None]), pad(state_bias - early)[:, 0] if cell == "gru" else None),
        size=size + added,
    )


def _rnn(gates: Tensor, state: CellState, layer: PreparedLayer) -> CellState:
    return (layer.state.add_to(gates, state[0]).tanh_(),)


def _lstm(gates: Tensor, state: CellState, layer: PreparedLayer) -> CellState:
    hidden, memory = state
    enter, forget, candidate, leave = layer.state.add_to(gates, hidden).sigmoid_().chunk(4, dim=1)  # (R, H) each
    memory = (memory * forget).addcmul_(enter, candidate, value=2).sub_(enter)  # + enter * (2 candidate - 1)
    return (2 * memory).sigmoid_().mul_(2).sub_(1).mul_(leave), memory


def _gru(gates: Tensor, state: CellState, layer: PreparedLayer) -> CellState:
    (hidden,) = state
    size = layer.size
    from_state = layer.state(hidden)  # (R, 3H)
    both = gates[:, : 2 * size].add_(from_state[:, : 2 * size]).sigmoid_()
    reset, update = both.chunk(2, dim=1)
    candidate = gates[:, 2 * size :].addcmul_(reset, from_state[:, 2 * size :]).tanh_()
    return (torch.lerp(candidate, hidden, update),)


STEPS: dict[str, Callable[[Tensor, CellState, PreparedLayer], CellState]] = {
    "rnn": _rnn,
    "lstm": _lstm,
    "gru": _gru,
}
"""cell -> function(gates, state, layer): `gates` (R, G*H) is the projected input, and is overwritten."""
