"""`bibs eval convergence`: how fast Bidirectional Beam Search settles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bibs.cli.eval_display import count_cores, parse_numbers, progress_bars, show_table, show_written
from bibs.data import Features
from bibs.evaluation.captions import CaptionSettings
from bibs.evaluation.convergence import evaluate_convergence
from bibs.evaluation.convergence_report import answer_table, pass_table, write_convergence


def convergence(
    data: Annotated[Path, typer.Option(help="Captions with splits (Karpathy JSON, JSONL, ...).")],
    model: Annotated[Path, typer.Option(help="A model directory.")],
    output: Annotated[Path, typer.Option(help="Where results go; a run that was interrupted there goes on.")],
    features: Annotated[Path | None, typer.Option(help="Image vectors: an .npy file or a feature store.")] = None,
    feature_ids: Annotated[Path | None, typer.Option(help="The image id of each row of the .npy file.")] = None,
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test",
    removed: Annotated[str, typer.Option(help="Percentages of the words to remove.")] = "25,50,75",
    limit: Annotated[int | None, typer.Option(help="Pictures to evaluate; all, unless told.")] = None,
    seed: Annotated[int, typer.Option(help="Draws the captions and the resamples.")] = 0,
    num_beams: Annotated[int, typer.Option(help="Beams.")] = 5,
    num_rounds: Annotated[int, typer.Option(help="Rounds; each is a pass either way.")] = 4,
    workers: Annotated[int | None, typer.Option(help="Processes; one a core, unless told.")] = None,
    images: Annotated[Path | None, typer.Option(help="The folder of the pictures, to show some in the report.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print results.json instead of a table.")] = False,
) -> None:
    """Follow Bidirectional Beam Search pass by pass: joint log probability, and the share that has settled.

    Example: bibs eval convergence --data dataset_coco.json --features F.npy --feature-ids ids.json --model models/coco
    --output results/convergence
    """
    settings = CaptionSettings(
        split=split,
        removed=parse_numbers(removed, "removed"),
        methods="bibs",
        limit=limit,
        seed=seed,
        num_beams=num_beams,
        num_rounds=num_rounds,
    )
    vectors = Features.load(features, feature_ids) if features else None
    with progress_bars() as progress:
        found = evaluate_convergence(
            data=data,
            model=model,
            output=output,
            features=vectors,
            settings=settings,
            workers=workers or count_cores(),
            progress=progress,
        )
    write_convergence(found, images=images)
    if as_json:
        print(json.dumps(found.json(), indent=2, ensure_ascii=False))
        return
    show_table(pass_table(found))
    show_table(answer_table(found))
    show_written(found.notes, output)
