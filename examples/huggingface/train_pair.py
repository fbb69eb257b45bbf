"""Train a BPE tokenizer and a small GPT-2 pair from scratch, on captions or any text file, a sentence a line.

    python examples/huggingface/train_pair.py --data captions.txt --output pair

writes pair/tokenizer, pair/forward and pair/backward, which `Infiller.from_huggingface` loads. A run that was stopped
goes on where it was. `--kinds fim,mlm` trains what docs/comparison.md compares the pair with.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from objectives import END, MASK, NO_LOSS, OBJECTIVES, PAD, PAD_ID, SPECIALS, START, build_network
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn import functional as F
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from bibs.data import hold_out, read_captions
from bibs.lengths import LengthPrior
from bibs.models.directory import save_length_prior

SAVE_EVERY = 200
"""Steps between two checkpoints: what a kill can cost."""

BATCHES_ALIKE = 50
"""So many batches are sorted by length together, so that little is padded."""


@dataclass(frozen=True)
class Settings:
    size: int
    layers: int
    heads: int
    epochs: float
    batch_size: int
    learning_rate: float
    seed: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="captions (docs/data.md), or text as it is")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--kinds", default="forward,backward", help="among " + ", ".join(OBJECTIVES))
    parser.add_argument("--vocab-size", type=int, default=4000)
    parser.add_argument("--size", type=int, default=192)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    told = vars(parser.parse_args())
    data, output, kinds, vocab_size = (told.pop(name) for name in ("data", "output", "kinds", "vocab_size"))
    settings = Settings(**told)
    for kind in kinds.split(","):
        if kind not in OBJECTIVES:
            parser.error(f"`--kinds` must be among {', '.join(OBJECTIVES)}, but hold {kind!r}")
    train, val = read_sentences(data)
    tokenizer = load_tokenizer(train, output / "tokenizer", vocab_size)
    encoded = [[row for row in tokenizer(part).input_ids if row] for part in (train, val)]
    # How many tokens sentences have: by this, blanks of unknown length compare.
    counts = LengthPrior.count_sentences(map(len, encoded[0]))
    save_length_prior(output, LengthPrior(sentence_counts=counts))
    for kind in kinds.split(","):
        train_one(kind, tokenizer, *encoded, output / kind, settings)


def read_sentences(paths: Sequence[Path]) -> tuple[list[str], list[str]]:
    """The sentences to train and to validate on. Captions are words; a text file keeps its capitals and marks."""
    train, val = [], []
    for path in paths:
        if path.suffix == ".txt":
            lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
            lines = list(filter(None, lines))
            val += lines[::20]
            train += [line for place, line in enumerate(lines) if place % 20]
            continue
        for image in hold_out(read_captions(path), 0.05):
            if image.split in ("train", "val"):
                (train if image.split == "train" else val).extend(" ".join(words) for words in image.captions)
    return train, val


def load_tokenizer(sentences: Sequence[str], directory: Path, vocab_size: int) -> PreTrainedTokenizerFast:
    """Byte-level BPE. A space stands before the first word too, so that a word has the same tokens everywhere."""
    if directory.exists():
        return AutoTokenizer.from_pretrained(directory)
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        sentences,
        trainers.BpeTrainer(
            vocab_size=vocab_size, special_tokens=list(SPECIALS), initial_alphabet=alphabet, show_progress=False
        ),
    )
    names = {"bos_token": START, "eos_token": END, "pad_token": PAD, "mask_token": MASK}
    others = [token for token in SPECIALS if token not in names.values()]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, additional_special_tokens=others, **names)
    tokenizer.save_pretrained(directory)
    return tokenizer


def train_one(
    kind: str,
    tokenizer: PreTrainedTokenizerFast,
    train: Sequence[list[int]],
    val: Sequence[list[int]],
    directory: Path,
    settings: Settings,
) -> None:
    """Train one network, or go on with it, and save it as transformers does."""
    if (directory / "config.json").exists():
        print(f"{kind}: done before")
        return
    directory.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(settings.seed)
    network = build_network(kind, tokenizer, size=settings.size, layers=settings.layers, heads=settings.heads)
    optimizer = torch.optim.AdamW(network.parameters(), settings.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    steps = max(1, round(settings.epochs * len(train) / settings.batch_size))
    step, seconds, checkpoint = 0, 0.0, directory / "checkpoint.pt"
    if checkpoint.exists():
        held = torch.load(checkpoint, weights_only=True)
        network.load_state_dict(held["network"])
        optimizer.load_state_dict(held["optimizer"])
        step, seconds = held["step"], held["seconds"]
    began = time.process_time() - seconds
    network.train()
    for place, rows in enumerate(batches(train, steps, settings)):
        if place < step:
            continue
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * _share(place, steps)
        loss = loss_of(network, kind, rows, random.Random(f"{settings.seed} {place}"))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        if (place + 1) % SAVE_EVERY == 0:
            seconds = time.process_time() - began
            held = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**held, "step": place + 1, "seconds": seconds}, checkpoint.with_suffix(".partial"))
            os.replace(checkpoint.with_suffix(".partial"), checkpoint)
            print(f"{kind}: step {place + 1} of {steps}, loss {loss.item():.3f}, {seconds:.0f} s", flush=True)
    finish(kind, network, val, directory, steps=steps, seconds=time.process_time() - began)
    checkpoint.unlink(missing_ok=True)


def batches(rows: Sequence[list[int]], steps: int, settings: Settings) -> Iterator[list[list[int]]]:
    """The same batches in the same order, however often a run is stopped."""
    given = 0
    while True:
        rng = random.Random(f"{settings.seed} order {given}")
        order = rng.sample(range(len(rows)), len(rows))
        pool = settings.batch_size * BATCHES_ALIKE
        for begin in range(0, len(order), pool):
            alike = sorted(order[begin : begin + pool], key=lambda place: len(rows[place]))
            cut = [alike[at : at + settings.batch_size] for at in range(0, len(alike), settings.batch_size)]
            for batch in rng.sample(cut, len(cut)):
                if given == steps:
                    return
                given += 1
                yield [rows[place] for place in batch]


def loss_of(network: Any, kind: str, rows: Sequence[list[int]], rng: random.Random, reduction: str = "mean") -> Any:
    asked = [OBJECTIVES[kind](row, rng) for row in rows]
    width = max(len(read) for read, _ in asked)
    read = torch.tensor([read + [PAD_ID] * (width - len(read)) for read, _ in asked])  # (N, T)
    wanted = torch.tensor([said + [NO_LOSS] * (width - len(said)) for _, said in asked])
    # What stands before padding never sees it, but where a model reads both ways.
    mask = (read != PAD_ID).long() if kind == "mlm" else None
    logits = network(input_ids=read, attention_mask=mask).logits  # (N, T, V)
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=NO_LOSS, reduction=reduction)


def _share(place: int, steps: int, warm: int = 200) -> float:
    """Of the learning rate: up to all of it, then down along a cosine."""
    return min((place + 1) / min(warm, steps), 0.5 + 0.5 * math.cos(math.pi * place / steps))


@torch.inference_mode()
def finish(kind: str, network: Any, val: Sequence[list[int]], directory: Path, *, steps: int, seconds: float) -> None:
    """Save the network, and what a reader wants to know of it."""
    network.eval()
    some = val[:2000]
    losses = [loss_of(network, kind, some[at : at + 64], random.Random(at), "sum") for at in range(0, len(some), 64)]
    told = {
        "parameters": sum(weight.numel() for weight in network.parameters()),
        "steps": steps,
        "processor_seconds": round(seconds),
        "val_loss_per_sentence": round(float(sum(losses)) / max(1, len(some)), 3),
    }
    print(f"{kind}: {told}", flush=True)
    network.save_pretrained(directory)
    (directory / "training.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
