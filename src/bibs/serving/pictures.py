"""Pictures of requests: bounded before they are decoded, encoded once, and their vectors remembered for a while."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import io
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from torch import Tensor

from bibs.infiller import Infiller
from bibs.vision import MissingExtraError

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
REMEMBERED = 256
"""Vectors that are kept: about a MiB."""


def from_base64(text: str) -> bytes:
    """The bytes of base64 or of a data URL."""
    data = text.partition(",")[2] if text.startswith("data:") else text
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("`image` must be base64 or a data URL, but cannot be decoded") from None


class Pictures:
    def __init__(self, infiller: Infiller, max_pixels: int) -> None:
        self._infiller, self._max_pixels = infiller, max_pixels
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="bibs-pictures")
        self._vectors: OrderedDict[bytes, asyncio.Future[Tensor]] = OrderedDict()
        self.why_not = _why_not(infiller)  # empty where pictures can be read

    async def vector(self, data: bytes) -> Tensor:
        """The vector of a picture; a ValueError where it is none, or too large."""
        if self.why_not:
            raise ValueError(self.why_not)
        digest = hashlib.sha256(data).digest()
        future = self._vectors.get(digest)
        if future is None:
            future = asyncio.get_running_loop().run_in_executor(self._threads, self._encode, data)
            self._vectors[digest] = future
            future.add_done_callback(lambda done: self._settle(digest, done))
        self._vectors.move_to_end(digest)
        # Shielded: others may wait for the same picture.
        return await asyncio.shield(future)

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def _settle(self, digest: bytes, done: asyncio.Future[Tensor]) -> None:
        if done.cancelled() or done.exception() is not None:
            self._vectors.pop(digest, None)
        while len(self._vectors) > REMEMBERED:
            self._vectors.popitem(last=False)

    def _encode(self, data: bytes) -> Tensor:
        image = self._decode(data)
        try:
            return self._infiller.encode(image)
        except ValueError as error:
            raise ValueError(str(error).replace("`images`", "`image`")) from None

    def _decode(self, data: bytes) -> Image:
        from PIL import Image

        try:
            image = Image.open(io.BytesIO(data), formats=FORMATS)  # reads no more than the size
            num_pixels = image.width * image.height
            if num_pixels <= self._max_pixels:
                image.load()
        # Pillow's decoders raise whatever a broken file leads them to.
        except Exception:
            raise ValueError(f"`image` must be a picture ({', '.join(FORMATS)}), but cannot be read as one") from None
        if num_pixels > self._max_pixels:
            raise ValueError(f"`image` must have at most {self._max_pixels} pixels, but has {num_pixels}")
        return image


def _why_not(infiller: Infiller) -> str:
    """Why this service reads no pictures. The encoder is made on the way, so that the first request need not."""
    try:
        from PIL import Image

        infiller.encode(Image.new("RGB", (32, 32)))
    except (ImportError, MissingExtraError):
        return '`image` must be null: the service has no extra for pictures (pip install ".[serve,vision]")'
    except ValueError:
        return "`image` must be null: the model was trained on words alone"
    return ""
