"""The options that several of the experiments share, each said once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

import bibs

if TYPE_CHECKING:
    from bibs.data import Features

BUNDLED = Path(bibs.__file__).parent / "pretrained" / "coco"


def _check_workers(workers: int | None) -> int | None:
    if workers is not None and workers < 1:
        raise ValueError(f"`--workers` must be at least 1, but is {workers}")
    return workers


def _check_images(images: Path | None) -> Path | None:
    if images is not None and not images.is_dir():
        raise ValueError(f"`--images` must be a folder, but {images} is none")
    return images


Data: TypeAlias = Annotated[Path, typer.Option(help="Captions with splits (Karpathy JSON, JSONL, ...).")]
Model: TypeAlias = Annotated[Path, typer.Option(help="A model directory.", show_default="the bundled one")]
Output: TypeAlias = Annotated[Path, typer.Option(help="Where results go; a run that was interrupted there goes on.")]
Vectors: TypeAlias = Annotated[Path | None, typer.Option(help="Image vectors: an .npy file or a feature store.")]
VectorIds: TypeAlias = Annotated[Path | None, typer.Option(help="The image id of each row of the .npy file.")]
Split: TypeAlias = Annotated[str, typer.Option(help="train, val or test.")]
Removed: TypeAlias = Annotated[str, typer.Option(help="Percentages of the words to remove.")]
Lengths: TypeAlias = Annotated[
    str, typer.Option(help="known (the methods are told it), paper or unknown; with commas between.")
]
Methods: TypeAlias = Annotated[
    str, typer.Option(help="all, or names with commas between; bibs@10 is BiBS with another beam width.")
]
Limit: TypeAlias = Annotated[int | None, typer.Option(help="Sentences to evaluate, at most; all, unless told.")]
Seed: TypeAlias = Annotated[int, typer.Option(help="Draws the sentences, the samplers' tokens and the resamples.")]
Beams: TypeAlias = Annotated[int, typer.Option(help="Beams of every method.")]
Rounds: TypeAlias = Annotated[int, typer.Option(help="Rounds of BiBS (a pass either way) and of the samplers.")]
Nade: TypeAlias = Annotated[
    Path | None, typer.Option(help="A directory that `bibs train --missing` wrote: adds NADE to the methods.")
]
Workers: TypeAlias = Annotated[
    int | None, typer.Option(help="Processes; one a core, unless told.", callback=_check_workers)
]
Images: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="The folder of the pictures, to show some in the report.", callback=_check_images),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print results.json instead of a table.")]


def load_vectors(vectors: Path | None, ids: Path | None) -> Features | None:
    from bibs.data import Features

    return Features.load(vectors, ids) if vectors else None


def parse_names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def parse_numbers(text: str, name: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"`{name}` must be whole numbers with commas between, but are {text!r}") from None


def parse_reals(text: str, name: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"`{name}` must be numbers with commas between, but are {text!r}") from None
