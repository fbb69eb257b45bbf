"""NADE as a method of the tables: as many samples as others have beams, ranked as samples are, by the pair's S."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bibs.evaluation.methods import Answer, Method, PairFiller
from bibs.evaluation.tasks import Example, Words
from bibs.models.directory import VOCABULARY, load_vocabulary
from bibs.models.nade import NADE, load_nade


@dataclass(frozen=True)
class NadeFiller:
    """Samples by NADE, left to right, of every length that the pair tries; the pair says which is the best."""

    nade: NADE
    pair: PairFiller

    @classmethod
    def load(cls, directory: Path, pair: PairFiller) -> NadeFiller:
        nade = load_nade(directory)
        if load_vocabulary(directory, nade.vocab_size) != pair.vocabulary:
            raise ValueError(f"`nade` must have the vocabulary of `model`, but {directory / VOCABULARY} differs")
        return cls(nade, pair)

    def __call__(self, method: Method, examples: Sequence[Example], lengths: str) -> list[Answer]:
        tried = self.pair.lengths_to_try(method, examples, lengths)
        owners = [place for place, several in enumerate(tried) for _ in several]
        blanked = [
            replace(example, blank=("",) * length)
            for example, several in zip(examples, tried, strict=True)
            for length in several
        ]
        filled = self.nade.fill(
            self.pair.templates(blanked),
            self.pair.conditions(blanked),
            num_samples=method.num_beams,
            banned=self.pair.banned,
            seed=self.pair.seed,
        )
        drawn: list[list[Words]] = [[] for _ in examples]
        for owner, example, fills in zip(owners, blanked, filled, strict=True):
            drawn[owner] += [self.pair.words_in_blank(example, fill.tokens) for fill in fills]
        return self.pair.choose(examples, drawn, lengths)

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for name, tensor in sorted(self.nade.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]
