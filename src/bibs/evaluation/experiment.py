"""What every experiment is: examples x methods -> completions on disk -> results -> a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict

from typing_extensions import Required

from bibs.data import Features
from bibs.evaluation.methods import Filler, Method, NadeSamples, parse_methods
from bibs.evaluation.pair import LENGTHS, Pair, fingerprint_model, short_hash
from bibs.evaluation.report import Report, require_extras, write_outputs
from bibs.evaluation.results import Results
from bibs.evaluation.runs import Progress, Run
from bibs.evaluation.tasks import Cell
from bibs.infiller import Infiller


@dataclass(frozen=True)
class Settings:
    """What is filled and how. `methods` as `parse_methods` reads them."""

    split: str = "test"
    lengths: tuple[str, ...] = ("known",)
    methods: str = "all"
    limit: int | None = None
    seed: int = 0
    num_beams: int = 5
    num_rounds: int = 4

    def __post_init__(self) -> None:
        for name in self.lengths or ("",):
            if name not in LENGTHS:
                raise ValueError(f"`lengths` must be among {', '.join(LENGTHS)}, but hold {name!r}")
        if self.num_beams < 1:
            raise ValueError(f"`num_beams` must be at least 1, but is {self.num_beams}")
        if self.num_rounds < 0:
            raise ValueError(f"`num_rounds` must be at least 0, but is {self.num_rounds}")

    def parsed_methods(self, more: dict[str, Filler] | None = None) -> tuple[Method, ...]:
        return parse_methods(self.methods, num_beams=self.num_beams, more=more)


class How(TypedDict, total=False):
    """Where the results of an experiment go, and what is at hand for it."""

    output: Required[Path | str]  # a directory; what an earlier, interrupted run of the same settings filled is kept
    features: Features | None  # the vectors of the pictures
    images: Path | None  # the folder of the pictures, to show some in the report
    workers: int  # processes; other processes must be able to import models and methods of one's own
    progress: Progress | None


@dataclass(frozen=True)
class Finished:
    """A whole run, and how it is shown."""

    run: Run
    report: Report

    @property
    def results(self) -> Results:
        return self.report.results


def open_pair(infiller: Infiller, cells: Sequence[Cell], settings: Settings, how: How) -> Pair:
    """The infiller's models, with the pictures of the cells. What is missing for a report is said before any work."""
    require_extras()
    examples = [example for cell in cells for example in cell.examples]
    return Pair.of(infiller, how.get("features"), examples, num_rounds=settings.num_rounds, seed=settings.seed)


def carry_out(
    task: str,
    pair: Pair,
    cells: Sequence[Cell],
    methods: Sequence[Method],
    settings: Settings,
    how: How,
    describe: Callable[[Run], Report],
) -> Finished:
    """Fill every cell by every method, and write what `describe` makes of it."""
    nades = [fingerprint_model(method.fill.nade) for method in methods if isinstance(method.fill, NadeSamples)]
    told = {
        "task": task,
        **asdict(settings),
        "methods": [method.key for method in methods],
        "data": short_hash(*(repr((cell.name, cell.examples)).encode() for cell in cells)),
        **pair.fingerprints(),
        "nade": next(iter(nades), None),
        "length_prior": asdict(pair.length_prior) if "unknown" in settings.lengths else None,
    }
    run = Run(Path(how["output"]), told, cells, methods)
    run.fill(pair, workers=how.get("workers", 1), progress=how.get("progress"))
    report = describe(run)
    write_outputs(report, run.directory)
    return Finished(run, report)
