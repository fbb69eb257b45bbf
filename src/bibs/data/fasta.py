"""FASTA, plain or gzip: a header line after `>`, then one sequence's letters over any number of lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bibs.data.files import read_lines


@dataclass(frozen=True)
class FastaRecord:
    """`letters` stand as in the file: case, unknown letters (N) and gaps are kept."""

    name: str
    description: str
    letters: str


def read_fasta(path: str | Path) -> Iterator[FastaRecord]:
    """The records of a file, one in memory at a time."""
    path = Path(path)
    header: str | None = None
    parts: list[str] = []
    for number, line in read_lines(path):
        if line.startswith(">"):
            if header is not None:
                yield _record(header, parts)
            header, parts = line[1:].strip(), []
        elif line.startswith(";"):
            continue  # a comment, in the format's oldest form
        elif header is None:
            raise ValueError(f"{path}, line {number}: a FASTA file must begin with `>`, but begins {line!r:.40}")
        else:
            parts.append("".join(line.split()))
    if header is None:
        raise ValueError(f"{path} has no FASTA record")
    yield _record(header, parts)


def _record(header: str, parts: list[str]) -> FastaRecord:
    name, _, description = header.partition(" ")
    return FastaRecord(name=name, description=description.strip(), letters="".join(parts))
