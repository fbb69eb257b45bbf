"""Readers of captions and features: from the files the field uses to plain Python values."""

from bibs.data.captions import CaptionedImage, read_captions
from bibs.data.features import Features

__all__ = ["CaptionedImage", "Features", "read_captions"]
