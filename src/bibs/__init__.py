"""Fill in the blanks with two models that each read in one direction."""

from bibs.infiller import Completion, Infiller
from bibs.search import Fill, StepModel, bidirectional_beam_search, fill_templates
from bibs.text import Template, Vocabulary

__version__ = "0.1.0"

__all__ = [
    "Completion",
    "Fill",
    "Infiller",
    "StepModel",
    "Template",
    "Vocabulary",
    "bidirectional_beam_search",
    "fill_templates",
]
