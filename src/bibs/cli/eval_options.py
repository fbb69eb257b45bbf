"""The options of `bibs eval` and `bibs calibrate`: each is said once, in the class of those that need it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, get_type_hints

import typer

import bibs

if TYPE_CHECKING:
    from bibs.data import Features
    from bibs.evaluation.experiment import How
    from bibs.infiller import Infiller

T = TypeVar("T")

BUNDLED = Path(bibs.__file__).parent / "pretrained" / "coco"


def _check_workers(workers: int | None) -> int | None:
    if workers is not None and workers < 1:
        raise ValueError(f"`--workers` must be at least 1, but is {workers}")
    return workers


def _check_images(images: Path | None) -> Path | None:
    if images is not None and not images.is_dir():
        raise ValueError(f"`--images` must be a folder, but {images} is none")
    return images


Removed: TypeAlias = Annotated[str, typer.Option(help="Percentages of the words to remove.")]
Lengths: TypeAlias = Annotated[
    str, typer.Option(help="known (the methods are told it), paper or unknown; with commas between.")
]
Methods: TypeAlias = Annotated[
    str, typer.Option(help="all, or names with commas between; bibs@10 is BiBS with another beam width.")
]
Nade: TypeAlias = Annotated[
    Path | None, typer.Option(help="A directory that `bibs train --missing` wrote: adds NADE to the methods.")
]


@dataclass(kw_only=True)
class PairOptions:
    """A pair of models and what it is shown."""

    data: Annotated[Path, typer.Option(help="Captions with splits (Karpathy JSON, JSONL, ...).")]
    model: Annotated[Path, typer.Option(help="A model directory.", show_default="the bundled one")] = BUNDLED
    features: Annotated[Path | None, typer.Option(help="Image vectors: an .npy file or a feature store.")] = None
    feature_ids: Annotated[Path | None, typer.Option(help="The image id of each row of the .npy file.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of a table.")] = False

    def load_features(self) -> Features | None:
        return load_vectors(self.features, self.feature_ids)


@dataclass(kw_only=True)
class SearchOptions(PairOptions):
    """And how it searches."""

    seed: Annotated[int, typer.Option(help="Draws the sentences, the samplers' tokens and the resamples.")] = 0
    num_beams: Annotated[int, typer.Option(help="Beams of every method.")] = 5
    num_rounds: Annotated[int, typer.Option(help="Rounds of BiBS (a pass either way) and of the samplers.")] = 4
    workers: Annotated[
        int | None, typer.Option(help="Processes; one a core, unless told.", callback=_check_workers)
    ] = None

    @property
    def settings(self) -> dict[str, Any]:
        """What every kind of settings takes."""
        return {name: getattr(self, name) for name in ("seed", "num_beams", "num_rounds")}

    def count_workers(self) -> int:
        from bibs.cli.eval_display import count_cores

        return self.workers or count_cores()


@dataclass(kw_only=True)
class ExperimentOptions(SearchOptions):
    """And where the completions and results of an experiment go."""

    output: Annotated[Path, typer.Option(help="Where results go; a run that was interrupted there goes on.")]
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test"
    limit: Annotated[int | None, typer.Option(help="Sentences to evaluate, at most; all, unless told.")] = None
    images: Annotated[
        Path | None,
        typer.Option(help="The folder of the pictures, to show some in the report.", callback=_check_images),
    ] = None

    precision: Annotated[
        str, typer.Option(help="Of the search: float32, int8 (faster) or auto. Scores are float32 in any case.")
    ] = "float32"

    def load_infiller(self) -> Infiller:
        from bibs.infiller import Infiller

        return Infiller.from_pretrained(self.model, precision=self.precision)

    @property
    def settings(self) -> dict[str, Any]:
        return {**super().settings, "split": self.split, "limit": self.limit}

    def how(self) -> How:
        features, workers = self.load_features(), self.count_workers()
        return {"output": self.output, "features": features, "images": self.images, "workers": workers}


@dataclass(kw_only=True)
class MadlibsOptions(ExperimentOptions):
    data: Annotated[Path, typer.Option(help="Visual Madlibs: the official JSON, or JSON lines with splits.")]
    kind: Annotated[int, typer.Option("--type", help="The type of Madlib: 12 pair's relationship, ...")] = 12


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is a class of options, as Typer wants it: with a parameter for each of them."""
    hints = get_type_hints(command, include_extras=True)
    first, *own = inspect.signature(command).parameters.values()
    group = hints[first.name]
    shared = {field.name: field.default for field in fields(group)}
    hints |= get_type_hints(group, include_extras=True)
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if default is MISSING else default,
            annotation=hints[name],
        )
        for name, default in (shared | {parameter.name: parameter.default for parameter in own}).items()
    ]

    @wraps(command)
    def run(**values: Any) -> None:
        command(group(**{name: values.pop(name) for name in shared}), **values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def load_vectors(vectors: Path | None, ids: Path | None) -> Features | None:
    from bibs.data import Features

    return Features.load(vectors, ids) if vectors else None


def parse_names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def parse_numbers(text: str, name: str) -> tuple[int, ...]:
    return _parse(text, name, int, "whole numbers")


def parse_reals(text: str, name: str) -> tuple[float, ...]:
    return _parse(text, name, float, "numbers")


def _parse(text: str, name: str, kind: Callable[[str], T], what: str) -> tuple[T, ...]:
    try:
        return tuple(kind(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"`{name}` must be {what} with commas between, but are {text!r}") from None
