"""Fill gaps between letters by Bidirectional Beam Search, and say how far each fill can be trusted.

With f_t and g_t what the two models say of place t, given everything on their side of it, the fill included,

    q_t(y) = sqrt(f_t(y) g_t(y)) / sum over y' of sqrt(f_t(y') g_t(y'))

Both models learnt from the same genomes, so their product would count the same evidence twice. The fill claims that
each of its letters is right with probability q_t, all of them with the product of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bibs.dna.letters import LetterGap, to_letters, to_tokens
from bibs.lengths import LengthPrior, LengthWeights
from bibs.methods import fill_templates
from bibs.models.kmers import OTHER, Complemented, KmerModel
from bibs.search import Fill, Gap, Template

FLANK = 100
"""Letters on either side in which support is looked for."""

READ = 60
"""Of these, the letters that the search reads: models look at less."""

SLOTS_AT_ONCE = 16_000
"""Places in the gaps that are searched in one call, so that memory is bounded and progress is seen."""

NO_BONUS = LengthWeights(0.0, 0.0)
PLAIN = LengthPrior(sum=NO_BONUS, max=NO_BONUS, forward=NO_BONUS, backward=NO_BONUS, join=NO_BONUS)
"""A longer fill is less probable, and that is all there is to say."""


@dataclass(frozen=True)
class DnaSettings:
    """How gaps are searched, and which are left as they are."""

    method: str = "bibs"
    num_beams: int = 5
    num_rounds: int = 4
    length_range: tuple[float, float] = (1.0, 1.0)  # how long a fill may be, in lengths of its gap
    num_lengths: int = 5  # how many of these lengths are searched
    max_length: int = 1_000  # the longest gap that is filled
    min_support: int = 18  # so many letters in a row, on one side at least, must stand in the references
    min_identity: float = 0.5  # such a share of a fill should be right

    def __post_init__(self) -> None:
        low, high = self.length_range
        if not 0 < low <= 1 <= high < math.inf:
            raise ValueError(f"`length_range` must be two numbers as 0.8,1.2 around 1, but is {low:g},{high:g}")
        for name, least in (("max_length", 1), ("min_support", 0), ("num_lengths", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"`{name}` must be at least {least}, but is {getattr(self, name)}")
        if not 0 <= self.min_identity <= 1:
            raise ValueError(f"`min_identity` must be between 0 and 1, but is {self.min_identity}")


@dataclass(frozen=True)
class FilledGap:
    """What became of a gap. `letters` is empty, and `reason` is not, where it was left as it is."""

    gap: LetterGap
    support: tuple[int, int]  # letters in a row, in each flank, that stand in the references
    letters: str = ""
    score: float = -math.inf  # log probability of the letters, under both models
    margin: float = math.inf  # by how much S is above that of the runner-up
    right: float = 0.0  # the probability that all letters are right
    identity: float = 0.0  # the share of letters that should be right
    reason: str = ""


class GapFiller:
    """Fills gaps with a pair of models of related genomes."""

    def __init__(
        self, forward: KmerModel, backward: KmerModel | Complemented, settings: DnaSettings | None = None
    ) -> None:
        self.forward = forward
        self.backward = backward
        self.settings = settings or DnaSettings()

    def __call__(self, gaps: Sequence[LetterGap]) -> list[FilledGap]:
        """What became of each gap, in their order."""
        results: dict[int, FilledGap] = {}
        for chunk in self._chunks(gaps):
            results |= zip(chunk, self._fill([gaps[index] for index in chunk]), strict=True)
        return [results[index] for index in range(len(gaps))]

    def _chunks(self, gaps: Sequence[LetterGap]) -> Iterator[list[int]]:
        """The places in `gaps` of gaps of like length, not too many at once."""
        chunk: list[int] = []
        slots = 0
        for index in sorted(range(len(gaps)), key=lambda index: gaps[index].length):
            slots += min(gaps[index].length, self.settings.max_length)
            if chunk and slots > SLOTS_AT_ONCE:
                yield chunk
                chunk, slots = [], gaps[index].length
            chunk.append(index)
        if chunk:
            yield chunk

    @torch.inference_mode()
    def _fill(self, gaps: Sequence[LetterGap]) -> list[FilledGap]:
        lefts = [[OTHER, *to_tokens(gap.left).tolist()] for gap in gaps]
        rights = [[OTHER, *to_tokens(gap.right[::-1]).tolist()] for gap in gaps]  # as the backward model reads them
        support = zip(self.forward.longest_match(lefts), self.backward.longest_match(rights), strict=True)
        results = [
            FilledGap(gap, both, reason=self._reason(gap, both)) for gap, both in zip(gaps, support, strict=True)
        ]
        asked = [index for index, result in enumerate(results) if not result.reason]
        if not asked:
            return results
        lefts, rights = ([side[index][-READ:] for index in asked] for side in (lefts, rights))
        found = self._search([gaps[index] for index in asked], lefts, rights)
        fills = [
            list(fills[0].tokens[len(left) : len(fills[0].tokens) - len(right)])
            for fills, left, right in zip(found, lefts, rights, strict=True)
        ]
        judged = zip(*self._judge(lefts, fills, rights), strict=True)
        for index, fill, best, (score, right, identity) in zip(asked, fills, found, judged, strict=True):
            old, margin = results[index], best[0].score - best[1].score if len(best) > 1 else math.inf
            kept = identity >= self.settings.min_identity
            reason = "" if kept else f"of the best fill only {identity:.0%} should be right"
            letters = to_letters(fill) if kept else ""
            results[index] = FilledGap(old.gap, old.support, letters, score, margin, right, identity, reason)
        return results

    def _reason(self, gap: LetterGap, support: tuple[int, int]) -> str:
        """Why a gap is not searched, if it is not."""
        longest = self.settings.max_length
        if gap.length > longest:
            return f"longer than {longest:,} letters"
        if max(support) < min(self.settings.min_support, self.forward.order - 1):
            return "neither side of it stands in the references"
        return ""

    def _search(
        self, gaps: Sequence[LetterGap], lefts: Sequence[list[int]], rights: Sequence[list[int]]
    ) -> list[list[Fill]]:
        templates = [
            [*left, *self._blank(gap.length), *reversed(right)]
            for left, gap, right in zip(lefts, gaps, rights, strict=True)
        ]
        settings: dict[str, Any] = {
            name: getattr(self.settings, name) for name in ("method", "num_beams", "num_rounds", "num_lengths")
        }
        longest = max(2, math.ceil(self.settings.max_length * self.settings.length_range[1]))
        options: dict[str, Any] = {"length_prior": PLAIN, "max_length": longest, "num_return_sequences": 2}
        return fill_templates(self.forward, self.backward, templates, banned=[OTHER], **settings, **options)

    def _blank(self, length: int) -> Template:
        low, high = (max(1, round(length * share)) for share in self.settings.length_range)
        return [None] * low if low == high else [Gap(low, high)]

    def _judge(
        self, lefts: Sequence[list[int]], fills: Sequence[list[int]], rights: Sequence[list[int]]
    ) -> tuple[list[float], list[float], list[float]]:
        """The score of each fill, the probability that all of it is right, and the share that should be."""
        lengths = torch.tensor(list(map(len, fills)))
        width = int(lengths.max())
        inside = torch.arange(width) < lengths[:, None]  # (N, W)
        tokens = torch.tensor([fill + [OTHER] * (width - len(fill)) for fill in fills])  # (N, W)
        said = _read(self.forward, lefts, tokens)  # (N, W, V)
        turned = torch.tensor([fill[::-1] + [OTHER] * (width - len(fill)) for fill in fills])
        from_right = _read(self.backward, rights, turned)
        places = (lengths[:, None] - 1 - torch.arange(width)).clamp(min=0)  # where place t is read from the right
        both = said + from_right.gather(1, places[..., None].expand_as(from_right))
        claims = (both / 2)[..., 1:].log_softmax(2)  # (N, W, 4): log q_t
        chosen = claims.gather(2, (tokens - 1).clamp(min=0)[..., None])[..., 0].masked_fill(~inside, 0.0)
        scores = both.gather(2, tokens[..., None])[..., 0].masked_fill(~inside, 0.0).sum(1)
        identities = chosen.exp().masked_fill(~inside, 0.0).sum(1) / lengths
        return scores.tolist(), chosen.sum(1).exp().tolist(), identities.tolist()


def _read(model: KmerModel | Complemented, contexts: Sequence[Sequence[int]], tokens: Tensor) -> Tensor:
    """What the model says (N, W, V) before it reads each of the tokens (N, W)."""
    log_probs, state, _ = model.start(contexts)
    said = [log_probs]
    for letters in tokens.t()[:-1]:
        log_probs, state = model.step(letters, state)
        said.append(log_probs)
    return torch.stack(said, 1)
