"""Any picture as 8-bit RGB, upright."""

from __future__ import annotations

import io
import threading
import warnings
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bibs.vision.extra import require

if TYPE_CHECKING:
    from PIL.Image import Image

ImageLike: TypeAlias = "str | Path | bytes | IO[bytes] | Image | NDArray[Any] | Tensor"
"""A path, a file's contents, an open file, a Pillow image, or an array of uint8, uint16 or floats from 0 to 1.

An array is (height, width[, 1, 3 or 4]); a tensor may have its colours first, as torch has them.
"""

_ORIENTATION = 0x0112  # EXIF
_SIXTEEN_TO_EIGHT = 257  # 65535 / 255
_opening = threading.Lock()


def load_image(source: ImageLike) -> Image:
    """The picture as Pillow's RGB: EXIF rotation applied, transparency laid on white, 16 bits scaled to 8.

    A picture that cannot be read, or that would unpack to more than Pillow's `MAX_IMAGE_PIXELS`, is a ValueError.
    """
    pillow = require("PIL.Image")
    if isinstance(source, Tensor):
        source = _colours_last(source).detach().cpu().numpy()
    if isinstance(source, np.ndarray):
        return _to_rgb(_from_array(source))
    if isinstance(source, str | Path | bytes) or hasattr(source, "read"):
        name = source if isinstance(source, str | Path) else getattr(source, "name", "it")
        try:
            with _open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
                image.load()
                return _to_rgb(_upright(image))
        # Pillow's decoders raise whatever a broken file leads them to (struct.error, IndexError, SyntaxError, ...).
        except Exception as error:
            raise ValueError(f"{name} cannot be read as a picture: {_reason(error)}") from None
    if isinstance(source, pillow.Image):
        return _to_rgb(_upright(source))
    kind = type(source).__name__
    raise ValueError(f"`image` must be a path, bytes, an open file, a Pillow image or an array, but is a {kind}")


def _colours_last(tensor: Tensor) -> Tensor:
    colours = (1, 3, 4)
    first = tensor.ndim == 3 and tensor.shape[0] in colours and tensor.shape[2] not in colours
    return tensor.permute(1, 2, 0) if first else tensor


def _open(source: Any) -> Image:
    pillow = require("PIL.Image")
    # Pillow only warns of a picture of one to two times its limit. Warning filters belong to the whole process,
    # hence the lock; only the header is read under it.
    with _opening, warnings.catch_warnings():
        warnings.simplefilter("error", pillow.DecompressionBombWarning)
        image: Image = pillow.open(source)
        return image


def _upright(image: Image) -> Image:
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # a picture is not worse for unreadable notes about it
        return image
    if orientation in range(2, 9):
        turned: Image = require("PIL.ImageOps").exif_transpose(image)
        return turned
    return image


def _to_rgb(image: Image) -> Image:
    pillow = require("PIL.Image")
    if image.mode.startswith("I") or image.mode == "F":
        return _eight_bits(image).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = pillow.new("RGBA", image.size, "white")
        return pillow.alpha_composite(white, image).convert("RGB")  # type: ignore[no-any-return]
    return image if image.mode == "RGB" else image.convert("RGB")


def _eight_bits(image: Image) -> Image:
    # Pillow's own conversion would clip everything above 255 to white.
    values = np.asarray(image, dtype=np.float64)
    if image.mode != "F":
        values = values / _SIXTEEN_TO_EIGHT
    elif values.max(initial=0) <= 1:
        values = values * 255
    grey: Image = require("PIL.Image").fromarray(np.clip(np.rint(values), 0, 255).astype(np.uint8))
    return grey


def _from_array(array: NDArray[Any]) -> Image:
    shape = array.shape
    if array.ndim == 3 and shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and shape[2] not in (3, 4)) or array.size == 0:
        raise ValueError(f"`image` must have shape (height, width[, 1, 3 or 4]), but has {shape}")
    if array.dtype == np.uint16:
        array = np.rint(array / _SIXTEEN_TO_EIGHT)
    elif array.dtype.kind == "f":
        if not (array.min() >= 0 and array.max() <= 1):
            raise ValueError("`image` must hold floats from 0 to 1 (or uint8), but holds values outside")
        array = np.rint(array * 255)
    elif array.dtype != np.uint8:
        raise ValueError(f"`image` must hold uint8, uint16 or floats from 0 to 1, but holds {array.dtype}")
    image: Image = require("PIL.Image").fromarray(np.ascontiguousarray(array, dtype=np.uint8))
    return image


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if "cannot identify image file" in text:
        return "no known picture format"
    if type(error).__name__.startswith("DecompressionBomb"):
        return f"too many pixels ({text})"
    return getattr(error, "strerror", None) or text
