"""A whole sequence through an LSTM layer, for training: the same numbers as `nn.LSTM`, with less work.

`nn.LSTM` projects the input of every place of every sentence. The words of a batch repeat, so it is enough to
project each distinct input once (`table`) and to say which row is read where (`index`):

    gates_t = table[index_t] + W_hh h_{t-1}
    i, f, o = sigmoid(.),  g = tanh(.),  c_t = f c_{t-1} + i g,  h_t = o tanh(c_t)

The gradient of the table is the sum over the places where a row was read. With a word's mask of dropout drawn
once a batch, this holds in training too. In a batch of 128 captions about a third of the inputs are distinct,
and the matrix products of the input shrink by as much.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class _LSTMSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor, state_weight: Tensor) -> Tensor:
        places, rows = index.shape
        size = state_weight.shape[1]
        kind = _kind_of_products(table)
        weight = state_weight.to(kind)
        gates = table.index_select(0, index.reshape(-1)).view(places, rows, 4 * size)
        hidden = table.new_zeros(places + 1, rows, size)  # with the empty state first
        memory = torch.zeros_like(hidden)
        squashed = table.new_empty(places, rows, size)  # tanh(c)
        transposed = weight.t()
        for place in range(places):
            now = gates[place]  # (N, 4H): i, f, g, o
            if place and kind is table.dtype:
                now.addmm_(hidden[place], transposed)
            elif place:
                now += hidden[place].to(kind) @ transposed
            now[:, : 2 * size].sigmoid_()
            enter, forget, candidate, leave = now.chunk(4, dim=1)
            candidate.tanh_()
            leave.sigmoid_()
            torch.mul(memory[place], forget, out=memory[place + 1])
            memory[place + 1].addcmul_(enter, candidate)
            torch.tanh(memory[place + 1], out=squashed[place])
            torch.mul(squashed[place], leave, out=hidden[place + 1])
        ctx.save_for_backward(gates, hidden, memory, squashed, index, weight)
        ctx.table_rows = len(table)
        return hidden[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_hidden: Tensor) -> tuple[Tensor, None, Tensor]:
        gates, hidden, memory, squashed, index, weight = ctx.saved_tensors
        places, _, size = squashed.shape
        grad_gates = torch.empty_like(gates)
        back = torch.zeros_like(squashed[0])  # from h_t to the places before
        grad_memory = torch.zeros_like(back)
        for place in reversed(range(places)):
            enter, forget, candidate, leave = gates[place].chunk(4, dim=1)
            d_enter, d_forget, d_candidate, d_leave = grad_gates[place].chunk(4, dim=1)
            back = back + grad_hidden[place]
            torch.mul(back, squashed[place], out=d_leave)
            grad_memory.addcmul_(back.mul_(leave), 1 - squashed[place].square())
            torch.mul(grad_memory, candidate, out=d_enter)
            torch.mul(grad_memory, memory[place], out=d_forget)
            torch.mul(grad_memory, enter, out=d_candidate)
            d_candidate.mul_(1 - candidate.square())
            for gradient, gate in ((d_enter, enter), (d_forget, forget), (d_leave, leave)):
                gradient.mul_(gate - gate.square())
            grad_memory.mul_(forget)
            back = torch.mm(grad_gates[place].to(weight.dtype), weight).to(gates.dtype)
        flat = grad_gates.view(-1, 4 * size)  # (T*N, 4H)
        before = hidden[:places].reshape(-1, size)
        grad_weight = torch.mm(flat.to(weight.dtype).t(), before.to(weight.dtype)).to(gates.dtype)
        grad_table = flat.new_zeros(ctx.table_rows, 4 * size).index_add_(0, index.reshape(-1), flat)
        return grad_table, None, grad_weight


def _kind_of_products(table: Tensor) -> torch.dtype:
    """Autocast decides, as for other layers."""
    device = table.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else table.dtype


def lstm_sequence(table: Tensor, index: Tensor, state_weight: Tensor) -> Tensor:
    """The hidden states (T, N, H) over projected inputs `table` (U, 4H), read in the order of `index` (T, N)."""
    return cast(Tensor, _LSTMSequence.apply(table, index, state_weight))  # type: ignore[no-untyped-call]
