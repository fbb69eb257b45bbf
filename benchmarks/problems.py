"""What the benchmarks run on: an LSTM pair of the paper's size, or a trained pair with real captions."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

import torch

from bibs import Infiller
from bibs.data import Features, read_captions
from bibs.infiller import PRETRAINED
from bibs.models.recurrent import RecurrentConfig, RecurrentModel

Template = list[int | None]
START, END = 0, 1


def lstm_pair(hidden_size: int = 512, vocab_size: int = 10_000) -> tuple[RecurrentModel, RecurrentModel]:
    """Random weights: what a step costs does not depend on them."""
    pair = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        config = RecurrentConfig(vocab_size=vocab_size, hidden_size=hidden_size, embedding_size=hidden_size)
        pair.append(RecurrentModel(config).eval())
    return pair[0], pair[1]


def random_templates(count: int, width: int, vocab_size: int = 10_000, seed: int = 0) -> list[Template]:
    rng = random.Random(seed)

    def words() -> list[int]:
        return [rng.randrange(3, vocab_size) for _ in range(3)]

    return [[START, *words(), *[None] * width, *words(), END] for _ in range(count)]


def data_directory() -> Path:
    return Path(os.environ.get("BIBS_DATA", "../shared/data"))


def trained_pair() -> tuple[str, Infiller]:
    """The bundled model where there is one, else an n-gram pair of the captions without pictures."""
    if (PRETRAINED / "config.json").exists():
        return "bundled LSTM pair", Infiller.from_pretrained()
    corpus = data_directory() / "coco" / "captions_without_images.txt"
    return "trigram pair", Infiller.from_corpus(corpus.read_text(encoding="utf-8").splitlines())


def caption_templates(infiller: Infiller, count: int, removed: float = 0.5, seed: int = 0) -> list[Template]:
    """Captions of the validation split with the middle removed, as in the paper."""
    return [blank(infiller, words, removed) for _, words in draw_captions(count, seed)]


def caption_templates_with_pictures(
    infiller: Infiller, count: int, removed: float = 0.5, seed: int = 0
) -> tuple[list[Template], torch.Tensor]:
    """The same, with the vectors (N, D) of their pictures."""
    features = Features.load(*feature_files(infiller.forward.config.encoder))  # type: ignore[attr-defined]
    drawn = draw_captions(count, seed)
    vectors = torch.from_numpy(features.rows([image_id for image_id, _ in drawn]))
    return [blank(infiller, words, removed) for _, words in drawn], vectors


def feature_files(encoder: str) -> tuple[Path, Path]:
    """The vectors of COCO by the encoder that a model names, and their ids."""
    folder = data_directory() / "coco"
    if encoder == "efficientnet-lite2-rms":
        return folder / "features_efficientnet_lite2_rms.npy", folder / "features_efficientnet_lite2_rms_ids.json"
    return folder / "features_efficientnet_lite0.npy", folder / "features_ids.json"


def draw_captions(count: int, seed: int) -> list[tuple[int | str, tuple[str, ...]]]:
    captions = [
        (image.image_id, tuple(caption))
        for image in read_captions(data_directory() / "coco" / "dataset_coco.json")
        if image.split == "val"
        for caption in image.captions
    ]
    return random.Random(seed).sample(captions, count)


def blank(infiller: Infiller, words: Sequence[str], removed: float) -> Template:
    vocabulary = infiller.vocabulary
    width = int(removed * len(words) + 0.5)
    before = (len(words) - width) // 2
    ids = vocabulary.encode(words)
    return [vocabulary.start, *ids[:before], *[None] * width, *ids[before + width :], vocabulary.end]
