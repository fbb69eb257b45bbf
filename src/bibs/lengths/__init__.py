"""Blanks of unknown length: which lengths are tried, how they compare, and the paper's rule."""

from .joins import join_scores
from .plan import LengthRule, LengthSettings, climb, fill_gaps, plan_lengths, range_plan
from .prior import SCORE_KINDS, UNFITTED, LengthPrior, LengthWeights, ScoreKind

__all__ = [
    "SCORE_KINDS",
    "UNFITTED",
    "LengthPrior",
    "LengthRule",
    "LengthSettings",
    "LengthWeights",
    "ScoreKind",
    "climb",
    "fill_gaps",
    "join_scores",
    "plan_lengths",
    "range_plan",
]
