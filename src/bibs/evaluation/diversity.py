"""How different the several fills of one blank are, and what that costs: distinct words against quality, by penalty.

The same blanks are filled M times each without a penalty, with every penalty, and without one but with M times the
beams, which costs about as much as the M searches of a diverse one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import Unpack

from bibs.evaluation.bootstrap import draw_resamples, estimate_each, mean_measure, ratio_measure
from bibs.evaluation.captions import CaptionSettings, caption_cells
from bibs.evaluation.experiment import Finished, How, fill_cells, finish, open_pair
from bibs.evaluation.methods import OURS, Method, Search
from bibs.evaluation.pair import Pair
from bibs.evaluation.plots import COLOURS, Plot, distinct, draw_curve
from bibs.evaluation.report import Report
from bibs.evaluation.results import Results
from bibs.evaluation.runs import Completion, Run
from bibs.evaluation.samples import Gallery, Line, Sample
from bibs.evaluation.tables import Column, Row, lay_out
from bibs.evaluation.tasks import Cell, Example, share_label
from bibs.infiller import Infiller
from bibs.search import Fill

TITLE = "Different fills of one blank"
LEAD = (
    "Each blank is filled several times. With a penalty, the fills are searched one after the other, and a word loses "
    "so much for each fill before that holds it. The row with more beams and no penalty is for those who would rather "
    "spend the time on one wide search."
)
COLUMNS = (
    Column("distinct", "distinct words", ".2f"),  # in the M blanks of a sentence
    Column("times", "times", ".2f"),
    Column("best", "best S", ".2f"),
    Column("mean", "mean S", ".2f"),
    Column("first_accuracy", "first fill: words in place"),  # the share of the true words
    Column("oracle_accuracy", "nearest fill: words in place"),
    Column("found", "true words in any fill"),
    Column("seconds", "CPU s", ".1f"),
)
SAMPLE_CHOICE = "The first sentences of the random order: all fills without a penalty, and with the middle one tried."


@dataclass(frozen=True)
class DiversitySettings(CaptionSettings):
    """`penalties` to try; 0 is always one. `methods` is not looked at: this is BiBS."""

    penalties: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    num_return_sequences: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.penalties or len(set(self.penalties)) < len(self.penalties) or min(self.penalties) < 0:
            raise ValueError(f"`penalties` must be distinct numbers of at least 0, but are {list(self.penalties)}")
        if self.num_return_sequences < 2:
            raise ValueError(f"`num_return_sequences` must be at least 2, but is {self.num_return_sequences}")


def all_fills(pair: Pair, example: Example, fills: Sequence[Fill]) -> dict[str, Any]:
    words = [" ".join(pair.words_in_blank(example, fill.tokens)) for fill in fills]
    return {"fills": words, "scores": [fill.score for fill in fills]}


def diverse_methods(settings: DiversitySettings) -> tuple[Method, ...]:
    """Without a penalty; without one but with as many more beams as there are fills; with each penalty."""
    beams, count = settings.num_beams, settings.num_return_sequences

    def several(penalty: float) -> Search:
        return Search("bibs", {"num_return_sequences": count, "diversity_penalty": penalty}, all_fills)

    plain, *rest = (
        Method(OURS + (f"+{penalty:g}" if penalty else ""), f"penalty {penalty:g}", beams, several(penalty))
        for penalty in sorted({0.0, *settings.penalties})
    )
    wide = Method(f"{OURS}@{beams * count}", f"penalty 0, B = {beams * count}", beams * count, several(0.0))
    return plain, wide, *rest


def evaluate_diversity(
    infiller: Infiller, data: Path | str, *, settings: DiversitySettings = DiversitySettings(), **how: Unpack[How]
) -> Finished:
    """Fill every blank several times, with each penalty."""
    cells, notes = caption_cells(Path(data), settings)
    pair = open_pair(infiller, cells, settings, how)
    run = fill_cells("diversity", pair, cells, diverse_methods(settings), settings, how)
    rows = [row for cell in cells for row in diversity_rows(cell, run)]
    results = Results(run.settings, tuple(rows), tuple(notes), run.labels)
    labels = {key: label.removeprefix("penalty ") for key, label in run.labels.items()}
    title = f"{settings.num_return_sequences} fills of each blank"
    note = "95 % intervals; times: distinct words, in those without a penalty"
    table = lay_out(title, rows, COLUMNS, line=lambda row: labels[row["method"]], corner="penalty", note=note)
    plot = Plot("Quality against distinct words", "diversity", partial(_draw, rows, settings))
    galleries = tuple(_gallery(run, cell) for cell in cells)
    return finish(run, Report(TITLE, LEAD, results, (table,), (plot,), galleries=galleries), how)


def diversity_rows(cell: Cell, run: Run) -> list[Row]:
    """One row a penalty, each number with its 95 % interval. The first method is the one without a penalty."""
    weights = draw_resamples(len(cell.examples), seed=run.settings["seed"])
    plain = [count_distinct(each) for each in run.of(cell, run.methods[0])]
    rows = []
    for method in run.methods:
        assert isinstance(method.fill, Search)
        found = run.of(cell, method)
        distinct_words = [count_distinct(each) for each in found]
        scores = [each.facts["scores"] for each in found]
        accuracies = [accuracies_of(each) for each in found]
        measures = {
            "distinct": mean_measure(distinct_words),
            "times": ratio_measure(distinct_words, plain),
            "best": mean_measure(list(map(max, scores))),
            "mean": mean_measure([sum(some) / len(some) for some in scores]),
            "first_accuracy": mean_measure([first for first, *_ in accuracies]),
            "oracle_accuracy": mean_measure(list(map(max, accuracies))),
            "found": mean_measure([share_found(each) for each in found]),
        }
        where = {"task": "diversity", "split": cell.split, "removed": cell.removed, "method": method.key}
        how = {"penalty": method.fill.options["diversity_penalty"], "num_beams": method.num_beams, "n": len(found)}
        seconds = sum(each.seconds for each in found)
        rows.append({**where, **how, **estimate_each(measures, weights), "seconds": seconds})
    return rows


def count_distinct(each: Completion) -> int:
    return len({word for fill in each.facts["fills"] for word in fill.split()})


def accuracies_of(each: Completion) -> list[float]:
    """The share of the true words that each fill has in their places."""
    truth, fills = each.truth.split(), [fill.split() for fill in each.facts["fills"]]
    return [sum(a == b for a, b in zip(fill, truth, strict=True)) / len(truth) for fill in fills]


def share_found(each: Completion) -> float:
    """The share of the true words that stand in any fill."""
    truth = set(each.truth.split())
    return len(truth & {word for fill in each.facts["fills"] for word in fill.split()}) / len(truth)


def _draw(rows: Sequence[Row], settings: DiversitySettings, axes: Any) -> None:
    """S and the words in place against distinct words: a line through the penalties, a cross for the wide beam."""
    ((left, right),) = axes
    curves = {"best": left, "mean": left, "oracle_accuracy": right, "first_accuracy": right}
    labels = {column.name: column.label for column in COLUMNS}
    shares = distinct(rows, "removed")
    plain = [{name: value for name, value in row.items() if not name.endswith("_ci")} for row in rows]
    for style, share in zip(("-", "--", ":", "-."), shares, strict=False):
        here = [row for row in plain if row["removed"] == share]
        for colour, (name, axis) in zip(COLOURS, curves.items(), strict=False):
            narrow, wide = ([row for row in here if (row["num_beams"] == settings.num_beams) == yes] for yes in (1, 0))
            label, mark = labels[name], "penalty" if name in ("mean", "oracle_accuracy") else ""
            label += f", {share_label(share)}" if len(shares) > 1 else ""
            draw_curve(axis, narrow, "distinct", name, colour=colour, mark=mark, style=f"o{style}", label=label)
            draw_curve(axis, wide, "distinct", name, colour=colour, style="x")
    left.set_title("S (numbers: penalties; crosses: more beams)")
    right.set_title("share of the true words in their places")
    for axis in (left, right):
        axis.set_xlabel(f"distinct words in {settings.num_return_sequences} fills")


def _gallery(run: Run, cell: Cell) -> Gallery:
    plain, _, *penalised = run.methods
    middle = penalised[len(penalised) // 2 :][:1]
    lines: list[list[Line]] = [[] for _ in cell.examples]
    for method in (plain, *middle):
        for some, each in zip(lines, run.of(cell, method), strict=True):
            fills = zip(each.facts["fills"], each.facts["scores"], strict=True)
            some += [Line((method.label,), fill, score) for fill, score in fills]
    samples = list(map(Sample, cell.examples, lines))
    ours = "".join(method.label for method in middle)
    return Gallery(f"Fills, {share_label(cell.removed)}", SAMPLE_CHOICE, ours, samples)
