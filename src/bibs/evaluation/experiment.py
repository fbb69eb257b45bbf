"""What every experiment is: examples x methods -> completions on disk -> results -> a report."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict

from torch import Tensor, nn
from typing_extensions import Required

from bibs.checks import check_setting
from bibs.data import Features
from bibs.evaluation.methods import Method, NadeSamples
from bibs.evaluation.pair import LENGTHS, Pair
from bibs.evaluation.report import Report, require_extra, write_outputs
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
        for name in ("num_beams", "num_rounds"):
            check_setting(name, getattr(self, name), optional=False)


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
    require_extra()
    examples = [example for cell in cells for example in cell.examples]
    return Pair.of(infiller, how.get("features"), examples, num_rounds=settings.num_rounds, seed=settings.seed)


def fill_cells(
    task: str, pair: Pair, cells: Sequence[Cell], methods: Sequence[Method], settings: Settings, how: How
) -> Run:
    """Fill every cell by every method, or what an earlier run of the same has left open."""
    vectors = None if pair.features is None else pair.features.rows(list(pair.features))
    nades = [fingerprint(method.fill.nade) for method in methods if isinstance(method.fill, NadeSamples)]
    told = {
        "task": task,
        **asdict(settings),
        "methods": [method.key for method in methods],
        "precision": pair.precision,
        "data": fingerprint(*map(repr, cells)),
        "features": None if vectors is None else fingerprint(vectors.tobytes()),
        "model": fingerprint(pair.forward, pair.backward, *pair.vocabulary.words),
        "nade": next(iter(nades), None),
        "length_prior": asdict(pair.length_prior) if "unknown" in settings.lengths else None,
    }
    run = Run(Path(how["output"]), told, cells, methods)
    run.fill(pair, workers=how.get("workers", 1), progress=how.get("progress"))
    return run


def finish(run: Run, report: Report, how: How) -> Finished:
    write_outputs(report, run.directory, how.get("images"))
    return Finished(run, report)


def fingerprint(*values: object) -> str:
    """A short name of what values hold, to know them again.

    What cannot be pickled (a model made of a function, say) is known by its class alone.
    """
    digest = hashlib.sha256()
    for value in values:
        held = io.BytesIO()
        try:
            _ByValue(held).dump(value)
            digest.update(held.getvalue())
        except (pickle.PicklingError, AttributeError, TypeError):
            digest.update(type(value).__qualname__.encode())
    return digest.hexdigest()[:16]


class _ByValue(pickle.Pickler):
    """Modules are told by their weights, tensors by their numbers: not by the memory that holds them."""

    def persistent_id(self, value: object) -> object:
        if isinstance(value, nn.Module):
            return sorted((name, self.persistent_id(weight)) for name, weight in value.state_dict().items())
        return value.detach().cpu().numpy().tobytes() if isinstance(value, Tensor) else None
