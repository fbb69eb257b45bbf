"""`bibs fill`: templates in, completions out."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from bibs.infiller import Completion, Infiller

LINES_AT_ONCE = 256


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
    seed: Annotated[int, typer.Option(help="For the methods that sample.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per template and line.")] = False,
) -> None:
    """Fill the blanks of templates.

    Example: bibs fill "a man _ _ _ a wave"

    A bad template is named on standard error, the others are filled, and the exit code is 1.
    """
    from bibs.infiller import Infiller

    if model is not None and corpus is not None:
        raise ValueError("`--model` and `--corpus` exclude each other, but both are given")
    if templates and file is not None:
        raise ValueError("templates come as arguments or from `--file`, but both are given")
    if corpus is not None:
        from bibs.data.files import read_lines

        infiller = Infiller.from_corpus((line for _, line in read_lines(corpus)), order=order)
    else:
        infiller = Infiller.from_pretrained(model)
    options = {
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
    bad = 0
    for lines in _batches(_numbered(templates, file)):
        bad += _fill_lines(infiller, lines, image, options, as_json)
    if bad:
        raise typer.Exit(1)


def _numbered(templates: list[str] | None, file: Path | None) -> Iterator[tuple[str, str]]:
    """Each template with the name by which an error calls it."""
    if templates:
        yield from ((f"template {number}", text) for number, text in enumerate(templates, start=1))
    elif file is not None and str(file) != "-":
        from bibs.data.files import read_lines

        yield from ((f"{file}, line {number}", text) for number, text in read_lines(file))
    else:
        for number, raw in enumerate(sys.stdin.buffer, start=1):
            try:
                text = raw.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise ValueError(f"standard input is not UTF-8 text (line {number})") from None
            if text.strip():
                yield f"standard input, line {number}", text


def _batches(lines: Iterator[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    batch: list[tuple[str, str]] = []
    for line in lines:
        batch.append(line)
        if len(batch) == LINES_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _fill_lines(
    infiller: Infiller, lines: list[tuple[str, str]], image: Path | None, options: dict[str, Any], as_json: bool
) -> int:
    """Fill and print the good lines, name the bad ones, and return how many those are."""
    errors: dict[int, str] = {}
    lengths = {name: options[name] for name in ("lengths", "max_length", "num_lengths")}
    for index, (name, text) in enumerate(lines):
        try:
            infiller.parse(text, room=len(options["must_include"]), **lengths)
        except ValueError as error:
            errors[index] = f"{name}: {error}"
    good = [text for index, (_, text) in enumerate(lines) if index not in errors]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = iter(infiller(good, images=None if image is None else [image] * len(good), **options))
    for index, (_, text) in enumerate(lines):
        if index in errors:
            print(f"bibs: {errors[index]}", file=sys.stderr)
            if as_json:
                print(json.dumps({"template": text, "error": errors[index]}, ensure_ascii=False))
        else:
            _print(text, next(found), as_json)
    sys.stdout.flush()
    for warning in said:
        print(f"bibs: {warning.message}", file=sys.stderr)
    return len(errors)


def _print(template: str, completions: list[Completion], as_json: bool) -> None:
    if as_json:
        rows = [asdict(completion) for completion in completions]
        for row in rows:
            del row["trace"]
        print(json.dumps({"template": template, "completions": rows}, ensure_ascii=False))
        return
    for completion in completions:
        print(completion.text)
