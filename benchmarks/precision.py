"""Passes in int8 against passes in float32: are the answers the same, and is the margin wide enough?

1,000 captions of the validation split with their pictures, B = 5, both ends. dS is S in int8 less S in float32, over
all. Of the fills that the int8 passes found, the best by float32 is lost if it is further behind the best by int8
than the margin; `kept` is the number of fills within the margin, which are scored in float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from problems import caption_templates_with_pictures, trained_pair

from bibs import Fill, fill_templates
from bibs.models.int8 import MARGIN, Int8Model

NUM_EXAMPLES = 1000
MARGINS = (0.0, 0.02, 0.05, 0.1, 2 * MARGIN, 0.3)
EVERY_FILL = 1000


def run() -> list[dict[str, object]]:
    all_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rows = [row for removed in (0.25, 0.5, 0.75) for row in _rows(removed)]
    torch.set_num_threads(all_threads)
    return rows


def _rows(removed: float) -> Iterator[dict[str, object]]:
    _, infiller = trained_pair()
    pair = infiller.forward, infiller.backward
    copies = Int8Model(pair[0]), Int8Model(pair[1])  # type: ignore[arg-type]
    templates, pictures = caption_templates_with_pictures(infiller, NUM_EXAMPLES, removed)
    banned = (infiller.vocabulary.start, infiller.vocabulary.end, infiller.vocabulary.unk)
    options = {"conditions": pictures, "banned": banned}
    exact = [fills[0] for fills in fill_templates(*pair, templates, **options)]
    quick = [fills[0] for fills in fill_templates(*copies, templates, **options)]
    same = sum(a.tokens == b.tokens for a, b in zip(exact, quick, strict=True))
    change = sum(b.score - a.score for a, b in zip(exact, quick, strict=True))
    # All fills of all passes: by the integers alone, and again exactly.
    by_int8, by_float32 = (
        fill_templates(*models, templates, num_return_sequences=EVERY_FILL, **options)
        for models in ([Unscored(copy) for copy in copies], [Unmeasured(copy) for copy in copies])
    )
    behind = [_behind(*each) for each in zip(by_int8, by_float32, strict=True)]
    for margin in MARGINS:
        yield {
            "removed": f"{removed:.0%}",
            "same answers": f"{same / NUM_EXAMPLES:.1%}",
            "mean dS": round(change / NUM_EXAMPLES, 3),
            "margin": margin,
            "lost": sum(each > margin for each in behind),
            "kept": round(sum(_kept(fills, margin) for fills in by_int8) / NUM_EXAMPLES, 2),
        }


class Unscored(Int8Model):
    """Its answers have its own scores."""

    def __init__(self, copy: Int8Model) -> None:
        super().__init__(copy.exact)
        self.margin, self.exact_scores = None, None  # type: ignore[assignment]


class Unmeasured(Int8Model):
    """Every fill found is scored in float32."""

    margin = float("inf")

    def __init__(self, copy: Int8Model) -> None:
        super().__init__(copy.exact)


def _behind(by_int8: Sequence[Fill], by_float32: Sequence[Fill]) -> float:
    """How far the best fill is behind, in S by the integers."""
    scores = {fill.tokens: fill.score for fill in by_int8}
    return max(scores.values()) - scores[by_float32[0].tokens]


def _kept(fills: Sequence[Fill], margin: float) -> int:
    best = max(fill.score for fill in fills)
    return sum(fill.score >= best - margin for fill in fills)
