"""Transformers so small that they can be judged by reading everything again. transformers is imported when needed."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from bibs import from_next_token

START, END = 0, 1
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 32}
ENDS = {"bos_token_id": START, "eos_token_id": END}


@cache
def network(family: str, vocab_size: int, seed: int) -> Any:
    """Random weights, large enough that attention and places matter."""
    torch.manual_seed(seed)
    if family == "gpt2":
        from transformers import GPT2Config, GPT2LMHeadModel

        made = GPT2LMHeadModel(
            GPT2Config(vocab_size=vocab_size, n_positions=32, n_embd=16, n_layer=2, n_head=2, **ENDS)
        )
    else:  # rotary places, and two heads of queries for each of keys
        from transformers import LlamaConfig, LlamaForCausalLM

        shape = {"hidden_size": 16, "intermediate_size": 24, "num_key_value_heads": 2, **SIZES, **ENDS}
        made = LlamaForCausalLM(LlamaConfig(vocab_size=vocab_size, **shape))
    with torch.no_grad():
        for weight in made.parameters():
            if weight.ndim > 1:
                weight *= 12
    return made


def whole_pass(made: Any, tokens: list[int]) -> torch.Tensor:
    """log_probs (T, V) of what follows each token: no cache, no padding, no batch."""
    with torch.no_grad():
        return made(torch.tensor([tokens])).logits[0].log_softmax(1)


def reading_again(made: Any, vocab_size: int) -> Any:
    return from_next_token(lambda tokens: whole_pass(made, tokens)[-1], vocab_size)


SENTENCES = [
    "The dog runs, barks and (sometimes) sleeps.",
    "two dogs running on the beach a b x",
    "He said: the dog's bone isn't here again and over again!",
]


@cache
def make_tokenizer(kind: str, vocab_size: int = 330) -> Any:
    """A tokenizer that splits words, with one of the marks in use."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    specials = ["<s>", "</s>", "<unk>"]
    told: dict[str, Any] = {"vocab_size": vocab_size, "special_tokens": specials, "show_progress": False}
    if kind.startswith("Ġ"):
        made, told["initial_alphabet"] = Tokenizer(models.BPE()), pre_tokenizers.ByteLevel.alphabet()
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=kind == "Ġ")
        made.decoder, trainer = decoders.ByteLevel(), trainers.BpeTrainer(**told)
    elif kind == "▁":
        made, told["vocab_size"] = Tokenizer(models.BPE(unk_token="<unk>")), 60
        marks, punctuation = pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()
        made.pre_tokenizer = pre_tokenizers.Sequence([marks, punctuation])
        made.decoder, trainer = decoders.Metaspace(), trainers.BpeTrainer(**told)
    else:
        made, told["vocab_size"] = Tokenizer(models.WordPiece(unk_token="<unk>")), 60
        made.normalizer, made.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer()
        made.decoder, trainer = decoders.WordPiece(), trainers.WordPieceTrainer(**told)
    made.train_from_iterator(SENTENCES, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
