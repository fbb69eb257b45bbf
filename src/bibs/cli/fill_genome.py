"""`bibs fill --fasta`: runs of N in a genome, filled with what related genomes say."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from bibs.cli.given import refuse_options, was_given
from bibs.cli.stopping import begins_anew

GENOME_OPTIONS = ("reference", "length_range", "min_support", "min_identity")
SHARED_OPTIONS = (
    "fasta",
    "output",
    "templates",
    "order",
    "max_length",
    "method",
    "num_beams",
    "num_rounds",
    "num_lengths",
)


def fill_genome(context: typer.Context, fasta: Path, output: Path | None) -> None:
    """Fill a genome as the options of `bibs fill` say. What else was given on the command line is the references."""
    given = context.params
    others = [name for name in given if name not in (*GENOME_OPTIONS, *SHARED_OPTIONS)]
    refuse_options(context, others, "has no meaning with `--fasta`")
    references = [*(given["reference"] or ()), *map(Path, given["templates"] or ())]
    if not references:
        raise ValueError("`--fasta` needs `--reference`, a genome to learn from, but none is given")
    if output is None:
        raise ValueError("`--fasta` needs `--output`, a file to write, but none is given")
    from bibs.dna import DnaSettings, GapFiller, check_output, count_gaps, count_references, fill_fasta

    check_output(output, [fasta, *references])
    names = ("max_length", "min_support", "min_identity", "method", "num_beams", "num_rounds")
    options: dict[str, Any] = {name: given[name] for name in names if given[name] is not None}
    if was_given(context, "num_lengths"):
        options["num_lengths"] = given["num_lengths"]
    if given["length_range"] is not None:
        options["length_range"] = read_range(given["length_range"])
    settings = DnaSettings(**options)
    order = {} if given["order"] is None else {"order": given["order"]}
    with begins_anew():
        gaps = count_gaps(fasta)
        fill = GapFiller(*count_references(references, **order), settings)
        with gap_counter(gaps) as progress:
            summary = fill_fasta(fasta, output, fill, progress)
    print(f"{output}: {summary.as_text()}", file=sys.stderr)


def read_range(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise ValueError(f"`--length-range` must be two numbers, as 0.8,1.2, but is {text!r}") from None
    return low, high


@contextmanager
def gap_counter(gaps: int) -> Iterator[Callable[[int], None]]:
    """A bar with an ETA on a terminal; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("gaps"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("gaps", total=gaps)
        yield lambda count: bar.advance(task, count)
