"""What a network must offer to turn pictures into vectors, and how many pictures are encoded at once."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from bibs.vision.images import ImageLike, load_image

if TYPE_CHECKING:
    from PIL.Image import Image


# Pictures that a thread holds decoded, in full size. More is no faster, and large photos fill the memory.
_PICTURES_AT_ONCE = 4


class ImageEncoder(Protocol):
    """Any network (the paper's VGG-16, say) is one small class. `encode` may be called from several threads."""

    @property
    def name(self) -> str:
        """Names the network and its input, so that vectors of two encoders are never mixed in one store."""
        ...

    @property
    def size(self) -> int: ...

    def encode(self, images: Sequence[ImageLike]) -> NDArray[np.float32]:
        """Vectors (n, size) of n pictures, in order."""
        ...


@dataclass(frozen=True)
class EncodedBatch:
    """`vectors[k]` (size,) belongs to `paths[k]`; `failures` are the pictures left out, each with its reason."""

    paths: tuple[Path, ...]
    vectors: NDArray[np.float32]
    failures: tuple[tuple[Path, str], ...]


def encode_files(
    paths: Iterable[Path], encoder: ImageEncoder, *, batch_size: int = 16, num_threads: int | None = None
) -> Iterator[EncodedBatch]:
    """Decode and encode picture files, a batch a thread, in the order given.

    A picture that cannot be read is a failure of its batch, and the run goes on.
    """
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be at least 1, but is {batch_size}")
    if num_threads is not None and num_threads < 1:
        raise ValueError(f"`num_threads` must be at least 1, but is {num_threads}")
    return _encode_files(iter(paths), encoder, batch_size, num_threads or _num_cores())


def _encode_files(
    paths: Iterator[Path], encoder: ImageEncoder, batch_size: int, num_threads: int
) -> Iterator[EncodedBatch]:
    pool = ThreadPoolExecutor(num_threads, thread_name_prefix="bibs-encode")
    running: deque[Future[EncodedBatch]] = deque()
    try:
        while batch := tuple(islice(paths, batch_size)):
            running.append(pool.submit(_encode_batch, batch, encoder))
            # Two batches a thread keep every thread busy, and memory small however long the list is.
            if len(running) >= 2 * num_threads:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _encode_batch(paths: Sequence[Path], encoder: ImageEncoder) -> EncodedBatch:
    parts = [
        _encode_part(paths[start : start + _PICTURES_AT_ONCE], encoder)
        for start in range(0, len(paths), _PICTURES_AT_ONCE)
    ]
    return EncodedBatch(
        paths=tuple(path for part in parts for path in part.paths),
        vectors=np.concatenate([part.vectors for part in parts]),  # (n, size)
        failures=tuple(failure for part in parts for failure in part.failures),
    )


def encode_each(images: Sequence[ImageLike], encoder: ImageEncoder) -> list[NDArray[np.float32] | ValueError]:
    """The vector (size,) of each picture, or what is wrong with it."""
    try:
        return list(np.asarray(encoder.encode(images)))
    except ValueError as error:
        if len(images) == 1:
            return [error]
        return [vector for image in images for vector in encode_each([image], encoder)]


def _encode_part(paths: Sequence[Path], encoder: ImageEncoder) -> EncodedBatch:
    images: dict[Path, Image] = {}
    failures: list[tuple[Path, str]] = []
    for path in paths:
        try:
            images[path] = load_image(path)
        except ValueError as error:
            failures.append((path, str(error)))
    vectors = np.asarray(encoder.encode(list(images.values())), dtype=np.float32)
    expected = (len(images), encoder.size)
    if vectors.shape != expected:
        raise ValueError(f"the encoder {encoder.name} must return shape {expected}, but gave {vectors.shape}")
    return EncodedBatch(paths=tuple(images), vectors=vectors, failures=tuple(failures))


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
