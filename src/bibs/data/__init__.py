"""Readers: from the files the field uses to plain Python values, one clear line for every bad file."""

from bibs.data.captions import CaptionedImage, read_captions
from bibs.data.fasta import FastaRecord, read_fasta
from bibs.data.feature_store import FeatureStore
from bibs.data.features import Features
from bibs.data.files import image_id_of
from bibs.data.madlibs import MADLIBS_TYPES, Madlib, madlibs_type, read_madlibs
from bibs.data.pictures import Pictures, find_pictures

__all__ = [
    "MADLIBS_TYPES",
    "CaptionedImage",
    "FastaRecord",
    "FeatureStore",
    "Features",
    "Madlib",
    "Pictures",
    "find_pictures",
    "image_id_of",
    "madlibs_type",
    "read_captions",
    "read_fasta",
    "read_madlibs",
]
