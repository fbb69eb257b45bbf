"""What is said when a command is stopped by Ctrl-C."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer


@contextmanager
def begins_anew() -> Iterator[None]:
    """Ctrl-C ends the command with a line that says that nothing of its work is kept."""
    try:
        yield
    except KeyboardInterrupt:
        print("stopped; nothing was written, and the same command begins anew", file=sys.stderr)
        raise typer.Exit(130) from None


@contextmanager
def goes_on_from(output: Path) -> Iterator[None]:
    """Ctrl-C ends the command with a line that says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"stopped; the same command goes on from here ({output})", file=sys.stderr)
        raise typer.Exit(130) from None


@contextmanager
def says_what_is_kept(output: Path) -> Iterator[None]:
    """Ctrl-C ends a training with a line that says what is there by now, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"stopped; {_what_is_kept(output)}", file=sys.stderr)
        raise typer.Exit(130) from None


def _what_is_kept(output: Path) -> str:
    from bibs.models.directory import CONFIG
    from bibs.training import has_checkpoint

    if not has_checkpoint(output):
        return "there was no checkpoint yet: the same command begins anew"
    model = (
        f"{output} holds the best model so far" if (output / CONFIG).exists() else "no epoch is done, so no model yet"
    )
    return f"{model}; `bibs train --output {shlex.quote(str(output))} --resume` goes on from the last checkpoint"
