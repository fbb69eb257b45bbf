"""Training: one plain loop, and checkpoints that survive a kill."""

from bibs.training.loop import Report
from bibs.training.nade import train_nade
from bibs.training.pair import FeatureFiles
from bibs.training.settings import TrainingSettings
from bibs.training.train import DirectionResult, Sources, TrainingResult, train

__all__ = [
    "DirectionResult",
    "FeatureFiles",
    "Report",
    "Sources",
    "TrainingResult",
    "TrainingSettings",
    "train",
    "train_nade",
]
