"""What the experiments show while they run and when they are done."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table as RichTable

from bibs.evaluation.report import Report
from bibs.evaluation.runs import Progress
from bibs.evaluation.tables import Table


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """A bar with an ETA on a terminal, nothing in a pipe."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks = {}

        def show(stage: str, what: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total, completed=done)
            bars.update(tasks[stage], description=f"{stage} {what}".strip(), completed=done, total=total)

        yield show


def show_report(report: Report, output: Path) -> None:
    for table in report.tables:
        show_table(table)
    written = f"Written to {output}: results.json, table.md, table.tex, plots, report.html"
    for line in (*report.results.notes, written):
        Console().print(line, highlight=False, markup=False)  # a path may hold [brackets]


def show_table(table: Table) -> None:
    """One table on the terminal for each group of columns, so that each is narrow enough."""
    for part in table.split():
        shown = RichTable(title=", ".join(filter(None, (*part.groups, table.title))), padding=(0, 0, 0, 1))
        shown.add_column(table.corner, no_wrap=True)
        for column in part.columns:
            shown.add_column(column, justify="right")
        for label, (entries,) in part.rows:
            shown.add_row(escape(label), *(f"[bold]{each.text}[/bold]" if each.best else each.text for each in entries))
        Console().print(shown)


def count_cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
