"""A dozen made-up captioned pictures and an untrained model pair: enough for a whole experiment in a second."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from bibs.models.directory import save_pair
from bibs.models.recurrent import RecurrentConfig, RecurrentModel
from bibs.text import Vocabulary

WORDS = ["a", "the", "man", "dog", "cat", "rides", "sits", "on", "in", "wave", "mat", "red", "old", "house", "street"]
SIZE = 6


def make_home(home: Path) -> Path:
    """A data file, features and a model directory."""
    generator = np.random.default_rng(0)
    images = []
    for number in range(1, 13):
        sentences = [
            {"raw": " ".join(generator.choice(WORDS, size=length))} for length in generator.integers(8, 12, size=3)
        ]
        split = "test" if number <= 9 else "train"
        images.append({"cocoid": number, "filename": f"{number:012d}.jpg", "split": split, "sentences": sentences})
    images[0]["sentences"] = [{"raw": "a cat"}]
    (home / "data.json").write_text(json.dumps({"images": images}))
    np.save(home / "features.npy", generator.normal(size=(12, SIZE)).astype(np.float32))
    (home / "ids.json").write_text(json.dumps(list(range(1, 13))))
    vocabulary = Vocabulary(WORDS)
    torch.manual_seed(0)
    config = RecurrentConfig(len(vocabulary), hidden_size=8, embedding_size=8, condition_size=SIZE)
    save_pair(home / "model", RecurrentModel(config), RecurrentModel(config), vocabulary)
    return home
