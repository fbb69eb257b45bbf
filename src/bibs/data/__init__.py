"""Readers: from the files the field uses to plain Python values, one clear line for every bad file."""

from bibs.data.captions import CaptionedImage, read_captions
from bibs.data.fasta import FastaRecord, read_fasta
from bibs.data.features import Features
from bibs.data.files import image_id_of
from bibs.data.madlibs import MADLIBS_TYPES, Madlib, madlibs_type, read_madlibs

__all__ = [
    "MADLIBS_TYPES",
    "CaptionedImage",
    "FastaRecord",
    "Features",
    "Madlib",
    "image_id_of",
    "madlibs_type",
    "read_captions",
    "read_fasta",
    "read_madlibs",
]
