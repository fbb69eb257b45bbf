"""Captions ready for training: token ids in flat arrays, each caption with the row of its picture, if it has one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bibs.data import VAL_SHARE, CaptionedImage, Features, hold_out, read_captions
from bibs.text import Vocabulary

NO_PICTURE = -1


@dataclass(frozen=True)
class Captions:
    """Caption k is `tokens[offsets[k] : offsets[k + 1]]`, START to END; its picture is `image_ids[pictures[k]]`."""

    tokens: NDArray[np.int32]
    offsets: NDArray[np.int64]
    pictures: NDArray[np.int64]  # NO_PICTURE where there is none
    image_ids: tuple[int | str, ...]

    def __len__(self) -> int:
        return len(self.pictures)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    @property
    def scored_tokens(self) -> int:
        """How many tokens are predicted: all but the first of each caption."""
        return len(self.tokens) - len(self)

    def caption(self, row: int, *, reverse: bool) -> list[int]:
        tokens = self.tokens[self.offsets[row] : self.offsets[row + 1]]
        return [int(token) for token in (tokens[::-1] if reverse else tokens)]

    def image_id(self, row: int) -> int | str | None:
        picture = int(self.pictures[row])
        return None if picture == NO_PICTURE else self.image_ids[picture]

    def share_of(self, token: int) -> float:
        return float((self.tokens == token).sum() / max(1, self.scored_tokens))

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for part in (self.tokens, self.offsets, self.pictures):
            digest.update(part.tobytes())
        digest.update(repr(self.image_ids).encode())
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Corpus:
    """The captions to train on and those that tell when to stop, with the vocabulary of the former."""

    vocabulary: Vocabulary
    train: Captions
    val: Captions


def read_corpus(
    data: Sequence[Path],
    texts: Sequence[Path] = (),
    *,
    features: Features | None = None,
    min_count: int = 5,
    allow_missing_features: bool = False,
    vocabulary: Vocabulary | None = None,
    val_share: float = VAL_SHARE,
) -> Corpus:
    """Read captions with pictures from `data` and captions alone from `texts`; all of `texts` is trained on.

    A picture may stand in several of `data`, in one split. Unless it is given, the vocabulary holds the words seen at
    least `min_count` times in what is trained on. Where `data` has no split `val`, a `val_share` of it is held out.
    """
    images = hold_out((image for path in data for image in read_captions(path)), val_share)
    _check_splits(images)
    named = ", ".join(map(str, data)) or "`data`, which is missing,"
    train = [image for image in images if image.split == "train"]
    val = [image for image in images if image.split == "val"]
    if not val:
        raise ValueError(
            f"there is nothing to validate on: {named} has no split `val`, and too little to hold out `val_share` "
            f"({val_share:g}) of it"
        )
    spoken = [image for path in texts for image in read_captions(path) if image.split == "train"]
    if not train and not spoken:
        raise ValueError(f"there is nothing to train on: {named} has no split `train`, and no text was given")
    if features is not None and not allow_missing_features:
        _check_features(features, train + val)
    if vocabulary is None:
        sentences = (caption for image in train + spoken for caption in image.captions)
        vocabulary = Vocabulary.build(sentences, min_count=min_count)
    corpus = Corpus(
        vocabulary=vocabulary,
        train=encode_captions(train + [_without_picture(image) for image in spoken], vocabulary, features),
        val=encode_captions(val, vocabulary, features),
    )
    if features is not None:
        features.check(corpus.train.image_ids + corpus.val.image_ids)
    return corpus


def encode_captions(images: Sequence[CaptionedImage], vocabulary: Vocabulary, features: Features | None) -> Captions:
    """Every caption from START to END. A picture that `features` does not hold counts as none."""
    tokens: list[int] = []
    offsets, pictures = [0], []
    rows: dict[int | str, int] = {}
    for image in images:
        picture = NO_PICTURE
        if features is not None and image.image_id in features:
            picture = rows.setdefault(image.image_id, len(rows))
        for caption in image.captions:
            tokens += [vocabulary.start, *vocabulary.encode(caption), vocabulary.end]
            offsets.append(len(tokens))
            pictures.append(picture)
    return Captions(
        tokens=np.array(tokens, dtype=np.int32),
        offsets=np.array(offsets, dtype=np.int64),
        pictures=np.array(pictures, dtype=np.int64),
        image_ids=tuple(rows),
    )


def _without_picture(image: CaptionedImage) -> CaptionedImage:
    return CaptionedImage(image_id="", filename="", split=image.split, captions=image.captions)


def _check_splits(images: Sequence[CaptionedImage]) -> None:
    """Several files must not disagree: a picture to validate on is not trained on."""
    splits: dict[int | str, str] = {}
    for image in images:
        before = splits.setdefault(image.image_id, image.split) if image.image_id != "" else image.split
        if before != image.split:
            raise ValueError(
                f"`data` must have every picture in one split, but {image.image_id} is in {before} and {image.split}"
            )


def _check_features(features: Features, images: Sequence[CaptionedImage]) -> None:
    named = [image.image_id for image in images if image.image_id != ""]
    remedy = " (train on their captions without a picture with --allow-missing-features)"
    features.require(named, remedy=remedy)
