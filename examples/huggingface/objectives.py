"""What each model is trained to say of a sentence: which tokens it reads, and which it must then name.

forward    the next token, from left to right          backward   the next token, from right to left
fim        prefix, suffix, middle: the next token      mlm        tokens that were hidden behind a mask

The first two never see a blank. The last two are trained for nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

START, END, PAD, MASK, PREFIX, SUFFIX, MIDDLE = "<s>", "</s>", "<pad>", "<mask>", "<prefix>", "<suffix>", "<middle>"
SPECIALS = (START, END, PAD, MASK, PREFIX, SUFFIX, MIDDLE)
START_ID, END_ID, PAD_ID, MASK_ID, PREFIX_ID, SUFFIX_ID, MIDDLE_ID = range(len(SPECIALS))

NO_LOSS = -100
"""Marks a place where the model is asked for nothing."""

Asked = tuple[list[int], list[int]]
"""What is read, and what is to be said at each place."""


def forward(sentence: Sequence[int], rng: random.Random) -> Asked:
    row = [START_ID, *sentence, END_ID]
    return row[:-1], row[1:]


def backward(sentence: Sequence[int], rng: random.Random) -> Asked:
    row = [END_ID, *reversed(sentence), START_ID]
    return row[:-1], row[1:]


def fim(sentence: Sequence[int], rng: random.Random) -> Asked:
    begin, end = sorted(rng.randint(0, len(sentence)) for _ in range(2))
    row = [*blanked(sentence[:begin], sentence[end:]), *sentence[begin:end], END_ID]
    return row[:-1], row[1:]


def blanked(prefix: Sequence[int], suffix: Sequence[int]) -> list[int]:
    """What a fill-in-the-middle model reads before it fills."""
    return [PREFIX_ID, *prefix, SUFFIX_ID, *suffix, MIDDLE_ID]


def mlm(sentence: Sequence[int], rng: random.Random) -> Asked:
    """Hide 10 to 80 % of the tokens: one span, or here and there."""
    row = [START_ID, *sentence, END_ID]
    count = max(1, round(rng.uniform(0.1, 0.8) * len(sentence)))
    if rng.random() < 0.5:
        begin = rng.randint(1, len(sentence) - count + 1)
        hidden = set(range(begin, begin + count))
    else:
        hidden = set(rng.sample(range(1, len(sentence) + 1), count))
    read = [MASK_ID if place in hidden else token for place, token in enumerate(row)]
    return read, [token if place in hidden else NO_LOSS for place, token in enumerate(row)]


OBJECTIVES: dict[str, Callable[[Sequence[int], random.Random], Asked]] = {
    "forward": forward,
    "backward": backward,
    "fim": fim,
    "mlm": mlm,
}


def build_network(kind: str, tokenizer: PreTrainedTokenizerFast, *, size: int, layers: int, heads: int) -> Any:
    """A network with random weights: GPT-2, or BERT where tokens on both sides are read."""
    ids = {"bos_token_id": START_ID, "eos_token_id": END_ID, "pad_token_id": PAD_ID}
    if kind == "mlm":
        shape = {"hidden_size": size, "num_hidden_layers": layers, "num_attention_heads": heads}
        no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        config = BertConfig(
            vocab_size=len(tokenizer),
            intermediate_size=4 * size,
            max_position_embeddings=128,
            **shape,
            **no_dropout,
            **ids,
        )
        return BertForMaskedLM(config)
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    shape = {"n_embd": size, "n_layer": layers, "n_head": heads, "n_positions": 128}
    return GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **shape, **no_dropout, **ids))
