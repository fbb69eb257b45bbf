"""Readers: from the files the field uses to plain Python values, one clear line for every bad file."""

from bibs.data.captions import VAL_SHARE, CaptionedImage, hold_out, read_captions
from bibs.data.fasta import FastaRecord, read_fasta
from bibs.data.feature_store import FeatureStore
from bibs.data.features import Features
from bibs.data.files import image_id_of
from bibs.data.madlibs import MADLIBS_TYPES, Madlib, madlibs_type, read_madlibs
from bibs.data.pictures import Pictures, find_pictures

__all__ = [
    "MADLIBS_TYPES",
    "VAL_SHARE",
    "CaptionedImage",
    "FastaRecord",
    "FeatureStore",
    "Features",
    "Madlib",
    "Pictures",
    "find_pictures",
    "hold_out",
    "image_id_of",
    "madlibs_type",
    "read_captions",
    "read_fasta",
    "read_madlibs",
]
