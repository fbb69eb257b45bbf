"""`bibs fill --input`: many rows, with what is shown of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from bibs.cli.stopping import goes_on_from

if TYPE_CHECKING:
    from bibs.scale.answers import Filling
    from bibs.scale.job import Summary

PLAIN_SECONDS = 30.0
"""In a pipe, a line is said this often."""


def run(
    filling: Filling,
    precision: str,
    inputs: Sequence[Path],
    output: Path,
    engine: str,
    workers: int | None,
    address: str | None,
    shard_rows: int,
) -> None:
    """Fill files; `precision` is what the model's became here, and is to be everywhere."""
    from bibs.cli.eval_display import count_cores
    from bibs.scale.job import Engine, fill_files

    filling = filling.everywhere(precision)
    chosen = Engine(engine, count_cores() if workers is None else workers, address)
    with goes_on_from(output), progress_display() as show:
        summary = fill_files(
            filling, inputs, output, options=filling.named(), engine=chosen, shard_rows=shard_rows, progress=show
        )
    for failure in summary.failures:
        print(f"bibs: {failure}", file=sys.stderr)
    print(as_text(summary, output))
    if summary.errors or summary.failures:
        raise typer.Exit(1)


def as_text(summary: Summary, output: Path) -> str:
    text = f"{summary.filled:,} rows filled in {summary.seconds:.1f} s ({summary.rate:.1f} rows/s)"
    text += f", {summary.already:,} were there already" if summary.already else ""
    text += f", {summary.errors:,} rows have an `error`" if summary.errors else ""
    text += f", {len(summary.failures):,} shards could not be done" if summary.failures else ""
    return f"{text}; written to {output}"


@contextmanager
def progress_display() -> Iterator[Callable[[Summary], None]]:
    """A bar with rows/s and an ETA on a terminal, a line from time to time in a pipe."""
    if not sys.stderr.isatty():
        yield _plain_lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("rows"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[state]}"))
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False) as bar:
        task = bar.add_task("rows", total=None, state="")
        yield lambda summary: bar.update(task, total=summary.total, completed=summary.done, state=_state(summary))


def _plain_lines() -> Callable[[Summary], None]:
    last = time.monotonic()

    def show(summary: Summary) -> None:
        nonlocal last
        if time.monotonic() - last >= PLAIN_SECONDS:
            last = time.monotonic()
            print(f"rows {summary.done:,}/{summary.total:,}, {_state(summary)}", file=sys.stderr, flush=True)

    return show


def _state(summary: Summary) -> str:
    left = summary.seconds_left
    if left is None:
        return ""
    hours, seconds = divmod(int(left), 3600)
    return f"{summary.rate:.1f} rows/s, {hours}:{seconds // 60:02d}:{seconds % 60:02d} left"
