"""`bibs eval captions`: the paper's Table 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bibs.cli.eval_display import count_cores, parse_numbers, progress_bars, show_results
from bibs.data import Features
from bibs.evaluation.captions import CaptionSettings, evaluate_captions
from bibs.evaluation.outputs import CAPTIONS


def captions(
    data: Annotated[Path, typer.Option(help="Captions with splits (Karpathy JSON, JSONL, ...).")],
    model: Annotated[Path, typer.Option(help="A model directory.")],
    output: Annotated[Path, typer.Option(help="Where results go; a run that was interrupted there goes on.")],
    features: Annotated[Path | None, typer.Option(help="Image vectors: an .npy file or a feature store.")] = None,
    feature_ids: Annotated[Path | None, typer.Option(help="The image id of each row of the .npy file.")] = None,
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test",
    removed: Annotated[str, typer.Option(help="Percentages of the words to remove.")] = "25,50,75",
    lengths: Annotated[
        str, typer.Option(help="known (the methods are told it), paper or unknown; with commas between.")
    ] = "known",
    methods: Annotated[
        str, typer.Option(help="all, or names with commas between; bibs@10 is BiBS with another beam width.")
    ] = "all",
    limit: Annotated[int | None, typer.Option(help="Pictures to evaluate; all, unless told.")] = None,
    seed: Annotated[int, typer.Option(help="Draws the captions, the samplers' tokens and the resamples.")] = 0,
    num_beams: Annotated[int, typer.Option(help="Beams of every method.")] = 5,
    num_rounds: Annotated[int, typer.Option(help="Rounds of BiBS and the samplers.")] = 4,
    nade: Annotated[
        Path | None, typer.Option(help="A directory that `bibs train --missing` wrote: adds NADE to the methods.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; one a core, unless told.")] = None,
    images: Annotated[Path | None, typer.Option(help="The folder of the pictures, to show some in the report.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print results.json instead of a table.")] = False,
) -> None:
    """Blank captions, fill them by every method, and measure with confidence intervals.

    Example: bibs eval captions --data dataset_coco.json --features F.npy --feature-ids ids.json --model models/coco
    --output results/coco
    """
    settings = CaptionSettings(
        split=split,
        removed=parse_numbers(removed, "removed"),
        lengths=tuple(part.strip() for part in lengths.split(",")),
        methods=methods,
        limit=limit,
        seed=seed,
        num_beams=num_beams,
        num_rounds=num_rounds,
    )
    vectors = Features.load(features, feature_ids) if features else None
    with progress_bars() as progress:
        finished = evaluate_captions(
            data=data,
            model=model,
            output=output,
            features=vectors,
            nade=nade,
            images=images,
            settings=settings,
            workers=workers or count_cores(),
            progress=progress,
        )
    if as_json:
        print(json.dumps(finished.results.json(), indent=2, ensure_ascii=False))
    else:
        show_results(finished.results, CAPTIONS.main, output)
