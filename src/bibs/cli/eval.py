"""`bibs eval`: measurements of models and of fills."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bibs.cli.eval_options import (
    ExperimentOptions,
    Lengths,
    MadlibsOptions,
    Methods,
    Nade,
    PairOptions,
    Removed,
    load_vectors,
    parse_names,
    parse_numbers,
    parse_reals,
    with_options,
)
from bibs.cli.stopping import begins_anew, goes_on_from

if TYPE_CHECKING:
    from bibs.evaluation.experiment import Finished
    from bibs.evaluation.nll import Likelihood

app = typer.Typer(help="Measure models and fills.", no_args_is_help=True)


@app.callback()
def evaluate() -> None:
    """Measure models and fills."""


@app.command()
@with_options
def nll(
    options: PairOptions,
    split: Annotated[str, typer.Option(help="train, val or test.")] = "val",
    limit: Annotated[int | None, typer.Option(help="Score the first captions only.")] = None,
    allow_missing_features: Annotated[
        bool, typer.Option(help="Score captions whose picture has no vector as text alone.")
    ] = False,
) -> None:
    """Mean negative log probability per token, both directions, with pictures and without.

    Example: bibs eval nll --model models/coco --data dataset_coco.json --features F.npy --feature-ids ids.json
    """
    from bibs.evaluation.nll import evaluate_likelihood

    console = Console(stderr=True)
    with begins_anew(), Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("captions", total=None)
        result = evaluate_likelihood(
            options.model,
            options.data,
            features=options.load_features(),
            split=split,
            limit=limit,
            allow_missing_features=allow_missing_features,
            advance=lambda captions: bar.advance(task, captions),
        )
    if options.as_json:
        print(json.dumps(asdict(result), indent=2))
    else:
        show_likelihood(result)


def show_likelihood(result: Likelihood) -> None:
    table = Table("direction", "with pictures", "without", title=f"nats per token, {result.split}")
    for name, loss in (("forward", result.forward), ("backward", result.backward)):
        shown = "-" if loss.with_pictures is None else f"{loss.with_pictures:.4f}"
        table.add_row(name, shown, f"{loss.without_pictures:.4f}")
    console = Console()
    console.print(table)
    console.print(
        f"{result.captions:,} captions ({result.captions_with_pictures:,} with a picture), {result.tokens:,} tokens, "
        f"{result.unknown_share:.2%} of them unknown"
    )


@app.command()
@with_options
def captions(
    options: ExperimentOptions,
    removed: Removed = "25,50,75",
    lengths: Lengths = "known",
    methods: Methods = "all",
    nade: Nade = None,
) -> None:
    """Blank captions, fill them by every method, and measure with confidence intervals: the paper's Table 1.

    Example: bibs eval captions --data dataset_coco.json --features F.npy --feature-ids ids.json --model models/coco
    --output results/coco
    """
    from bibs.evaluation.captions import CaptionSettings, evaluate_captions

    shares = parse_numbers(removed, "removed")
    settings = CaptionSettings(**options.settings, removed=shares, lengths=parse_names(lengths), methods=methods)
    carry_out(evaluate_captions, options, settings, nade=nade)


@app.command()
@with_options
def convergence(options: ExperimentOptions, removed: Removed = "25,50,75") -> None:
    """Follow Bidirectional Beam Search pass by pass: joint log probability, and the share that has settled.

    Example: bibs eval convergence --data dataset_coco.json --features F.npy --feature-ids ids.json --model models/coco
    --output results/convergence
    """
    from bibs.evaluation.captions import CaptionSettings
    from bibs.evaluation.convergence import evaluate_convergence

    settings = CaptionSettings(**options.settings, removed=parse_numbers(removed, "removed"), methods="bibs")
    carry_out(evaluate_convergence, options, settings)


@app.command()
@with_options
def diversity(
    options: ExperimentOptions,
    removed: Removed = "50",
    penalties: Annotated[
        str, typer.Option(help="Diversity penalties to try, with commas between; 0 is always one.")
    ] = "0.5,1,2,4",
    num_return_sequences: Annotated[int, typer.Option("--num-return-sequences", "-n", help="Fills of each blank.")] = 5,
) -> None:
    """Fill each blank several times with each diversity penalty: distinct words against quality.

    Example: bibs eval diversity --data dataset_coco.json --features F.npy --feature-ids ids.json --model models/coco
    --split val --limit 200 --output results/diversity
    """
    from bibs.evaluation.diversity import DiversitySettings, evaluate_diversity

    settings = DiversitySettings(
        **options.settings,
        removed=parse_numbers(removed, "removed"),
        methods="bibs",
        penalties=parse_reals(penalties, "penalties"),
        num_return_sequences=num_return_sequences,
    )
    carry_out(evaluate_diversity, options, settings)


@app.command()
@with_options
def madlibs(
    options: MadlibsOptions,
    box_features: Annotated[Path | None, typer.Option(help="Vectors of the boxes, for nCCA (box).")] = None,
    box_feature_ids: Annotated[Path | None, typer.Option(help="The Madlib's id of each row of the boxes.")] = None,
    lengths: Lengths = "known",
    methods: Methods = "all",
    nade: Nade = None,
) -> None:
    """Fill Visual Madlibs by every method, and measure with confidence intervals: the paper's Table 2.

    The model (and the NADE) is one that was trained or tuned on the Madlibs of train.

    Example: bibs eval madlibs --data type12.jsonl --features F.npy --feature-ids ids.json --model models/madlibs
    --output results/madlibs
    """
    from bibs.evaluation.madlibs import MadlibsSettings, evaluate_madlibs

    names = parse_names(lengths)
    settings = MadlibsSettings(**options.settings, type=options.kind, lengths=names, methods=methods)
    boxes = load_vectors(box_features, box_feature_ids)
    carry_out(evaluate_madlibs, options, settings, nade=nade, box_features=boxes)


@app.command()
def madlibs_captions(
    data: Annotated[Path, typer.Option(help="Visual Madlibs: the official JSON, or JSON lines with splits.")],
    output: Annotated[Path, typer.Option(help="The JSONL file to write.")],
    kind: Annotated[int, typer.Option("--type", help="The type of Madlib: 12 pair's relationship, ...")] = 12,
) -> None:
    """Write Madlibs as whole sentences, for `bibs train` to learn or to go on learning from.

    Example: bibs eval madlibs-captions --data type12.jsonl --output madlibs.jsonl
    """
    from bibs.evaluation.madlibs import write_captions

    counts = write_captions(data, output, type=kind)
    print(f"{', '.join(f'{count} {split}' for split, count in sorted(counts.items()))}; written to {output}")


def carry_out(evaluate: Callable[..., Finished], options: ExperimentOptions, settings: Any, **more: Any) -> None:
    """Run an experiment and show what it found."""
    from bibs.cli.eval_display import progress_bars, show_report

    with goes_on_from(options.output), progress_bars() as progress:
        infiller, how = options.load_infiller(), options.how()
        found = evaluate(infiller, options.data, settings=settings, progress=progress, **how, **more)
    if options.as_json:
        print(json.dumps(found.results.json(), indent=2, ensure_ascii=False))
    else:
        show_report(found.report, options.output)
