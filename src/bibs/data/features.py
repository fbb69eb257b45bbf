"""Image vectors on disk, found by image id: a `.npy` matrix (memory-mapped) and the ids of its rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bibs.data.feature_store import read_store, store_encoder
from bibs.data.files import parse_json, read_json, read_lines

ImageId = int | str

_CHUNK = 4096


class Features:
    """Row k of `vectors` (n, size) belongs to the picture `ids[k]`. Rows come back as float32.

    `encoder` names what made the vectors; empty where that is not known.
    """

    def __init__(self, vectors: NDArray[Any], ids: Sequence[ImageId], *, encoder: str = "") -> None:
        if vectors.ndim != 2:
            raise ValueError(f"`vectors` must have two dimensions (pictures, size), but has {vectors.ndim}")
        if vectors.dtype.kind != "f":
            raise ValueError(f"`vectors` must hold floating-point numbers, but holds {vectors.dtype}")
        if len(vectors) != len(ids):
            raise ValueError(f"`ids` must name every row of `vectors`: {len(vectors)} rows, but {len(ids)} ids")
        self.encoder = encoder
        self._vectors = vectors
        self._rows = {image_id: row for row, image_id in enumerate(ids)}
        if len(self._rows) != len(ids):
            raise ValueError(f"`ids` must be distinct, but {_repeated(ids)!r} stands there twice")

    @classmethod
    def load(cls, vectors: str | Path, ids: str | Path | None = None, *, encoder: str = "") -> Features:
        """From a matrix and its ids, or from the directory of a feature store (`bibs features`).

        A store knows its `encoder`; that of a matrix is what it is told to be.
        """
        vectors = Path(vectors)
        if vectors.is_dir():
            if ids is not None:
                raise ValueError(f"`ids` must be left out when `vectors` is a directory, but is {ids}")
            known = store_encoder(vectors)
            if encoder not in ("", known):
                raise ValueError(f"`encoder` must be that of {vectors} ({known}), but is {encoder}")
            return cls(*read_store(vectors), encoder=known)
        if ids is None:
            raise ValueError(f"`ids` must name the file with the image ids of {vectors}, but is missing")
        matrix, names = _open_matrix(vectors), read_ids(Path(ids))
        try:
            return cls(matrix, names, encoder=encoder)
        except ValueError as error:
            raise ValueError(f"{vectors}, {ids}: {error}") from None

    @property
    def size(self) -> int:
        return int(self._vectors.shape[1])

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[ImageId]:
        return iter(self._rows)

    def __contains__(self, image_id: object) -> bool:
        return image_id in self._rows

    def __getitem__(self, image_id: ImageId) -> NDArray[np.float32]:
        if image_id not in self._rows:
            raise KeyError(image_id)
        vector: NDArray[np.float32] = self.rows([image_id])[0]  # (size,)
        return vector

    def missing(self, image_ids: Sequence[ImageId]) -> list[ImageId]:
        return [image_id for image_id in dict.fromkeys(image_ids) if image_id not in self._rows]

    def require(self, image_ids: Sequence[ImageId], argument: str = "features", remedy: str = "") -> None:
        """Refuse features, which somebody gave as `argument`, that lack any of these pictures."""
        if missing := self.missing(image_ids):
            named = ", ".join(map(repr, missing[:5])) + (", ..." if len(missing) > 5 else "")
            counts = f"{len(missing)} of {len(set(image_ids))}"
            raise ValueError(f"`{argument}` must hold every picture, but {counts} have none: {named}{remedy}")

    def rows(self, image_ids: Sequence[ImageId]) -> NDArray[np.float32]:
        self.require(image_ids)
        rows = np.fromiter((self._rows[image_id] for image_id in image_ids), dtype=np.int64)
        vectors = np.asarray(self._vectors[rows], dtype=np.float32)  # (n, size)
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            first = int(np.argmin(finite))
            number = vectors[first][~np.isfinite(vectors[first])][0]
            name = f"the features of picture {image_ids[first]} (row {rows[first]})"
            raise ValueError(f"{name} must be finite numbers, but hold {number}")
        return vectors

    def check(self, image_ids: Sequence[ImageId]) -> None:
        """Read the vectors of these pictures, a few at a time, so that a bad one is named before work begins."""
        for first in range(0, len(image_ids), _CHUNK):
            self.rows(image_ids[first : first + _CHUNK])


def read_ids(path: Path) -> list[ImageId]:
    """Image ids: a JSON list, or one JSON value a line."""
    ids: Any
    if path.suffix == ".jsonl":
        ids = [parse_json(line, where=f"{path}, line {number}") for number, line in read_lines(path)]
    else:
        ids = read_json(path)
        if not isinstance(ids, list):
            raise ValueError(f"{path} must hold a JSON list of image ids, but holds a {type(ids).__name__}")
    for position, image_id in enumerate(ids):
        if not isinstance(image_id, int | str) or isinstance(image_id, bool):
            raise ValueError(
                f"{path}: id {position} must be an integer or a string, but is {json.dumps(image_id)[:40]}"
            )
    return list(ids)


def _open_matrix(path: Path) -> NDArray[Any]:
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise ValueError(f"no such file: {path}") from None
    except (OSError, ValueError, EOFError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path} is not a readable .npy matrix: {reason}") from None
    if not isinstance(matrix, np.ndarray):
        raise ValueError(f"{path} must hold one matrix (.npy), but is an archive (.npz)")
    return matrix


def _repeated(ids: Sequence[ImageId]) -> ImageId:
    seen: set[ImageId] = set()
    for image_id in ids:
        if image_id in seen:
            return image_id
        seen.add(image_id)
    raise AssertionError("called only when an id repeats")
