"""Training: one plain loop, and checkpoints that survive a kill."""

from bibs.training.loop import Report
from bibs.training.nade import train_nade
from bibs.training.output import has_checkpoint
from bibs.training.pair import FeatureFiles, held_back_interrupts
from bibs.training.record import load_record, read_settings, read_sources
from bibs.training.settings import TrainingSettings
from bibs.training.sources import Sources
from bibs.training.train import DirectionResult, TrainingResult, train

__all__ = [
    "DirectionResult",
    "FeatureFiles",
    "Report",
    "Sources",
    "TrainingResult",
    "TrainingSettings",
    "has_checkpoint",
    "held_back_interrupts",
    "load_record",
    "read_settings",
    "read_sources",
    "train",
    "train_nade",
]
