"""`bibs eval`: measurements of models and of fills."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bibs.cli.eval_captions import captions
from bibs.cli.eval_convergence import convergence
from bibs.cli.eval_madlibs import madlibs, madlibs_captions
from bibs.data import Features
from bibs.evaluation.nll import Likelihood, evaluate_likelihood

app = typer.Typer(help="Measure models and fills.", no_args_is_help=True)


@app.callback()
def evaluate() -> None:
    """Measure models and fills."""


@app.command()
def nll(
    model: Annotated[Path, typer.Option(help="A model directory.")],
    data: Annotated[Path, typer.Option(help="Captions with splits (Karpathy JSON, JSONL, ...).")],
    features: Annotated[Path | None, typer.Option(help="Image vectors: an .npy file or a feature store.")] = None,
    feature_ids: Annotated[Path | None, typer.Option(help="The image id of each row of the .npy file.")] = None,
    split: Annotated[str, typer.Option(help="train, val or test.")] = "val",
    limit: Annotated[int | None, typer.Option(help="Score the first captions only.")] = None,
    allow_missing_features: Annotated[
        bool, typer.Option(help="Score captions whose picture has no vector as text alone.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON instead of a table.")] = False,
) -> None:
    """Mean negative log probability per token, both directions, with pictures and without.

    Example: bibs eval nll --model models/coco --data dataset_coco.json --features F.npy --feature-ids ids.json
    """
    vectors = Features.load(features, feature_ids) if features else None
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("captions", total=None)
        result = evaluate_likelihood(
            model,
            data,
            features=vectors,
            split=split,
            limit=limit,
            allow_missing_features=allow_missing_features,
            advance=lambda captions: bar.advance(task, captions),
        )
    if as_json:
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


app.command()(captions)
app.command()(convergence)
app.command()(madlibs)
app.command()(madlibs_captions)
