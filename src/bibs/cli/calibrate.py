"""`bibs calibrate`: how fills of different lengths compare under a model pair."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bibs.cli.eval_options import BUNDLED, Removed, SearchOptions, parse_numbers, with_options
from bibs.cli.stopping import begins_anew

if TYPE_CHECKING:
    from bibs.evaluation.calibration import Calibration


@with_options
def calibrate(
    options: SearchOptions,
    split: Annotated[str, typer.Option(help="The split to fit on; never test.")] = "val",
    removed: Removed = "25,50,75",
    limit: Annotated[int, typer.Option(help="Pictures to fit on, at most.")] = 300,
    output: Annotated[
        Path | None,
        typer.Option(help="A directory for lengths.json, or a .json file; the model directory, unless told."),
    ] = None,
) -> None:
    """Fit how long `___` is: what a word more is worth.

    Blanks of unknown length are then neither too short nor too long.

    Example: bibs calibrate --model models/coco --data dataset_coco.json --features F.npy --feature-ids ids.json
    """
    from bibs.cli.eval_display import progress_bars
    from bibs.evaluation.calibration import CalibrationSettings
    from bibs.evaluation.calibration import calibrate as run

    if options.model == BUNDLED and output is None:
        raise ValueError("`--output` must say where the weights go, since the bundled model is left as it is")
    shares = parse_numbers(removed, "removed")
    settings = CalibrationSettings(**options.settings, split=split, removed=shares, limit=limit)
    with begins_anew(), progress_bars() as progress:
        result = run(
            data=options.data,
            model=options.model,
            output=output,
            features=options.load_features(),
            settings=settings,
            workers=options.count_workers(),
            progress=progress,
        )
    if options.as_json:
        print(json.dumps(asdict(result), indent=2))
    else:
        show(result, output or options.model)


def show(result: Calibration, place: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    from bibs.lengths import SCORE_KINDS
    from bibs.models.directory import lengths_file

    console = Console()
    weights = Table("score", "a word", "log P(sentence length)", title="Fitted weights")
    for kind in SCORE_KINDS:
        fitted = getattr(result.prior, kind)
        weights.add_row(kind, f"{fitted.word:.2f}", f"{fitted.sentence:.2f}")
    console.print(weights)
    for title, errors in (
        ("Lengths that BiBS chooses, weights unfitted", result.before),
        ("Lengths that BiBS chooses, each half of the pictures by weights fitted on the other", result.after),
    ):
        lengths = Table("removed", "blanks", "right", "within 1", "within 2", "mean error", title=title)
        for removed, each in errors.items():
            shares = (f"{share:.1%}" for share in each.within)
            lengths.add_row(f"{removed} %", str(each.n), *shares, f"{each.mean:+.2f}")
        console.print(lengths)
    print(f"Written to {lengths_file(place)}")  # not by rich, which reads [brackets] as markup
