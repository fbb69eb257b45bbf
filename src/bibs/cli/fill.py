"""`bibs fill`: templates in, completions out."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from bibs.infiller import Completion

LINES_AT_ONCE = 256
BYTES_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Line:
    """A template, and the name by which an error calls it; `error` where it cannot even be read."""

    name: str
    text: str
    error: str = ""
    typed: bool = False  # as an argument: an empty one is a mistake, an empty line of a file is none


def fill(
    templates: Annotated[
        list[str] | None,
        typer.Argument(
            help="Text with `_` for each missing word, `___` for an unknown number. Without any: standard input."
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read templates from a file, one a line; - is standard input.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="A model directory; by default the bundled one.")] = None,
    corpus: Annotated[Path | None, typer.Option(help="Count an n-gram pair from this text file instead.")] = None,
    order: Annotated[int, typer.Option(help="The order of the n-grams of --corpus.")] = 3,
    image: Annotated[Path | None, typer.Option(help="A picture that the templates describe.")] = None,
    must_include: Annotated[
        list[str] | None, typer.Option(help="A word that must stand in a blank of every template; may be repeated.")
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
    max_length: Annotated[int, typer.Option(help="The most words that `___` may have.")] = 20,
    num_lengths: Annotated[
        int, typer.Option(help="How many lengths of `___` are searched, those that look best; 0 for all.")
    ] = 3,
    start: Annotated[
        str, typer.Option(help="Where the search begins: both ends, backward (the paper) or forward.")
    ] = "both",
    max_words: Annotated[int, typer.Option(help="The most words that a template may have.")] = 100,
    seed: Annotated[int, typer.Option(help="For the methods that sample.")] = 0,
    scores: Annotated[
        bool, typer.Option("--scores", help="A score and a tab before each completion, as with -n above 1.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per template and line.")] = False,
) -> None:
    """Fill the blanks of templates.

    Example: bibs fill "a man _ _ _ a wave"

    A bad template is named on standard error, the others are filled, and the exit code is 1. With --json, every line
    in is one object out, with an `error` where there is one.
    """
    from bibs.infiller import Infiller

    if model is not None and corpus is not None:
        raise ValueError("`--model` and `--corpus` exclude each other, but both are given")
    if templates and file is not None:
        raise ValueError("templates come as arguments or from `--file`, but both are given")
    if corpus is not None:
        from bibs.data.files import read_lines

        infiller = Infiller.from_corpus((line for _, line in read_lines(corpus)), order=order, max_words=max_words)
    else:
        infiller = Infiller.from_pretrained(model, max_words=max_words)
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
        "max_length": max_length,
        "num_lengths": num_lengths or None,
        "start": start,
        "seed": seed,
    }
    printer = Printer(as_json, num_return_sequences, scores or num_return_sequences > 1)
    warnings.simplefilter("ignore")  # the printer says what was not found, by the name of the line
    for lines in _batches(templates, file):
        read = [line for line in lines if not line.error]
        images = None if picture is None else [picture] * len(read)
        found = iter(infiller([line.text for line in read], images=images, on_error="return", **options))
        for line in lines:
            printer.show(line, ValueError(line.error) if line.error else next(found))
        sys.stdout.flush()
    if printer.failed:
        raise typer.Exit(1)


def _batches(templates: list[str] | None, file: Path | None) -> Iterator[list[Line]]:
    """The templates as they come: a line that has arrived never waits for one that has not."""
    if templates:
        yield [Line(f"template {number}", text, typed=True) for number, text in enumerate(templates, start=1)]
        return
    name, source = "standard input", sys.stdin.buffer
    if file is not None and str(file) != "-":
        from bibs.data.files import open_bytes

        name, source = str(file), open_bytes(file)
    elif sys.stdin.isatty():
        print("A template a line, such as: a man _ _ _ a wave   (Ctrl-D ends)", file=sys.stderr)
    numbers = count(1)
    with source:
        for arrived in _arriving(source):
            lines = [_read(raw, f"{name}, line {next(numbers)}") for raw in arrived]
            for first in range(0, len(lines), LINES_AT_ONCE):
                yield lines[first : first + LINES_AT_ONCE]


def _arriving(source: Any) -> Iterator[list[bytes]]:
    """The lines of a stream, as many at a time as one read of it gives."""
    from bibs.data.files import DAMAGED

    rest = b""
    try:
        while chunk := source.read1(BYTES_AT_ONCE):
            *lines, rest = (rest + chunk).split(b"\n")
            yield lines
    except DAMAGED as error:
        raise ValueError(f"{source.name} is a damaged gzip file: {error}") from None
    if rest:
        yield [rest]


def _read(raw: bytes, name: str) -> Line:
    text = raw.decode("utf-8-sig", errors="replace").rstrip("\r")
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return Line(name, text, "it is not UTF-8 text")
    return Line(name, text)


@dataclass
class Printer:
    """Completions on standard output, what is wrong on standard error too."""

    as_json: bool
    wanted: int
    scores: bool
    failed: bool = False
    begun: bool = False

    def show(self, line: Line, found: list[Completion] | ValueError) -> None:
        if not self.as_json and not line.typed and not line.text.strip():
            return
        error = f"{line.name}: {found}" if isinstance(found, ValueError) else ""
        completions = [] if isinstance(found, ValueError) else found
        if not error and not completions:
            error = (
                f"{line.name}: nothing was found: no fill has a probability above 0 (fewer `--bad-word` or "
                "`--must-include`, or other lengths, may help)"
            )
        if error:
            self.failed = True
            print(f"bibs: {error}", file=sys.stderr)
        elif len(completions) < self.wanted:
            said = f"`num_return_sequences` is {self.wanted}, but only {len(completions)} distinct fills were found"
            print(f"bibs: {line.name}: {said}", file=sys.stderr)
        if self.as_json:
            print(json.dumps(_row(line.text, completions, error), ensure_ascii=False))
            return
        if completions and self.scores and self.begun:
            print()
        for completion in completions:
            print(f"{completion.score:.2f}\t{completion.text}" if self.scores else completion.text)
            self.begun = True


def _row(template: str, completions: list[Completion], error: str) -> dict[str, Any]:
    rows = [asdict(completion) for completion in completions]
    for row in rows:
        for name in ("trace", "words", "start_score", "end_score"):  # not asked for here
            del row[name]
    return {"template": template, "completions": rows, **({"error": error} if error else {})}
