"""The algorithm. Imports torch and nothing else of ours. To follow plain BiBS, read in this order:

model.py           what search asks of a model
problem.py         templates, settings, results
prefixes.py        the one memory: a tree of everything that a model has read
beam.py            the one search loop, plain or steered by messages
bidirectional.py   passes in alternating directions
rescore.py         exact scores of what they found
fill.py            many templates: batches within a budget of memory
"""

from .beam import Fills as Fills
from .beam import Rules as Rules
from .beam import Side as Side
from .beam import run_pass as run_pass
from .bidirectional import run_steps as run_steps
from .bidirectional import search_both_ways as search_both_ways
from .fill import Constraints as Constraints
from .fill import Method as Method
from .fill import Size as Size
from .fill import Trees as Trees
from .fill import cut_into_batches as cut_into_batches
from .model import Conditions as Conditions
from .model import State as State
from .model import StepModel as StepModel
from .model import select_conditions as select_conditions
from .prefixes import Prefixes as Prefixes
from .problem import DIRECTIONS as DIRECTIONS
from .problem import Direction as Direction
from .problem import Fill as Fill
from .problem import Gap as Gap
from .problem import Layout as Layout
from .problem import Settings as Settings
from .problem import Start as Start
from .problem import Template as Template
from .problem import Tokens as Tokens
from .problem import TracedPass as TracedPass
from .problem import check_whole_numbers as check_whole_numbers
from .problem import opposite as opposite
from .rescore import Batch as Batch
from .rescore import best_fills as best_fills
from .rescore import finish as finish
from .rescore import left_to_right as left_to_right
