"""`bibs eval madlibs`: the paper's Table 2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bibs.cli.eval_options import (
    BUNDLED,
    AsJson,
    Beams,
    Images,
    Lengths,
    Limit,
    Methods,
    Model,
    Nade,
    Output,
    Rounds,
    Seed,
    Split,
    VectorIds,
    Vectors,
    Workers,
    load_vectors,
    parse_names,
)
from bibs.cli.stopping import goes_on_from

MadlibsData = Annotated[Path, typer.Option(help="Visual Madlibs: the official JSON, or JSON lines with splits.")]
Kind = Annotated[int, typer.Option("--type", help="The type of Madlib: 12 pair's relationship, ...")]


def madlibs(
    data: MadlibsData,
    output: Output,
    model: Model = BUNDLED,
    features: Vectors = None,
    feature_ids: VectorIds = None,
    box_features: Annotated[Path | None, typer.Option(help="Vectors of the boxes, for nCCA (box).")] = None,
    box_feature_ids: Annotated[Path | None, typer.Option(help="The Madlib's id of each row of the boxes.")] = None,
    kind: Kind = 12,
    split: Split = "test",
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
    """Fill Visual Madlibs by every method, and measure with confidence intervals.

    The model (and the NADE) is one that was trained or tuned on the Madlibs of train.

    Example: bibs eval madlibs --data type12.jsonl --features F.npy --feature-ids ids.json --model models/madlibs
    --output results/madlibs
    """
    from bibs.cli.eval_display import count_cores, progress_bars, show_results
    from bibs.evaluation.madlibs import MadlibsSettings, evaluate_madlibs
    from bibs.evaluation.outputs import MADLIBS

    settings = MadlibsSettings(
        type=kind,
        split=split,
        lengths=parse_names(lengths),
        methods=methods,
        limit=limit,
        seed=seed,
        num_beams=num_beams,
        num_rounds=num_rounds,
    )
    with goes_on_from(output), progress_bars() as progress:
        finished = evaluate_madlibs(
            data=data,
            model=model,
            output=output,
            features=load_vectors(features, feature_ids),
            box_features=load_vectors(box_features, box_feature_ids),
            nade=nade,
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
    data: MadlibsData,
    output: Annotated[Path, typer.Option(help="The JSONL file to write.")],
    kind: Kind = 12,
) -> None:
    """Write Madlibs as whole sentences, for `bibs train` to learn or to go on learning from.

    Example: bibs eval madlibs-captions --data type12.jsonl --output madlibs.jsonl
    """
    from bibs.evaluation.madlibs import write_captions

    counts = write_captions(data, output, type=kind)
    print(f"{', '.join(f'{count} {split}' for split, count in sorted(counts.items()))}; written to {output}")
