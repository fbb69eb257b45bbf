"""NADE as a method of the tables: as many samples as others have beams, ranked by NADE's own probability."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bibs.evaluation.methods import KNOWN, Answer, Method, PairFiller
from bibs.evaluation.tasks import Example, Words
from bibs.models.directory import VOCABULARY
from bibs.models.nade import NADE
from bibs.text import Vocabulary
from bibs.training.nade import load_nade


@dataclass(frozen=True)
class NadeFiller:
    """Samples by NADE, left to right; the pair says what their joint score is."""

    nade: NADE
    pair: PairFiller

    @classmethod
    def load(cls, directory: Path, pair: PairFiller) -> NadeFiller:
        nade = load_nade(directory)
        if Vocabulary.load(directory / VOCABULARY) != pair.vocabulary:
            raise ValueError(f"`nade` must have the vocabulary of `model`, but {directory / VOCABULARY} differs")
        return cls(nade, pair)

    def __call__(self, method: Method, examples: Sequence[Example], lengths: str) -> list[Answer]:
        if lengths != KNOWN:
            raise ValueError(f"`lengths` must be {KNOWN} for nade, which fills slots it can count, but hold {lengths}")
        filled = self.nade.fill(
            self.pair.templates(examples),
            self.pair.conditions(examples),
            num_samples=method.num_beams,
            banned=self.pair.banned,
            seed=self.pair.seed,
        )
        words: list[Words] = [
            self.pair.words_in_blank(example, fills[0].tokens) for example, fills in zip(examples, filled, strict=True)
        ]
        return self.pair.score(examples, words)

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for name, tensor in sorted(self.nade.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]
