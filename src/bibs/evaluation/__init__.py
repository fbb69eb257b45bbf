"""The paper's experiments: what is blanked, how it is measured, and everything that is written about it.

tasks.py          cutting blanks: captions, Visual Madlibs
methods.py        the methods under the paper's names, and a model pair that fills examples by one of them
nade.py, ncca.py  the two methods that a pair alone cannot do
metrics.py        CIDEr, METEOR, Bleu and the rest, as sums of per-sentence statistics; meteor.py runs the jar
bootstrap.py      paired confidence intervals
runs.py           a run that survives a kill; processes.py spreads it; completions.py is what it keeps
results.py        rows and comparisons; tables.py, plots.py, report.py and outputs.py show them
captions.py, madlibs.py, convergence.py   the experiments themselves
nll.py            the likelihood of captions
"""
