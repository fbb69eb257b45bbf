"""Readers: from the files the field uses to plain Python values, one clear line for every bad file."""

from bibs.data.captions import VAL_SHARE, CaptionedImage, hold_out, read_captions
from bibs.data.fasta import FastaRecord, read_fasta
from bibs.data.feature_store import FeatureStore
from bibs.data.features import Features
from bibs.data.files import image_id_of
from bibs.data.madlibs import MADLIBS_TYPES, Madlib, madlibs_type, read_madlibs
from bibs.data.pictures import Pictures, find_pictures
from bibs.data.rows import Row, count_lines, is_json_lines, read_rows, row_of

__all__ = [
    "MADLIBS_TYPES",
    "VAL_SHARE",
    "CaptionedImage",
    "FastaRecord",
    "FeatureStore",
    "Features",
    "Madlib",
    "Pictures",
    "Row",
    "count_lines",
    "find_pictures",
    "hold_out",
    "image_id_of",
    "is_json_lines",
    "madlibs_type",
    "read_captions",
    "read_fasta",
    "read_madlibs",
    "read_rows",
    "row_of",
]
