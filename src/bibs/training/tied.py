"""Tied words (Press and Wolf, 2017; Inan et al., 2017): a word is read by the vector by which it is predicted.

    x_t = g w(y_t)        w(y) the output's weights of word y, g a learnt number

With an adaptive softmax, w(y) of a rare word is its narrow vector made wide again by its cluster's projection (Baevski
and Auli, 2019). Half of the weights are then learnt from what precedes a word and from what follows it, which few
captions need most.

Only training knows of it. What is kept is an ordinary network, whose word vectors are the numbers x_t.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bibs.models.recurrent import RecurrentConfig, RecurrentModel

GAIN = 8.0
"""Where g begins: output weights are small numbers, and what an LSTM reads should be of size 1 or a little less."""


class TiedModel(RecurrentModel):
    """A recurrent network without word vectors of its own."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config)
        del self.embedding
        self.gain = nn.Parameter(torch.tensor(GAIN))

    def read_words(self, words: Tensor) -> Tensor:  # (U,) -> (U, E)
        return self.gain * self.output.word_vectors(words)

    @torch.no_grad()
    def untied(self) -> RecurrentModel:
        """An ordinary network that says the same."""
        model = RecurrentModel(self.config)
        weights = {name: weight for name, weight in self.state_dict().items() if name != "gain"}
        words = torch.arange(self.vocab_size, device=self.gain.device)
        model.load_state_dict({**weights, "embedding.weight": self.read_words(words)})
        return model.train(self.training)
