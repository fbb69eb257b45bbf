"""Related genomes as a pair of models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bibs.data import read_fasta
from bibs.dna.letters import check_letters, to_tokens
from bibs.models.kmers import Complemented, KmerModel


def count_references(
    paths: Sequence[str | Path], *, order: int = 20, both_strands: bool = True
) -> tuple[KmerModel, KmerModel | Complemented]:
    """Count all records of FASTA files: a model that reads left to right, and one that reads right to left."""
    if not paths:
        raise ValueError("`reference` must name at least one FASTA file, but names none")
    sequences = []
    for path in paths:
        for record in read_fasta(path):
            check_letters(record.name, record.letters, str(path))
            sequences.append(to_tokens(record.letters))
    if not any(sequence.any() for sequence in sequences):
        raise ValueError(f"`reference` must hold at least one base, but {', '.join(map(str, paths))} hold none")
    return KmerModel.count_pair(sequences, order=order, both_strands=both_strands)
