"""`bibs eval madlibs`: the paper's Table 2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bibs.cli.eval_display import count_cores, progress_bars, show_results
from bibs.data import Features
from bibs.evaluation.madlibs import MadlibsSettings, evaluate_madlibs, write_captions
from bibs.evaluation.outputs import MADLIBS


def madlibs(
    data: Annotated[Path, typer.Option(help="Visual Madlibs: JSON lines with splits.")],
    model: Annotated[Path, typer.Option(help="A model directory, trained or tuned on the Madlibs of train.")],
    output: Annotated[Path, typer.Option(help="Where results go; a run that was interrupted there goes on.")],
    features: Annotated[Path | None, typer.Option(help="Image vectors: an .npy file or a feature store.")] = None,
    feature_ids: Annotated[Path | None, typer.Option(help="The image id of each row of the .npy file.")] = None,
    box_features: Annotated[Path | None, typer.Option(help="Vectors of the boxes, for nCCA (box).")] = None,
    box_feature_ids: Annotated[Path | None, typer.Option(help="The Madlib's id of each row of the boxes.")] = None,
    kind: Annotated[int, typer.Option("--type", help="The type of Madlib: 12 pair's relationship, ...")] = 12,
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test",
    lengths: Annotated[
        str, typer.Option(help="known (the methods are told it), paper or unknown; with commas between.")
    ] = "known",
    methods: Annotated[
        str, typer.Option(help="all, or names with commas between; bibs@10 is BiBS with another beam width.")
    ] = "all",
    limit: Annotated[int | None, typer.Option(help="Madlibs to evaluate; all, unless told.")] = None,
    seed: Annotated[int, typer.Option(help="Draws the order, the samplers' tokens and the resamples.")] = 0,
    num_beams: Annotated[int, typer.Option(help="Beams of every method.")] = 5,
    num_rounds: Annotated[int, typer.Option(help="Rounds of BiBS and the samplers.")] = 4,
    workers: Annotated[int | None, typer.Option(help="Processes; one a core, unless told.")] = None,
    images: Annotated[Path | None, typer.Option(help="The folder of the pictures, to show some in the report.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print results.json instead of a table.")] = False,
) -> None:
    """Fill Visual Madlibs by every method, and measure with confidence intervals.

    Example: bibs eval madlibs --data type12.jsonl --features F.npy --feature-ids ids.json --model models/madlibs
    --output results/madlibs
    """
    settings = MadlibsSettings(
        type=kind,
        split=split,
        lengths=tuple(part.strip() for part in lengths.split(",")),
        methods=methods,
        limit=limit,
        seed=seed,
        num_beams=num_beams,
        num_rounds=num_rounds,
    )
    with progress_bars() as progress:
        finished = evaluate_madlibs(
            data=data,
            model=model,
            output=output,
            features=Features.load(features, feature_ids) if features else None,
            box_features=Features.load(box_features, box_feature_ids) if box_features else None,
            images=images,
            settings=settings,
            workers=workers or count_cores(),
            progress=progress,
        )
    if as_json:
        print(json.dumps(finished.results.json(), indent=2, ensure_ascii=False))
    else:
        show_results(finished.results, MADLIBS.main, output)


def madlibs_captions(
    data: Annotated[Path, typer.Option(help="Visual Madlibs: the official JSON, or JSON lines with splits.")],
    output: Annotated[Path, typer.Option(help="The JSONL file to write.")],
    kind: Annotated[int, typer.Option("--type", help="The type of Madlib: 12 pair's relationship, ...")] = 12,
) -> None:
    """Write Madlibs as whole sentences, for `bibs train` to learn or to go on learning from.

    Example: bibs eval madlibs-captions --data type12.jsonl --output madlibs.jsonl
    """
    counts = write_captions(data, output, type=kind)
    print(f"{', '.join(f'{count} {split}' for split, count in sorted(counts.items()))}; written to {output}")
