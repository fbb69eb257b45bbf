"""`bibs eval convergence`: how fast Bidirectional Beam Search settles."""

from __future__ import annotations

import json

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
)
from bibs.cli.stopping import goes_on_from


def convergence(
    data: Data,
    output: Output,
    model: Model = BUNDLED,
    features: Vectors = None,
    feature_ids: VectorIds = None,
    split: Split = "test",
    removed: Removed = "25,50,75",
    limit: Limit = None,
    seed: Seed = 0,
    num_beams: Beams = 5,
    num_rounds: Rounds = 4,
    workers: Workers = None,
    images: Images = None,
    as_json: AsJson = False,
) -> None:
    """Follow Bidirectional Beam Search pass by pass: joint log probability, and the share that has settled.

    Example: bibs eval convergence --data dataset_coco.json --features F.npy --feature-ids ids.json --model models/coco
    --output results/convergence
    """
    from bibs.cli.eval_display import count_cores, progress_bars, show_table, show_written
    from bibs.evaluation.captions import CaptionSettings
    from bibs.evaluation.convergence import evaluate_convergence
    from bibs.evaluation.convergence_report import answer_table, pass_table, write_convergence
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
        found = evaluate_convergence(
            data=data,
            model=model,
            output=output,
            features=load_vectors(features, feature_ids),
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
