"""The command line. One file per command; none holds logic of its own."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from bibs.cli.calibrate import calibrate
from bibs.cli.eval import app as eval_app
from bibs.cli.features import features
from bibs.cli.fill import fill
from bibs.cli.serve import serve
from bibs.cli.train import train

app = typer.Typer(
    name="bibs",
    no_args_is_help=True,
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
    """Fill in the blanks with one left-to-right and one right-to-left model.

    Example: bibs fill "a man _ _ _ a wave"

    `bibs fill --help` and the like say more of a command.
    """


app.command()(fill)
app.command()(features)
app.command()(train)
app.command()(calibrate)
app.command()(serve)
app.add_typer(eval_app, name="eval")


SYNONYMS = {
    "hidden_size": "hidden",
    "embedding_size": "embedding",
    "num_layers": "layers",
    "ids": "feature_ids",
    "conditions": "features",
    "texts": "text",
    "bad_words": "bad_word",
    "images": "image",
    "cors_origins": "cors_origin",
    "waiting": "max_waiting",
    "rows": "max_rows",
    "body_bytes": "max_body",
    "pixels": "max_pixels",
    "deadline_seconds": "deadline",
}
"""What a command calls an option that has another name in Python, where it has it."""


def _as_typed(message: str, arguments: Sequence[str]) -> str:
    """A message with the names of options as the command that was called spells them."""
    command: Any = typer.main.get_command(app)
    for argument in arguments:
        command = getattr(command, "commands", {}).get(argument, command)
    spelled = {each.name: max(each.opts, key=len) for each in command.params if each.param_type_name == "option"}

    def spell(name: re.Match[str]) -> str:
        return f"`{spelled.get(name[1]) or spelled.get(SYNONYMS.get(name[1])) or name[1]}`"

    return re.sub(r"`(\w+)`", spell, message)


def _say(message: str) -> None:
    """One line for whoever typed the command."""
    print(f"bibs: {_as_typed(message, sys.argv[1:])}", file=sys.stderr)


def main() -> None:
    """What is wrong with the input is said in one line, with exit code 2; a warning is a line, too."""
    warnings.showwarning = lambda message, *_, **__: _say(str(message))
    try:
        app(prog_name="bibs")
    except BrokenPipeError:  # the reader of a pipe had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except (ValueError, OSError) as error:
        _say(str(error))
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        raise SystemExit(130) from None
