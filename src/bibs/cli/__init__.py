"""The command line. One file per command; none holds logic of its own."""

from __future__ import annotations

import os
import sys

import typer

from bibs.cli.calibrate import calibrate
from bibs.cli.eval import app as eval_app
from bibs.cli.features import features
from bibs.cli.fill import fill
from bibs.cli.train import train

app = typer.Typer(
    name="bibs",
    help="Fill in the blanks with one left-to-right and one right-to-left model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def bibs() -> None:
    """Fill in the blanks with one left-to-right and one right-to-left model."""


app.command()(fill)
app.command()(features)
app.command()(train)
app.command()(calibrate)
app.add_typer(eval_app, name="eval")


def main() -> None:
    """What is wrong with the input is said in one line, with exit code 2."""
    try:
        app()
    except BrokenPipeError:  # the reader of a pipe had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except (ValueError, OSError) as error:
        print(f"bibs: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
