"""The command line. One file per command; none holds logic of its own."""

from __future__ import annotations

import os
import re
import sys
from typing import Annotated

import typer

from bibs.cli.calibrate import calibrate
from bibs.cli.eval import app as eval_app
from bibs.cli.features import features
from bibs.cli.fill import fill
from bibs.cli.serve import serve
from bibs.cli.train import train

app = typer.Typer(
    name="bibs",
    help="Fill in the blanks with one left-to-right and one right-to-left model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        import bibs

        print(f"bibs {bibs.__version__}")
        raise typer.Exit


@app.callback()
def bibs(
    version: Annotated[
        bool, typer.Option("--version", help="Say the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Fill in the blanks with one left-to-right and one right-to-left model."""


app.command()(fill)
app.command()(features)
app.command()(train)
app.command()(calibrate)
app.command()(serve)
app.add_typer(eval_app, name="eval")


OPTIONS = {
    "hidden_size": "--hidden",
    "embedding_size": "--embedding",
    "num_layers": "--layers",
    "ids": "--feature-ids",
    "conditions": "--features",
    "val_share": "--val-share",
    "texts": "--text",
    **{
        name: "--" + name.replace("_", "-")
        for name in (
            *("allow_missing_features", "batch_size", "cell", "clip_norm", "cutoffs", "data", "dropout", "ema_decay"),
            *("encoder", "epochs", "features", "init", "learning_rate", "min_count", "missing", "patience"),
            *("picture_dropout", "seed", "warmup_steps", "weight_decay", "weight_dropout", "word_dropout"),
        )
    },
}
"""What an option is called here, where Python has another name for it."""


def _as_typed(message: str) -> str:
    return re.sub(r"`(\w+)`", lambda name: f"`{OPTIONS.get(name[1], name[1])}`", message)


def main() -> None:
    """What is wrong with the input is said in one line, with exit code 2."""
    try:
        app(prog_name="bibs")
    except BrokenPipeError:  # the reader of a pipe had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except (ValueError, OSError) as error:
        print(f"bibs: {_as_typed(str(error))}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
