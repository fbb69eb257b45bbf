"""The algorithm. Imports torch and nothing else of ours. To follow plain BiBS, read in this order:

model.py           what search asks of a model
problem.py         templates, settings, results
prefixes.py        the one memory: a tree of everything that a model has read
beam.py            the one search loop, plain or steered by messages
bidirectional.py   passes in alternating directions
rescore.py         exact scores of what they found
fill.py            many templates: batches within a budget of memory
"""

from .beam import Fills, Frontier, Rules, Side, run_pass
from .bidirectional import run_steps, search_both_ways
from .fill import Constraints, Method, Size, Trees, cut_into_batches
from .model import Conditions, ScoringModel, State, StepModel, map_state, select_conditions, select_rows
from .prefixes import Prefixes
from .problem import (
    DIRECTIONS,
    Direction,
    Fill,
    Gap,
    Layout,
    OneOf,
    Settings,
    Start,
    Template,
    Tokens,
    TracedPass,
    opposite,
)
from .rescore import Batch, finish
