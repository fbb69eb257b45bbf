"""Pictures to vectors. Needs the extra `bibs[vision]`, and says so in one line where that is missing."""

from bibs.vision.efficientnet import EfficientNetLite0, EfficientNetLite2, make_encoder
from bibs.vision.encoder import EncodedBatch, ImageEncoder, encode_each, encode_files
from bibs.vision.extra import MissingExtraError
from bibs.vision.images import ImageLike, load_image

__all__ = [
    "EfficientNetLite0",
    "EfficientNetLite2",
    "EncodedBatch",
    "ImageEncoder",
    "ImageLike",
    "MissingExtraError",
    "encode_each",
    "encode_files",
    "load_image",
    "make_encoder",
]
