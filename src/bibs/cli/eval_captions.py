"""`bibs eval captions`: the paper's Table 1."""

from __future__ import annotations

import json

from bibs.cli.eval_options import (
    BUNDLED,
    AsJson,
    Beams,
    Data,
    Images,
    Lengths,
    Limit,
    Methods,
    Model,
    Nade,
    Output,
    Removed,
    Rounds,
    Seed,
    Split,
    VectorIds,
    Vectors,
    Workers,
    load_vectors,
    parse_names,
    parse_numbers,
)
from bibs.cli.stopping import goes_on_from


def captions(
    data: Data,
    output: Output,
    model: Model = BUNDLED,
    features: Vectors = None,
    feature_ids: VectorIds = None,
    split: Split = "test",
    removed: Removed = "25,50,75",
    lengths: Lengths = "known",
    methods: Methods = "all",
    limit: Limit = None,
    seed: Seed = 0,
    num_beams: Beams = 5,
    num_rounds: Rounds = 4,
    nade: Nade = None,
    workers: Workers = None,
    images: Images = None,
    as_json: AsJson = False,
) -> None:
    """Blank captions, fill them by every method, and measure with confidence intervals.

    Example: bibs eval captions --data dataset_coco.json --features F.npy --feature-ids ids.json --model models/coco
    --output results/coco
    """
    from bibs.cli.eval_display import count_cores, progress_bars, show_results
    from bibs.evaluation.captions import CaptionSettings, evaluate_captions
    from bibs.evaluation.outputs import CAPTIONS

    settings = CaptionSettings(
        split=split,
        removed=parse_numbers(removed, "removed"),
        lengths=parse_names(lengths),
        methods=methods,
        limit=limit,
        seed=seed,
        num_beams=num_beams,
        num_rounds=num_rounds,
    )
    with goes_on_from(output), progress_bars() as progress:
        finished = evaluate_captions(
            data=data,
            model=model,
            output=output,
            features=load_vectors(features, feature_ids),
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
