"""How fast Bidirectional Beam Search settles: the joint log probability and the share of settled examples by pass.

The joint is S / (2 (T + 1)), the mean over both models and over the T words and the sentence end, after the first,
plain pass (the paper's "Init") and after every pass that follows; the paper gives -2.47 and -2.11 after one round.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import Unpack

from bibs.evaluation.bootstrap import draw_resamples, estimate_each, mean_measure
from bibs.evaluation.captions import CaptionSettings, caption_cells
from bibs.evaluation.experiment import Finished, How, fill_cells, finish, open_pair
from bibs.evaluation.methods import METHODS, OURS, Method, Search
from bibs.evaluation.pair import Answer, Pair
from bibs.evaluation.plots import COLOURS, Plot, distinct, draw_curve
from bibs.evaluation.report import Report
from bibs.evaluation.results import Results
from bibs.evaluation.runs import Completion
from bibs.evaluation.samples import Gallery, Line, Sample
from bibs.evaluation.tables import Column, Row, Table, lay_out, share_of
from bibs.evaluation.tasks import Cell, Example, share_label
from bibs.infiller import Infiller
from bibs.search import Fill

TITLE = "How fast Bidirectional Beam Search settles"
LEAD = (
    "A first, plain pass runs right to left; then passes alternate, each steered by the last. The joint log "
    "probability is the mean over both models and all words, the sentence end included."
)
SAMPLE_CHOICE = (
    "The first sentences of the random order whose top fill changed at least twice. Init is a plain search from right "
    "to left; the number is S, the joint log probability of the whole sentence."
)


def follow_passes(pair: Pair, example: Example, fills: Sequence[Fill]) -> dict[str, Any]:
    """The top fill of each pass and its S; and whether the last pass found what the last of its direction had found."""
    trace = fills[0].trace if fills else ()
    tops = [" ".join(pair.words_in_blank(example, each.tokens)) for each in trace]
    ends = [(each.tokens, [[tokens for tokens, _ in slot] for slot in each.frontiers]) for each in trace]
    settled = len(ends) > 2 and ends[-1] == ends[-3]
    return {"fills": tops, "scores": [each.score for each in trace], "settled": settled}


def people(pair: Pair, examples: Sequence[Example], num_beams: int, lengths: str) -> list[Answer]:
    """What people wrote themselves."""
    return pair.score(examples, [example.blank for example in examples])


def evaluate_convergence(
    infiller: Infiller,
    data: Path | str,
    *,
    settings: CaptionSettings = CaptionSettings(),  # noqa: B008 (it is frozen)
    **how: Unpack[How],
) -> Finished:
    """Search with a trace and follow every pass. `settings.methods` is not looked at: only BiBS has passes."""
    cells, notes = caption_cells(Path(data), settings)
    pair = open_pair(infiller, cells, settings, how)
    search = Search("bibs", {"start": "backward", "trace": True}, follow_passes)  # as the paper starts it
    ours = Method(OURS, METHODS[OURS][0], settings.num_beams, search)
    truth = Method("truth", "People", settings.num_beams, people)
    run = fill_cells("convergence", pair, cells, (ours, truth), settings, how)
    rows: list[Row] = []
    answers, galleries = [], []
    for cell in cells:
        found = run.of(cell, ours)
        known = (all(word in pair.vocabulary for word in example.blank) for example in cell.examples)
        truths = [each.score if yes else None for each, yes in zip(run.of(cell, truth), known, strict=True)]
        rows += pass_rows(cell, found, 2 * settings.num_rounds + 1, settings.seed)
        answers.append(_answer_row(cell, found, truths))
        galleries.append(_gallery(cell, found, truths))
    results = Results(run.settings, tuple(rows), tuple(notes), run.labels, {"answers": tuple(answers)})
    plot = Plot("Joint log probability and settled share by pass", "convergence", partial(_draw, rows))
    return finish(run, Report(TITLE, LEAD, results, _tables(rows, answers), (plot,), galleries=tuple(galleries)), how)


def _scale(each: Completion) -> float:
    """2 (T + 1): what makes the scores of sentences of several lengths comparable."""
    return 2 * (len(f"{each.before} {each.truth} {each.after}".split()) + 1)


def pass_rows(cell: Cell, found: Sequence[Completion], num_passes: int, seed: int = 0) -> list[Row]:
    """After each pass: the mean joint of its top fill, of the best top fill so far, and the share that has settled."""
    weights = draw_resamples(len(found), seed=seed)
    scores = [each.facts["scores"] for each in found]
    held = [[some[min(number, len(some) - 1)] for number in range(num_passes)] for some in scores]
    tops = np.array(held) / np.array([[_scale(each)] for each in found])  # (n, passes)
    best = np.maximum.accumulate(tops, axis=1)
    rows = []
    for number in range(num_passes):
        settled = [each.facts["settled"] and len(each.facts["scores"]) <= number + 1 for each in found]
        values = {"top": tops[:, number], "best": best[:, number], "settled": np.array(settled, dtype=np.float64)}
        where = {**cell.where, "task": "convergence", "method": OURS, "n": len(found)}
        measures = {name: mean_measure(numbers) for name, numbers in values.items()}
        rows.append({**where, "pass": number, "rounds": number / 2, **estimate_each(measures, weights)})
    return rows


def _answer_row(cell: Cell, found: Sequence[Completion], truths: Sequence[float | None]) -> Row:
    """What was returned in the end, and how often people's own words would have scored higher: the search's misses.

    `truths` are the scores of those, None where a word is not in the vocabulary.
    """
    known = [(each, truth) for each, truth in zip(found, truths, strict=True) if truth is not None]
    return {
        "removed": cell.removed,
        "n": len(found),
        "joint": _mean([each.score / _scale(each) for each in found]),
        "truth_joint": _mean([truth / _scale(each) for each, truth in known]),
        "truth_above": _mean([truth > each.score + 1e-3 for each, truth in known]),
        "rounds_to_settle": _mean([(len(each.facts["scores"]) - 1) / 2 for each in found]),
        "seconds": sum(each.seconds for each in found),
    }


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _tables(rows: Sequence[Row], answers: Sequence[Row]) -> tuple[Table, ...]:
    title = "Mean joint log probability and share of settled examples after each pass"
    columns = [Column("top", "top fill"), Column("best", "best so far"), Column("settled", "settled", ".1%")]
    passes = lay_out(title, rows, columns, line=lambda row: _pass_name(row["pass"]), corner="pass")
    columns = [Column("joint", "joint of the answer"), Column("truth_joint", "joint of people's words")]
    columns += [Column("truth_above", "people's words score higher", ".1%")]
    columns += [Column("rounds_to_settle", "rounds", ".2f")]
    note = "people's words where the vocabulary has all; rounds until settled or stopped"
    return passes, lay_out(
        "The best of all passes", answers, columns, line=share_of, group=lambda row: "", corner="removed", note=note
    )


def _draw(rows: Sequence[Row], axes: Any) -> None:
    ((left, right),) = axes
    for colour, share in zip(COLOURS, distinct(rows, "removed"), strict=False):
        here = [row for row in rows if row["removed"] == share]
        draw_curve(left, here, "pass", "best", colour=colour, label=share_label(share))
        left.plot([row["pass"] for row in here], [row["top"] for row in here], "--", color=colour, linewidth=1)
        draw_curve(right, here, "pass", "settled", colour=colour)
    left.set_title("joint: best so far (line), top of pass (dashes)")
    right.set_title("share of settled examples")
    for axis in (left, right):
        axis.set(xlabel="pass (0 is the plain first one)", xticks=distinct(rows, "pass"))


def _gallery(cell: Cell, found: Sequence[Completion], truths: Sequence[float | None]) -> Gallery:
    samples = []
    for example, each, truth in zip(cell.examples, found, truths, strict=True):
        if sum(a != b for a, b in pairwise(each.facts["fills"])) >= 2:
            samples.append(Sample(example, [*_steps(each), Line(("Answer",), each.fill, each.score)], truth))
    return Gallery(f"Completions by pass, {share_label(cell.removed)}", SAMPLE_CHOICE, "Answer", samples)


def _steps(each: Completion) -> list[Line]:
    """Each different top fill, in the order in which they came, with the passes that ended with it."""
    passes: dict[str, list[int]] = {}
    for number, fill in enumerate(each.facts["fills"]):
        passes.setdefault(fill, []).append(number)
    scores = each.facts["scores"]
    return [Line((_pass_name(*numbers),), fill, scores[numbers[0]]) for fill, numbers in passes.items()]


def _pass_name(first: int, *others: int) -> str:
    name = f"pass {first}" if first else "Init"
    if not others:
        return f"{name} {'→' if first % 2 else '←'}" if first else name
    if others[-1] - first == len(others):
        return f"{name} to {others[-1]}"
    return ", ".join([name, *map(str, others)])
