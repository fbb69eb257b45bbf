"""What is said when a command is stopped by Ctrl-C."""

from __future__ import annotations

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
def goes_on_from(output: Path, *, option: str = "") -> Iterator[None]:
    """Ctrl-C ends the command with a line that says how to go on; `option` is what the command needs for it."""
    try:
        yield
    except KeyboardInterrupt:
        command = f"the same command with {option}" if option else "the same command"
        print(f"stopped; {command} goes on from here ({output})", file=sys.stderr)
        raise typer.Exit(130) from None
