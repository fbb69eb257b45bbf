"""`bibs eval`: measurements of models and of fills."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bibs.cli.eval_captions import captions
from bibs.cli.eval_convergence import convergence
from bibs.cli.eval_diversity import diversity
from bibs.cli.eval_madlibs import madlibs, madlibs_captions
from bibs.cli.eval_options import BUNDLED, Data, Model, Split, VectorIds, Vectors, load_vectors
from bibs.cli.stopping import begins_anew

if TYPE_CHECKING:
    from bibs.evaluation.nll import Likelihood

app = typer.Typer(help="Measure models and fills.", no_args_is_help=True)


@app.callback()
def evaluate() -> None:
    """Measure models and fills."""


@app.command()
def nll(
    data: Data,
    model: Model = BUNDLED,
    features: Vectors = None,
    feature_ids: VectorIds = None,
    split: Split = "val",
    limit: Annotated[int | None, typer.Option(help="Score the first captions only.")] = None,
    allow_missing_features: Annotated[
        bool, typer.Option(help="Score captions whose picture has no vector as text alone.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON instead of a table.")] = False,
) -> None:
    """Mean negative log probability per token, both directions, with pictures and without.

    Example: bibs eval nll --model models/coco --data dataset_coco.json --features F.npy --feature-ids ids.json
    """
    from bibs.evaluation.nll import evaluate_likelihood

    console = Console(stderr=True)
    bars = Progress(console=console, disable=not console.is_terminal, transient=True)
    with begins_anew(), bars as bar:
        task = bar.add_task("captions", total=None)
        result = evaluate_likelihood(
            model,
            data,
            features=load_vectors(features, feature_ids),
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
app.command()(diversity)
app.command()(madlibs)
app.command()(madlibs_captions)
