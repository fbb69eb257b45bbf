"""DNA: stretches of N in a genome, filled with what related genomes say. `bibs fill --fasta` is this."""

from bibs.dna.files import Summary, check_output, count_gaps, fill_fasta
from bibs.dna.filler import DnaSettings, FilledGap, GapFiller
from bibs.dna.letters import LetterGap, find_gaps, to_letters, to_tokens
from bibs.dna.reference import count_references

__all__ = [
    "DnaSettings",
    "FilledGap",
    "GapFiller",
    "LetterGap",
    "Summary",
    "check_output",
    "count_gaps",
    "count_references",
    "fill_fasta",
    "find_gaps",
    "to_letters",
    "to_tokens",
]
