"""The bidirectional network of the paper, which adds the scores of two recurrent networks before one softmax:

    P(y_t | y_<t, y_>t, x) = softmax(W_f h_f,t + W_b h_b,t + b)

`h_f,t` has read START .. y_{t-1}, `h_b,t` has read END .. y_{t+1}. Since softmax(a + b) is the renormalised product
of softmax(a) and softmax(b), any pair of one-directional models *is* such a network (`from_pair`), and any such
network is a pair (`split`), with one bias to share: each half gets half of it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bibs.models.output import DenseOutput
from bibs.models.recurrent import RecurrentModel
from bibs.search import Conditions


class BiRNN(nn.Module):
    """A forward and a backward network, their output matrices, and one bias."""

    def __init__(self, forward: RecurrentModel, backward: RecurrentModel, bias: Tensor) -> None:
        """The biases of the two models' output layers are dropped: `bias` (V,) stands for both."""
        super().__init__()
        _check_pair(forward, backward)
        self.vocab_size = forward.vocab_size
        self.left = _without_bias(forward, "forward")
        self.right = _without_bias(backward, "backward")
        self.bias = nn.Parameter(bias.detach().clone())  # (V,)

    @classmethod
    def from_pair(cls, forward: RecurrentModel, backward: RecurrentModel) -> BiRNN:
        """The network whose `P(y_t | rest)` is the renormalised product of the two models'. Weights are copied."""
        _check_pair(forward, backward)
        return cls(forward, backward, _dense(forward, "forward").bias + _dense(backward, "backward").bias)

    def split(self) -> tuple[RecurrentModel, RecurrentModel]:
        """A forward and a backward model of their own, each with half the bias."""
        forward, backward = copy.deepcopy(self.left), copy.deepcopy(self.right)
        for model in (forward, backward):
            model.output.register_parameter("bias", nn.Parameter(self.bias.detach() / 2))
        return forward, backward

    def scores(self, left: Tensor, right: Tensor) -> Tensor:  # (..., H), (..., H) -> (..., V)
        """What the softmax is taken of."""
        result: Tensor = self.left.output(left) + self.right.output(right) + self.bias
        return result

    def forward(self, tokens: Tensor, conditions: Conditions = None) -> Tensor:
        """`log P(y_t | rest)`, (N, T-2, V), of every slot of the tokens (N, T) but the first and last."""
        left, right = left_states(self.left, tokens, conditions), right_states(self.right, tokens, None, conditions)
        return F.log_softmax(self.scores(left, right), dim=-1)

    @torch.no_grad()
    def log_probs(self, sequences: Sequence[Sequence[int]] | Tensor, conditions: Conditions = None) -> Tensor:
        """`log P(y_t | rest)`, (N, T-2, V), of every slot between the first (START) and the last (END).

        All sequences must have one length T; what stands in a slot does not change its own probabilities.
        """
        lengths = {len(sequence) for sequence in sequences}
        if len(lengths) != 1:
            raise ValueError(f"`sequences` must have one length, but have {sorted(lengths)}")
        if lengths.pop() < 3:
            raise ValueError("`sequences` must have a slot between their first and last token")
        tokens = torch.as_tensor(sequences, device=self.bias.device)
        result: Tensor = self(tokens, conditions)
        return result


def left_states(left: RecurrentModel, tokens: Tensor, conditions: Conditions = None) -> Tensor:
    """What a forward network knows of every slot of the tokens (N, T) but the first and last: (N, T-2, H).

    Of slot t it has read up to t-1.
    """
    return left.hidden(tokens[:, :-2], conditions)


def right_states(
    right: RecurrentModel, tokens: Tensor, lengths: Tensor | None = None, conditions: Conditions = None
) -> Tensor:
    """The same for a backward network, which has read from the end of each row down to t+1.

    A row may end before T: `lengths` (N,) says where, and later slots mean nothing.
    """
    places = torch.arange(tokens.shape[1], device=tokens.device)
    ends = torch.full((len(tokens),), len(places), device=tokens.device) if lengths is None else lengths
    mirror = (ends.to(tokens.device)[:, None] - 1 - places).clamp(min=0)  # (N, T)
    states = right.hidden(tokens.gather(1, mirror)[:, :-2], conditions)  # (N, T-2, H), from the end
    back = mirror[:, 2:, None].expand(-1, -1, states.shape[2])
    return states.gather(1, back)


def _check_pair(forward: RecurrentModel, backward: RecurrentModel) -> None:
    if forward.vocab_size != backward.vocab_size:
        raise ValueError(
            f"both models must have one `vocab_size`, but have {forward.vocab_size} and {backward.vocab_size}"
        )


def _dense(model: RecurrentModel, name: str) -> DenseOutput:
    if not isinstance(model.output, DenseOutput):
        raise ValueError(f"a BiRNN adds dense outputs, but the `{name}` model has an adaptive softmax (`cutoffs`)")
    return model.output


def _without_bias(model: RecurrentModel, name: str) -> RecurrentModel:
    _dense(model, name)
    result = copy.deepcopy(model)
    result.output.register_parameter("bias", None)
    return result
