"""The algorithm. Imports torch and nothing else of ours.

template.py        a row of token ids with None at each free slot
step_model.py      what search asks of a model
opening.py         examples whose contexts a model has read
beam.py            the one search loop, plain or steered by messages
choosing.py        which extensions the loop keeps; coverage.py where words must appear
scoring.py         exact scores of filled sequences
pair.py            two models before the same blanks; batches; results
bidirectional.py   Bidirectional Beam Search
diversity.py       several answers that differ
unidirectional.py, sampling.py, exact.py   what the paper compares it with
methods.py         all of them by name
lengths.py         blanks of unknown length: which lengths are tried; meeting.py and run_on.py judge them beforehand,
                   length_prior.py afterwards
"""

from .beam import Opening, Pass, beam_search
from .length_prior import LengthPrior, LengthWeights
from .methods import METHODS, bidirectional_beam_search, fill_templates
from .pair import Fill, TracedPass
from .step_model import StepModel

__all__ = [
    "METHODS",
    "Fill",
    "LengthPrior",
    "LengthWeights",
    "Opening",
    "Pass",
    "StepModel",
    "TracedPass",
    "beam_search",
    "bidirectional_beam_search",
    "fill_templates",
]
