"""CIDEr, METEOR and Bleu as coco-caption computes them, exact match, token accuracy and the joint score S.

The statistics of a sentence are (value, 1) where a metric is a mean, n-gram counts for Bleu, METEOR's own for METEOR.

Both sides are the space-joined tokens; no other tokeniser comes between. CIDEr weighs n-grams by how many references
of the evaluated set hold them ("corpus" mode), and a resample keeps those weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from bibs.evaluation.bootstrap import Floats, Measure, mean_measure, ratio_measure
from bibs.evaluation.meteor import MeteorCounts, meteor_score
from bibs.evaluation.tasks import Example

BLEU_ORDERS = (1, 2, 3, 4)
SENTENCE_METRICS = ("CIDEr", "METEOR", *(f"Bleu_{order}" for order in BLEU_ORDERS))
METRICS = (*SENTENCE_METRICS, *(f"blank_{name}" for name in SENTENCE_METRICS), "exact_match", "token_accuracy", "S")
"""Every metric; those of the blank alone are called `blank_`. More is better, in all of them."""

Pairs: TypeAlias = Sequence[tuple[str, str]]
"""Sentences, each with its one reference."""


def pair_up(examples: Sequence[Example], fills: Sequence[str]) -> tuple[Pairs, Pairs]:
    """The filled sentences with the true ones, and what fills the blanks with what belongs there."""
    if not len(examples) == len(fills) > 0:
        raise ValueError(f"`fills` must be one per example ({len(examples)}, at least 1), but are {len(fills)}")
    both = list(zip(examples, fills, strict=True))
    whole = [(" ".join(each.filled(fill.split())), " ".join(each.filled(each.blank))) for each, fill in both]
    return whole, [(fill, " ".join(each.blank)) for each, fill in both]


def measure(
    examples: Sequence[Example], fills: Sequence[str], scores: Sequence[float], meteor: MeteorCounts | None = None
) -> dict[str, Measure]:
    """All metrics of the fills of the examples' blanks; without the counts of METEOR, all but that."""
    whole, blanks = pair_up(examples, fills)
    measures = measure_sentences(whole, meteor)
    measures |= {f"blank_{name}": each for name, each in measure_sentences(blanks, meteor).items()}
    measures["exact_match"] = mean_measure([fill == truth for fill, truth in blanks])
    words = [(fill.split(), truth.split()) for fill, truth in blanks]
    right = [sum(a == b for a, b in zip(*pair, strict=False)) for pair in words]
    measures["token_accuracy"] = ratio_measure(right, [max(map(len, pair)) for pair in words])
    return measures | {"S": mean_measure(scores)}


def measure_sentences(pairs: Pairs, meteor: MeteorCounts | None = None) -> dict[str, Measure]:
    """CIDEr, METEOR (where its counts are known) and Bleu."""
    measures = {"CIDEr": mean_measure(_cider(pairs))}
    if meteor is not None:
        measures["METEOR"] = Measure(np.array([meteor[pair] for pair in pairs]), meteor_score)
    counts = _bleu_counts(pairs)
    return measures | {f"Bleu_{order}": Measure(counts, partial(bleu_score, order=order)) for order in BLEU_ORDERS}


def bleu_score(sums: Floats, order: int) -> Floats:  # (..., 10) -> (...)
    """Bleu of summed counts: right and guessed n-grams (four each), length, reference length.

    The two small numbers are coco-caption's, which keep an order without n-grams from dividing by zero.
    """
    right, guessed, length, wanted = sums[..., :4], sums[..., 4:8], sums[..., 8], sums[..., 9]
    precision = (right[..., :order] + 1e-15) / (guessed[..., :order] + 1e-9)  # (..., order)
    ratio = (length + 1e-15) / (wanted + 1e-9)
    brevity = np.exp(np.minimum(0.0, 1 - 1 / ratio))
    score: Floats = precision.prod(-1) ** (1 / order) * brevity
    return score


def _bleu_counts(pairs: Pairs) -> Floats:  # (n, 10)
    from pycocoevalcap.bleu.bleu_scorer import BleuScorer

    scorer = BleuScorer(n=max(BLEU_ORDERS))
    for sentence, reference in pairs:
        scorer += (sentence, [reference])
    rows = [[*each["correct"], *each["guess"], each["testlen"], *each["reflen"]] for each in scorer.ctest]
    return np.array(rows, dtype=np.float64).reshape(-1, 10)


def _cider(pairs: Pairs) -> Floats:  # (n,)
    from pycocoevalcap.cider.cider_scorer import CiderScorer

    scorer = CiderScorer()
    for sentence, reference in pairs:
        scorer += (sentence, [reference])
    return np.asarray(scorer.compute_score()[1], dtype=np.float64)
