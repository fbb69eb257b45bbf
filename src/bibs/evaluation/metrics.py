"""CIDEr, METEOR and Bleu as coco-caption computes them, exact match, token accuracy and the joint score S.

Every metric is a function of sums of per-sentence statistics: of (value, 1) where it is a mean, of n-gram counts for
Bleu, of METEOR's own counts for METEOR. So a resample of the sentences costs one matrix product, not a new scoring.

Both sides are the space-joined tokens; no other tokeniser comes between. CIDEr weighs n-grams by how many references
of the evaluated set hold them ("corpus" mode), and a resample keeps those weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from bibs.evaluation.meteor import Floats, Meteor, meteor_score
from bibs.evaluation.tasks import Example

BLEU_ORDERS = (1, 2, 3, 4)
SENTENCE_METRICS = ("CIDEr", "METEOR", *(f"Bleu_{order}" for order in BLEU_ORDERS))
METRICS = (*SENTENCE_METRICS, *(f"blank_{name}" for name in SENTENCE_METRICS), "exact_match", "token_accuracy", "S")
"""Every metric; those of the blank alone are called `blank_`. More is better, in all of them."""


@dataclass(frozen=True)
class Measure:
    """One metric of one set of completions."""

    statistics: Floats  # (n, k)
    of_sums: Callable[[Floats], Floats]  # (..., k) -> (...)

    @property
    def value(self) -> float:
        return float(self.of_sums(self.statistics.sum(0)))

    def resampled(self, weights: Floats) -> Floats:  # (R, n) -> (R,)
        """The value of each resample; `weights` says how often it holds each sentence."""
        return self.of_sums(weights @ self.statistics)

    def __sub__(self, other: Measure) -> Measure:
        """How far this one is above another of the same sentences: a measure like any other."""
        if len(self.statistics) != len(other.statistics):
            raise ValueError(
                f"`other` must measure the same {len(self.statistics)} sentences, but measures {len(other.statistics)}"
            )
        own = self.statistics.shape[1]
        both = np.concatenate([self.statistics, other.statistics], axis=1)  # (n, k + k')
        return Measure(both, lambda sums: self.of_sums(sums[..., :own]) - other.of_sums(sums[..., own:]))


def measure(
    examples: Sequence[Example],
    fills: Sequence[Sequence[str]],
    scores: Sequence[float] | None = None,
    *,
    meteor: Meteor | None = None,
) -> dict[str, Measure]:
    """All metrics of the fills of the examples' blanks; without `meteor` or `scores`, all but METEOR or S."""
    if not len(examples) == len(fills) > 0:
        raise ValueError(f"`fills` must be one per example ({len(examples)}, at least 1), but are {len(fills)}")
    sentences = [" ".join(example.filled(fill)) for example, fill in zip(examples, fills, strict=True)]
    references = [" ".join(example.words) for example in examples]
    measures = measure_sentences(sentences, references, meteor=meteor)
    blanks = measure_sentences(
        [" ".join(fill) for fill in fills], [" ".join(example.blank) for example in examples], meteor=meteor
    )
    measures |= {f"blank_{name}": each for name, each in blanks.items()}
    pairs = [(tuple(fill), example.blank) for example, fill in zip(examples, fills, strict=True)]
    measures["exact_match"] = mean_measure([fill == blank for fill, blank in pairs])
    right = [sum(a == b for a, b in zip(fill, blank, strict=False)) for fill, blank in pairs]
    measures["token_accuracy"] = ratio_measure(right, [max(len(fill), len(blank)) for fill, blank in pairs])
    if scores is not None:
        measures["S"] = mean_measure(scores)
    return {name: measures[name] for name in METRICS if name in measures}


def measure_sentences(
    sentences: Sequence[str], references: Sequence[str], *, meteor: Meteor | None = None
) -> dict[str, Measure]:
    """CIDEr, METEOR (where there is one) and Bleu of sentences against one reference each."""
    measures = {"CIDEr": mean_measure(_cider(sentences, references))}
    if meteor is not None:
        measures["METEOR"] = Measure(meteor.counts(sentences, references), meteor_score)
    counts = _bleu_counts(sentences, references)
    for order in BLEU_ORDERS:
        measures[f"Bleu_{order}"] = Measure(counts, partial(bleu_score, order=order))
    return measures


def mean_measure(values: Sequence[float] | Floats) -> Measure:
    return ratio_measure(values, np.ones(len(values)))


def ratio_measure(parts: Sequence[float] | Floats, wholes: Sequence[float] | Floats) -> Measure:
    """Sum of the parts over sum of the wholes."""
    statistics = np.stack([np.asarray(parts, dtype=np.float64), np.asarray(wholes, dtype=np.float64)], axis=1)
    return Measure(statistics, lambda sums: sums[..., 0] / sums[..., 1])


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


def _bleu_counts(sentences: Sequence[str], references: Sequence[str]) -> Floats:  # (n, 10)
    scorer = load_scorer("bleu.bleu_scorer", "BleuScorer")(n=max(BLEU_ORDERS))
    for sentence, reference in zip(sentences, references, strict=True):
        scorer += (sentence, [reference])
    rows = [[*each["correct"], *each["guess"], each["testlen"], *each["reflen"]] for each in scorer.ctest]
    return np.array(rows, dtype=np.float64).reshape(-1, 10)


def _cider(sentences: Sequence[str], references: Sequence[str]) -> Floats:  # (n,)
    scorer = load_scorer("cider.cider_scorer", "CiderScorer")()
    for sentence, reference in zip(sentences, references, strict=True):
        scorer += (sentence, [reference])
    return np.asarray(scorer.compute_score()[1], dtype=np.float64)


def load_scorer(module: str, name: str) -> Callable[..., Any]:
    try:
        return getattr(import_module(f"pycocoevalcap.{module}"), name)  # type: ignore[no-any-return]
    except ImportError:
        raise ValueError('caption metrics need pycocoevalcap: pip install ".[eval]"') from None


def require_metrics() -> None:
    """Say what is missing before hours of work, not after."""
    load_scorer("cider.cider", "Cider")
