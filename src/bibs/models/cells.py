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
from torch import Tensor, nn

CellState: TypeAlias = tuple[Tensor, ...]
"""The state of one layer: (h, c) for LSTM, (h,) for RNN and GRU, each (R, H)."""

GATES = {"rnn": 1, "lstm": 4, "gru": 3}
NETWORKS: dict[str, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


@dataclass(frozen=True)
class PreparedLayer:
    """The weights of one layer in the layout that a step multiplies fastest: transposed and contiguous."""

    input_weight: Tensor  # (I, G*H)
    input_bias: Tensor  # (G*H,): both biases added, but for the GRU's candidate
    state_weight: Tensor  # (H, G*H)
    state_bias: Tensor  # (G*H,): zero, but for the GRU's candidate

    def project(self, inputs: Tensor) -> Tensor:  # (R, I) -> (R, G*H)
        return torch.mm(inputs, self.input_weight).add_(self.input_bias)


def prepare_layer(network: nn.RNNBase, layer: int, cell: str) -> PreparedLayer:
    input_weight, state_weight, input_bias, state_bias = (
        getattr(network, f"{name}_l{layer}").detach() for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    early = state_bias.clone()  # the part of the state's bias that may be added before the gates
    if cell == "gru":
        early[2 * network.hidden_size :] = 0  # the candidate's is multiplied by the reset gate
    size = network.hidden_size
    doubled = torch.ones_like(state_bias)
    if cell == "lstm":
        doubled[2 * size : 3 * size] = 2
    return PreparedLayer(
        input_weight=(input_weight.t() * doubled).contiguous(),
        input_bias=(input_bias + early) * doubled,
        state_weight=(state_weight.t() * doubled).contiguous(),
        state_bias=state_bias - early,
    )


def _rnn(gates: Tensor, state: CellState, layer: PreparedLayer) -> CellState:
    return (gates.addmm_(state[0], layer.state_weight).tanh_(),)


def _lstm(gates: Tensor, state: CellState, layer: PreparedLayer) -> CellState:
    hidden, memory = state
    enter, forget, candidate, leave = gates.addmm_(hidden, layer.state_weight).sigmoid_().chunk(4, dim=1)  # (R, H) each
    memory = (memory * forget).addcmul_(enter, candidate, value=2).sub_(enter)  # + enter * (2 candidate - 1)
    return (2 * memory).sigmoid_().mul_(2).sub_(1).mul_(leave), memory


def _gru(gates: Tensor, state: CellState, layer: PreparedLayer) -> CellState:
    (hidden,) = state
    size = hidden.shape[1]
    from_state = torch.mm(hidden, layer.state_weight).add_(layer.state_bias)  # (R, 3H)
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
