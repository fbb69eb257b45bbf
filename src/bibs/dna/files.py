"""A genome in, the same genome with its gaps filled out: FASTA, and what became of each gap as TSV and BED."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bibs.data import FastaRecord, read_fasta
from bibs.dna.filler import FLANK, FilledGap, GapFiller
from bibs.dna.letters import LetterGap, check_letters, find_gaps

GAPS_AT_ONCE = 256
LETTERS_AT_ONCE = 50_000_000
"""Records are read until there are so many gaps, or letters, to work on."""

LINE = 80

COLUMNS = (
    *("record", "start", "end", "length", "status", "filled_start", "filled_end", "score", "margin", "right"),
    *("identity", "left_support", "right_support", "reason"),
)


@dataclass
class Summary:
    records: int = 0
    letters: int = 0
    gaps: int = 0
    filled: int = 0
    letters_filled: int = 0
    lower_case: int = 0

    def as_text(self) -> str:
        said = f"{self.filled:,} of {self.gaps:,} gaps filled ({self.letters_filled:,} letters)"
        left = self.gaps - self.filled
        said += f"; {left:,} left as N, the table says why" if left else ""
        if self.lower_case:
            said += f"; {self.lower_case:,} lower-case letters are now upper-case, so that lower case means filled"
        return said


def tables_of(output: Path) -> tuple[Path, Path]:
    """The TSV and the BED file that belong to a FASTA file."""
    stem = output.name.removesuffix(".gz")
    stem = stem.rpartition(".")[0] or stem
    return output.with_name(f"{stem}.tsv"), output.with_name(f"{stem}.bed")


def check_output(output: Path, sources: Sequence[Path]) -> None:
    """Refuse an output that would write over what is read, or one of whose files would write over another."""
    tables = tables_of(output)
    if output in tables:
        raise ValueError(f"`output` must be the FASTA file, but {output} is the name of a table that stands beside it")
    for source in sources:
        if source.resolve() in [path.resolve() for path in (output, *tables)]:
            raise ValueError(f"`output` must not write over {source}, from which it is made")


def count_gaps(genome: Path) -> int:
    """How many gaps a file has. What is wrong with it is said here, before anything is filled."""
    gaps = 0
    for record in read_fasta(genome):
        check_letters(record.name, record.letters, str(genome))
        gaps += sum(1 for _ in find_gaps(record.name, record.letters, 0))
    return gaps


def fill_fasta(
    genome: Path, output: Path, fill: GapFiller, progress: Callable[[int], None] = lambda gaps: None
) -> Summary:
    """Write `output` and its two tables, a few records at a time. They appear when they are whole."""
    check_output(output, [genome])
    paths = (output, *tables_of(output))
    parts = [path.with_name(path.name + ".part") for path in paths]
    summary = Summary()
    try:
        with ExitStack() as stack:
            fasta, table, bed = (
                stack.enter_context(_open(part, packed=path.suffix == ".gz"))
                for path, part in zip(paths, parts, strict=True)
            )
            table.write("\t".join(COLUMNS) + "\n")
            for records in _several(read_fasta(genome)):
                gaps = [list(find_gaps(record.name, record.letters, FLANK)) for record in records]
                found = iter(_fill_all(fill, [gap for several in gaps for gap in several], progress))
                for record, several in zip(records, gaps, strict=True):
                    _write(record, [next(found) for _ in several], summary, fasta, table, bed)
    except BaseException:
        for part in parts:
            part.unlink(missing_ok=True)
        raise
    for part, path in zip(parts, paths, strict=True):
        part.replace(path)
    return summary


def _several(records: Iterator[FastaRecord]) -> Iterator[list[FastaRecord]]:
    """Records until there is enough to do: one alone would make small batches."""
    some: list[FastaRecord] = []
    gaps = letters = 0
    for record in records:
        some.append(record)
        letters += len(record.letters)
        gaps += sum(1 for _ in find_gaps(record.name, record.letters, 0))
        if gaps >= GAPS_AT_ONCE or letters >= LETTERS_AT_ONCE:
            yield some
            some, gaps, letters = [], 0, 0
    if some:
        yield some


def _fill_all(fill: GapFiller, gaps: Sequence[LetterGap], progress: Callable[[int], None]) -> list[FilledGap]:
    found: list[FilledGap] = []
    for first in range(0, len(gaps), GAPS_AT_ONCE):
        some = gaps[first : first + GAPS_AT_ONCE]
        found += fill(some)
        progress(len(some))
    return found


def _write(
    record: FastaRecord,
    gaps: Sequence[FilledGap],
    summary: Summary,
    fasta: IO[str],
    table: IO[str],
    bed: IO[str],
) -> None:
    """One record. Known letters become upper-case, so that lower case says what was filled."""
    pieces: list[str] = []
    behind, shift = 0, 0  # the end of the gap before; how much longer the record has become
    for filled in gaps:
        gap = filled.gap
        new = filled.letters.lower() or "N" * gap.length
        pieces += [record.letters[behind : gap.start].upper(), new]
        start, behind = gap.start + shift, gap.end
        shift += len(new) - gap.length
        _write_row(filled, start, start + len(new), table, bed)
        summary.filled += bool(filled.letters)
        summary.letters_filled += len(filled.letters)
    pieces.append(record.letters[behind:].upper())
    whole = "".join(pieces)
    summary.records, summary.gaps = summary.records + 1, summary.gaps + len(gaps)
    summary.letters += len(whole)
    summary.lower_case += sum(record.letters.count(letter) for letter in "acgturyswkmbdhv")
    fasta.write(f">{record.name} {record.description}".rstrip() + "\n")
    fasta.writelines(whole[first : first + LINE] + "\n" for first in range(0, len(whole), LINE))


def _write_row(filled: FilledGap, start: int, end: int, table: IO[str], bed: IO[str]) -> None:
    gap, done = filled.gap, bool(filled.letters)
    claims = (f"{filled.score:.3f}", f"{filled.margin:.3f}", f"{filled.right:.4f}", f"{filled.identity:.4f}")
    row = (gap.record, gap.start, gap.end, gap.length, "filled" if done else "left", start, end)
    row += (*(claims if done else [""] * len(claims)), *filled.support, filled.reason)
    table.write("\t".join(map(str, row)) + "\n")
    bed_row = (gap.record, start, end, "filled" if done else "left", round(1000 * filled.identity) if done else 0, ".")
    bed.write("\t".join(map(str, bed_row)) + "\n")


def _open(path: Path, *, packed: bool) -> IO[str]:
    try:
        if packed:
            return io.TextIOWrapper(gzip.open(path, "wb"), encoding="utf-8", newline="\n")
        return path.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise ValueError(f"`output` cannot be written: {path}: {error.strerror}") from None
