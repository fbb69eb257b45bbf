"""The files that a run is trained on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bibs.data import VAL_SHARE, Features
from bibs.text import Vocabulary
from bibs.training.corpus import Corpus, read_corpus
from bibs.training.pair import FeatureFiles


@dataclass(frozen=True)
class Sources:
    """The files to train on: captions with pictures, captions alone, and image vectors."""

    data: tuple[Path, ...]
    texts: tuple[Path, ...] = ()
    features: FeatureFiles | None = None
    min_count: int = 5
    allow_missing_features: bool = False
    val_share: float = VAL_SHARE  # held out where the data has no split `val`

    def __post_init__(self) -> None:
        if not 0 < self.val_share < 1:
            raise ValueError(f"`val_share` must be above 0 and below 1, but is {self.val_share}")

    def read(self, features: Features | None, vocabulary: Vocabulary | None = None) -> Corpus:
        return read_corpus(
            self.data,
            self.texts,
            features=features,
            min_count=self.min_count,
            allow_missing_features=self.allow_missing_features,
            vocabulary=vocabulary,
            val_share=self.val_share,
        )
