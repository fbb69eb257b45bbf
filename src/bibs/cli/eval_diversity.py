"""`bibs eval diversity`: how different several fills of one blank are, by penalty."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from bibs.cli.eval_options import (
    BUNDLED,
    AsJson,
    Beams,
    Data,
    Images,
    Limit,
    Model,
    Output,
    Removed,
    Rounds,
    Seed,
    Split,
    VectorIds,
    Vectors,
    Workers,
    load_vectors,
    parse_numbers,
    parse_reals,
)
from bibs.cli.stopping import goes_on_from


def diversity(
    data: Data,
    output: Output,
    model: Model = BUNDLED,
    features: Vectors = None,
    feature_ids: VectorIds = None,
    split: Split = "test",
    removed: Removed = "50",
    penalties: Annotated[
        str, typer.Option(help="Diversity penalties to try, with commas between; 0 is always one.")
    ] = "0.5,1,2,4",
    num_return_sequences: Annotated[int, typer.Option("--num-return-sequences", "-n", help="Fills of each blank.")] = 5,
    limit: Limit = None,
    seed: Seed = 0,
    num_beams: Beams = 5,
    num_rounds: Rounds = 4,
    workers: Workers = None,
    images: Images = None,
    as_json: AsJson = False,
) -> None:
    """Fill each blank several times with each diversity penalty: distinct words against quality.

    Example: bibs eval diversity --data dataset_coco.json --features F.npy --feature-ids ids.json --model models/coco
    --split val --limit 200 --output results/diversity
    """
    from bibs.cli.eval_display import count_cores, progress_bars, show_table, show_written
    from bibs.evaluation.captions import CaptionSettings
    from bibs.evaluation.diversity import evaluate_diversity
    from bibs.evaluation.diversity_report import diversity_table, write_diversity
    from bibs.evaluation.plots import load_pyplot

    load_pyplot()  # what is missing is said before the work
    settings = CaptionSettings(
        split=split,
        removed=parse_numbers(removed, "removed"),
        methods="bibs",
        limit=limit,
        seed=seed,
        num_beams=num_beams,
        num_rounds=num_rounds,
    )
    with goes_on_from(output), progress_bars() as progress:
        found = evaluate_diversity(
            data=data,
            model=model,
            output=output,
            penalties=parse_reals(penalties, "penalties"),
            num_return_sequences=num_return_sequences,
            features=load_vectors(features, feature_ids),
            settings=settings,
            workers=workers or count_cores(),
            progress=progress,
        )
    write_diversity(found, images=images)
    if as_json:
        print(json.dumps(found.json(), indent=2, ensure_ascii=False))
        return
    show_table(diversity_table(found))
    show_written(found.notes, output)
