"""`bibs fill`: templates in, completions out."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard

import typer

from bibs.cli.fill_genome import GENOME_OPTIONS, fill_genome
from bibs.cli.given import refuse_options

if TYPE_CHECKING:
    from bibs.data import Row
    from bibs.infiller import Completion

ROWS_AT_ONCE = 256


def fill(
    context: typer.Context,
    templates: Annotated[
        list[str] | None,
        typer.Argument(
            help="Text with `_` for each missing word, `___` for an unknown number. Without any: standard input."
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read templates from a file, one a line; - is standard input.")
    ] = None,
    from_json: Annotated[
        bool,
        typer.Option(
            "--from-json",
            help="Each line is an object, as in a .jsonl file: `template`, and maybe `id`, `image`, `must_include`.",
        ),
    ] = False,
    inputs: Annotated[
        list[Path] | None,
        typer.Option("--input", help="Many rows: .parquet or .jsonl files, or folders of them; may be repeated."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The folder for the answers to --input, or the file for --fasta; a .tsv and a .bed stand beside that.",
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="For --input: local, a process a worker; or ray (extra bibs[ray]).")
    ] = "local",
    workers: Annotated[
        int | None, typer.Option(help="For --input: models at work; one a core where not given.", show_default=False)
    ] = None,
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster; without one, Ray is started here.")] = None,
    shard_rows: Annotated[int, typer.Option(help="For --input: rows a file of answers; a kill loses no more.")] = 4096,
    model: Annotated[Path | None, typer.Option(help="A model directory; by default the bundled one.")] = None,
    corpus: Annotated[Path | None, typer.Option(help="Count an n-gram pair from this text file instead.")] = None,
    order: Annotated[
        int | None, typer.Option(help="The order of the n-grams: 3 with --corpus, 20 with --fasta.", show_default=False)
    ] = None,
    image: Annotated[
        Path | None, typer.Option(help="A picture that the templates describe, unless a row has its own.")
    ] = None,
    must_include: Annotated[
        list[str] | None,
        typer.Option(help="A word, or a phrase, that must stand in a blank of every template; may be repeated."),
    ] = None,
    bad_word: Annotated[
        list[str] | None, typer.Option(help="A word that never fills a blank; may be repeated.")
    ] = None,
    method: Annotated[str, typer.Option(help="bibs, forward, backward, rerank-sum, gsn, ...")] = "bibs",
    num_beams: Annotated[int, typer.Option("--num-beams", "-b", help="Partial fills kept at each slot.")] = 5,
    num_return_sequences: Annotated[
        int, typer.Option("--num-return-sequences", "-n", help="Completions per template.")
    ] = 1,
    diversity_penalty: Annotated[
        float, typer.Option(help="What a word loses for each earlier completion that holds it: 2 makes them differ.")
    ] = 0.0,
    num_rounds: Annotated[int, typer.Option(help="Passes each way, at most.")] = 4,
    lengths: Annotated[str, typer.Option(help="How `___` finds its length: unknown, or paper.")] = "unknown",
    max_length: Annotated[
        int | None,
        typer.Option(
            help="The most words that `___` may have (20), or letters a gap of --fasta (1000).", show_default=False
        ),
    ] = None,
    num_lengths: Annotated[
        int, typer.Option(help="How many lengths of `___` are searched, those that look best; 0 for all.")
    ] = 3,
    start: Annotated[
        str, typer.Option(help="Where the search begins: both ends, backward (the paper) or forward.")
    ] = "both",
    max_words: Annotated[int, typer.Option(help="The most words that a template may have.")] = 100,
    precision: Annotated[
        str, typer.Option(help="Of the search: float32, int8 (faster) or auto. Scores are float32 in any case.")
    ] = "auto",
    seed: Annotated[int, typer.Option(help="For the methods that sample.")] = 0,
    scores: Annotated[
        bool, typer.Option("--scores", help="A score and a tab before each completion, as with -n above 1.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per template and line.")] = False,
    fasta: Annotated[Path | None, typer.Option(help="Fill the runs of N in this genome, plain or gzip.")] = None,
    reference: Annotated[
        list[Path] | None,
        typer.Option(help="A FASTA file that --fasta learns from; may be repeated, or name more behind it."),
    ] = None,
    length_range: Annotated[
        str | None, typer.Option(help="With --fasta: how long a fill may be, in lengths of its gap, as 0.8,1.2.")
    ] = None,
    min_support: Annotated[
        int | None,
        typer.Option(
            help="With --fasta: letters in a row beside a gap that the references must have (18).", show_default=False
        ),
    ] = None,
    min_identity: Annotated[
        float | None,
        typer.Option(help="With --fasta: leave a gap if less of its fill should be right (0.5).", show_default=False),
    ] = None,
) -> None:
    """Fill the blanks of templates.

    Example: bibs fill "a man _ _ _ a wave"

    A bad template is named on standard error, the others are filled, and the exit code is 1. With --json, every line
    in is one object out, with an `error` where there is one.

    A picture per template: bibs fill --file rows.jsonl, with lines such as {"template": "a _", "image": "cat.jpg"}

    Many rows, on all cores: bibs fill --input rows/ --output answers. The same command goes on after a kill.

    A genome: bibs fill --fasta genome.fa.gz --reference relatives/*.fa.gz --output filled.fa
    """
    if fasta is not None:
        fill_genome(context, fasta, output)
        return
    refuse_options(context, GENOME_OPTIONS, "needs `--fasta`")
    if not inputs:
        refuse_options(context, ("engine", "workers", "address", "shard_rows"), "needs `--input`")
    if corpus is None:
        refuse_options(context, ("order",), "needs `--corpus` or `--fasta`")
    if num_lengths < 0:
        raise ValueError(f"`--num-lengths` must be a whole number of at least 1, or 0 for all, but is {num_lengths}")
    if model is not None and corpus is not None:
        raise ValueError("`--model` and `--corpus` exclude each other, but both are given")
    if templates and file is not None:
        raise ValueError("templates come as arguments or from `--file`, but both are given")
    if inputs and (templates or file is not None):
        raise ValueError("templates come from `--input` or otherwise, but both are given")
    if bool(inputs) != (output is not None):
        raise ValueError(
            f"`--input` and `--output` must come together, but `--{'in' if output else 'out'}put` is missing"
        )
    from bibs.scale.answers import Filling, ModelChoice, fill_rows

    options: dict[str, Any] = {
        "must_include": must_include or [],
        "bad_words": bad_word or [],
        "method": method,
        "num_beams": num_beams,
        "num_return_sequences": num_return_sequences,
        "diversity_penalty": diversity_penalty,
        "num_rounds": num_rounds,
        "lengths": lengths,
        "max_length": 20 if max_length is None else max_length,
        "num_lengths": num_lengths or None,
        "start": start,
        "seed": seed,
    }
    filling = Filling(
        ModelChoice(model, corpus, 3 if order is None else order, max_words, precision), options, image, os.getcwd()
    )
    filler = filling.load()
    filler.infiller([], **options)  # what is wrong with an option is said before anything is read
    if inputs and output is not None:
        from bibs.cli.fill_files import run

        run(filling, filler.infiller.precision, inputs, output, engine, workers, address, shard_rows)
        return
    printer = Printer(as_json, num_return_sequences, scores or num_return_sequences > 1)
    warnings.simplefilter("ignore")  # the printer says what was not found, by the name of the row
    try:
        with row_counter(file) as count:
            for rows in _batches(templates, file, from_json):
                for row, found in zip(rows, fill_rows(filler.infiller, rows, filler.picture, options), strict=True):
                    printer.show(row, found, typed=bool(templates))
                sys.stdout.flush()
                count(len(rows))
    except KeyboardInterrupt:
        print(f"stopped; {printer.shown:,} templates were answered", file=sys.stderr)
        raise typer.Exit(130) from None
    if printer.failed:
        raise typer.Exit(1)


def _batches(templates: list[str] | None, file: Path | None, from_json: bool) -> Iterator[list[Row]]:
    """The rows as they come: one that has arrived never waits for one that has not."""
    from bibs.data import Row, is_json_lines, read_rows

    if templates:
        yield [Row(f"template {number}", text) for number, text in enumerate(templates, start=1)]
        return
    name, source = "standard input", sys.stdin.buffer
    if _is_file(file):
        from bibs.data.files import open_bytes

        name, source, from_json = str(file), open_bytes(file), from_json or is_json_lines(file)
    elif sys.stdin.isatty():
        print("A template a line, such as: a man _ _ _ a wave   (Ctrl-D ends)", file=sys.stderr)
    # Where somebody types, each line is asked for once the answers to the last are there.
    prompt = "> " if not _is_file(file) and sys.stdin.isatty() and sys.stderr.isatty() else ""
    with source:
        print(prompt, end="", file=sys.stderr, flush=True)
        for rows in read_rows(source, name, as_json=from_json):
            for first in range(0, len(rows), ROWS_AT_ONCE):
                yield rows[first : first + ROWS_AT_ONCE]
            print(prompt, end="", file=sys.stderr, flush=True)
    if prompt:
        print(file=sys.stderr)  # Ctrl-D leaves the cursor behind the prompt


def _is_file(file: Path | None) -> TypeGuard[Path]:
    return file is not None and str(file) != "-"


@contextmanager
def row_counter(file: Path | None) -> Iterator[Callable[[int], None]]:
    """A bar with an ETA for a file on a terminal, unless the answers go there too; nothing in a pipe."""
    if not _is_file(file) or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from bibs.data import count_lines

    columns = (TextColumn("templates"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False) as bar:
        task = bar.add_task("templates", total=count_lines(file) if file.is_file() else None)  # a pipe is read once
        yield lambda count: bar.advance(task, count)


@dataclass
class Printer:
    """Completions on standard output, what is wrong on standard error too."""

    as_json: bool
    wanted: int
    scores: bool
    failed: bool = False
    shown: int = 0
    begun: bool = False

    def show(self, row: Row, found: list[Completion] | ValueError, *, typed: bool) -> None:
        """`typed` as an argument: an empty one is a mistake then, as an empty line of a file is not."""
        self.shown += 1
        if not (self.as_json or typed or row.error or row.template.strip()):
            return
        from bibs.scale.answers import answer, error_of, json_line

        error = error_of(row, found)
        completions = [] if isinstance(found, ValueError) else found
        if error:
            self.failed = True
            print(f"bibs: {error}", file=sys.stderr)
        elif len(completions) < self.wanted:
            said = f"`num_return_sequences` is {self.wanted}, but only {len(completions)} distinct fills were found"
            print(f"bibs: {row.name}: {said}", file=sys.stderr)
        if self.as_json:
            print(json_line(answer(row, found), _encoding()))
            return
        if completions and self.scores and self.begun:
            print()
        for completion in completions:
            text = completion.text.encode(_encoding(), "backslashreplace").decode(_encoding())
            print(f"{completion.score:.2f}\t{text}" if self.scores else text)
            self.begun = True


def _encoding() -> str:
    return sys.stdout.encoding or "utf-8"
