"""`bibs fill`: templates in, completions out."""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard

import typer

from bibs.cli.fill_genome import GENOME_OPTIONS, fill_genome, refuse_options

if TYPE_CHECKING:
    from torch import Tensor

    from bibs.data import Row
    from bibs.infiller import Completion, Infiller

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
        float, typer.Option(help="What a word loses for each completion before that holds it: 2 makes them differ.")
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
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where --fasta writes; a .tsv and a .bed stand beside it.")
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

    A genome: bibs fill --fasta genome.fa.gz --reference relatives/*.fa.gz --output filled.fa
    """
    if fasta is not None:
        fill_genome(context, fasta, output)
        return
    refuse_options(context, [*GENOME_OPTIONS, "output"], "needs `--fasta`")
    from bibs.infiller import Infiller

    if model is not None and corpus is not None:
        raise ValueError("`--model` and `--corpus` exclude each other, but both are given")
    if templates and file is not None:
        raise ValueError("templates come as arguments or from `--file`, but both are given")
    if corpus is not None:
        from bibs.data.files import read_lines

        infiller = Infiller.from_corpus(
            (line for _, line in read_lines(corpus)), order=3 if order is None else order, max_words=max_words
        )
    else:
        infiller = Infiller.from_pretrained(model, max_words=max_words, precision=precision)
    picture = None if image is None else infiller.encode(image)
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
    infiller([], **options)  # what is wrong with an option is said before anything is read
    printer = Printer(as_json, num_return_sequences, scores or num_return_sequences > 1)
    warnings.simplefilter("ignore")  # the printer says what was not found, by the name of the row
    try:
        with row_counter(file) as count:
            for rows in _batches(templates, file, from_json):
                for row, found in zip(rows, _fill_rows(infiller, rows, picture, options), strict=True):
                    printer.show(row, found, typed=bool(templates))
                sys.stdout.flush()
                count(len(rows))
    except KeyboardInterrupt:
        print(f"stopped; {printer.shown:,} templates were answered", file=sys.stderr)
        raise typer.Exit(130) from None
    if printer.failed:
        raise typer.Exit(1)


def _fill_rows(
    infiller: Infiller, rows: Sequence[Row], picture: Tensor | None, options: dict[str, Any]
) -> Iterator[list[Completion] | ValueError]:
    """What was found for each row; a row's own picture and words go before and beside those of the command."""
    read = [row for row in rows if not row.error]
    paths = {row.image: row.image for row in read}  # the same object where it is the same picture: it is encoded once
    images = [picture if row.image is None else paths[row.image] for row in read]
    if any(row.must_include for row in read):
        options = {**options, "must_include": [[*options["must_include"], *row.must_include] for row in read]}
    given = None if all(image is None for image in images) else images
    found = iter(infiller([row.template for row in read], images=given, on_error="return", **options))
    return (ValueError(row.error) if row.error else next(found) for row in rows)


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
    with source:
        for rows in read_rows(source, name, as_json=from_json):
            for first in range(0, len(rows), ROWS_AT_ONCE):
                yield rows[first : first + ROWS_AT_ONCE]


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
        error = f"{row.name}: {_as_row(str(found))}" if isinstance(found, ValueError) else ""
        completions = [] if isinstance(found, ValueError) else found
        if not error and not completions:
            error = (
                f"{row.name}: nothing was found: no fill has a probability above 0 (fewer `--bad-word` or "
                "`--must-include`, or other lengths, may help)"
            )
        if error:
            self.failed = True
            print(f"bibs: {error}", file=sys.stderr)
        elif len(completions) < self.wanted:
            said = f"`num_return_sequences` is {self.wanted}, but only {len(completions)} distinct fills were found"
            print(f"bibs: {row.name}: {said}", file=sys.stderr)
        if self.as_json:
            print(json.dumps(_answer(row, completions, error), ensure_ascii=False))
            return
        if completions and self.scores and self.begun:
            print()
        for completion in completions:
            print(f"{completion.score:.2f}\t{completion.text}" if self.scores else completion.text)
            self.begun = True


def _as_row(message: str) -> str:
    """A row has one picture: its place among those that were searched together is nobody's business."""
    return re.sub(r"`images\[\d+\]`", "`image`", message)


def _answer(row: Row, completions: list[Completion], error: str) -> dict[str, Any]:
    filled = [asdict(completion) for completion in completions]
    for each in filled:
        for name in ("trace", "words", "start_score", "end_score"):  # not asked for here
            del each[name]
    named = {} if row.id is None else {"id": row.id}
    return {**named, "template": row.template, "completions": filled, **({"error": error} if error else {})}
