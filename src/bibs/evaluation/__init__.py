"""The paper's experiments: what is blanked, how it is filled and measured, and everything that is written about it.

    from bibs.evaluation import CaptionSettings, evaluate_captions

    found = evaluate_captions(infiller, "captions.jsonl", output="runs/mine", settings=CaptionSettings(split="test"))

Every experiment is examples x methods -> completions on disk, resumable -> metrics -> tables, plots and a report:

tasks.py          cutting blanks: captions, Visual Madlibs
pair.py           a pair of models that fills examples; methods.py: the methods by the paper's names, and one's own
runs.py           a run that survives a kill; processes.py spreads it
bootstrap.py      numbers and their confidence intervals; metrics.py: CIDEr, METEOR (meteor.py), Bleu and the rest
results.py        rows and comparisons; tables.py, plots.py, samples.py and report.py (by *.jinja) show them
experiment.py     what the experiments share: captions.py, madlibs.py, convergence.py and diversity.py
comparison.py     the report of those that compare methods
calibration.py    how long a blank is: weights are fitted for `lengths.json`; nll.py: the likelihood of captions
"""

from bibs.evaluation.captions import CaptionSettings, evaluate_captions
from bibs.evaluation.experiment import Finished
from bibs.evaluation.methods import METHODS
from bibs.evaluation.pair import Answer, Pair
from bibs.evaluation.tasks import Example

__all__ = ["METHODS", "Answer", "CaptionSettings", "Example", "Finished", "Pair", "evaluate_captions"]
