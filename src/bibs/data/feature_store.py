"""A feature store: a folder that image vectors are appended to, and that a kill at any moment leaves whole.

    store.json    which encoder made the vectors, and their size
    vectors.npy   the vectors, float16: a plain NumPy file at any moment
    ids.jsonl     the image id of each row, one JSON value a line
    lock          held by the one process that writes

A batch is kept from the moment its ids are on disk, and these are written only after its vectors are. So whatever
stands behind the last whole line of `ids.jsonl`, in either file, belongs to a batch that was cut off: readers ignore
it, and the next run writes over it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from bibs.data.files import field, parse_json, read_json

if sys.platform != "win32":
    import fcntl

STORE_NAME = "store.json"
VECTORS_NAME = "vectors.npy"
IDS_NAME = "ids.jsonl"
LOCK_NAME = "lock"
_FORMAT = "bibs features 1"
_HEADER_BYTES = 128  # room for any number of rows, so that the header can grow in place


class FeatureStore:
    """The writing side; `Features.load(directory)` is the reading side. Use it in a `with` block."""

    def __init__(self, directory: str | Path, *, encoder: str, size: int) -> None:
        """Open a folder to write, make it where it does not exist, and drop a batch that was cut off."""
        self.directory = Path(directory)
        self.encoder = encoder
        self.size = size
        with contextlib.ExitStack() as opened, _disk_errors(self.directory):
            if not (self.directory / STORE_NAME).exists():
                _create(self.directory, encoder, size)
            opened.enter_context(_locked(self.directory))
            _check_encoder(self.directory, encoder, size)
            self._vectors = opened.enter_context(_open_binary(self.directory / VECTORS_NAME))
            self._journal = opened.enter_context(_open_binary(self.directory / IDS_NAME))
            ids, self._journal_bytes = _journal_ids(self.directory / IDS_NAME)
            self._ids = dict.fromkeys(ids)
            if len(self._ids) != len(ids) or self._room() < len(ids):
                raise ValueError(f"{self.directory} is damaged: {VECTORS_NAME} and {IDS_NAME} do not agree")
            self._cut_back()
            self._opened = opened.pop_all()

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, image_id: object) -> bool:
        return image_id in self._ids

    def append(self, ids: Sequence[int | str], vectors: NDArray[np.floating]) -> None:
        """Keep one batch: `vectors` (n, size) of the n pictures `ids`. All of it is kept, or nothing."""
        self._check_batch(ids, vectors)
        if not ids:
            return
        rows = np.ascontiguousarray(vectors, dtype="<f2")  # (n, size)
        lines = "".join(json.dumps(image_id) + "\n" for image_id in ids).encode()
        with _disk_errors(self.directory, kept=len(self)):
            try:
                _write_at(self._vectors, self._offset(len(self)), rows.tobytes())
                _write_at(self._journal, self._journal_bytes, lines)
            except BaseException:
                with contextlib.suppress(OSError):  # should this fail too, the next run does it
                    self._cut_back()
                raise
        self._ids.update(dict.fromkeys(ids))
        self._journal_bytes += len(lines)
        self._write_header()

    def close(self) -> None:
        self._opened.close()

    def __enter__(self) -> FeatureStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_batch(self, ids: Sequence[int | str], vectors: NDArray[np.floating]) -> None:
        if vectors.shape != (len(ids), self.size):
            expected = (len(ids), self.size)
            raise ValueError(f"`vectors` must have shape {expected}, but has {vectors.shape}")
        if known := [image_id for image_id in ids if image_id in self._ids] or _repeats(ids):
            raise ValueError(f"`ids` must be new to the store, but {known[0]!r} is not")
        with np.errstate(over="ignore"):
            finite = np.isfinite(vectors.astype(np.float16)).all(axis=1)  # (n,)
        if not finite.all():
            unfit = ids[int(np.argmin(finite))]
            raise ValueError(f"`vectors` must be finite and below 65,504, but that of {unfit!r} is not")

    def _offset(self, row: int) -> int:
        return _HEADER_BYTES + row * self.size * 2

    def _room(self) -> int:
        """How many whole rows the file of vectors holds."""
        return max(0, os.fstat(self._vectors.fileno()).st_size - _HEADER_BYTES) // (self.size * 2)

    def _cut_back(self) -> None:
        """Leave what is kept and nothing behind it; takes no room on the disk."""
        self._journal.truncate(self._journal_bytes)
        self._vectors.truncate(self._offset(len(self)))
        self._write_header()

    def _write_header(self) -> None:
        # For those who read the .npy file alone: the ids are what counts. So few bytes are written as one.
        self._vectors.seek(0)
        self._vectors.write(_header(len(self), self.size))


def read_store(directory: Path) -> tuple[NDArray[np.float16], list[int | str]]:
    """The vectors (n, size), memory-mapped, and their ids; fit to be called while another process writes."""
    settings = _read_settings(directory)
    size = field(settings, "size", int, where=str(directory / STORE_NAME))
    ids, _ = _journal_ids(directory / IDS_NAME)
    if not ids:
        return np.empty((0, size), dtype=np.float16), []
    try:
        vectors = np.memmap(
            directory / VECTORS_NAME, dtype="<f2", mode="r", offset=_HEADER_BYTES, shape=(len(ids), size)
        )
    except (OSError, ValueError):
        raise ValueError(f"{directory} is damaged: {VECTORS_NAME} has not the {len(ids)} rows of {IDS_NAME}") from None
    return vectors, ids


def store_encoder(directory: Path) -> str:
    """The name of the encoder that made the vectors."""
    return str(field(_read_settings(directory), "encoder", str, where=str(directory / STORE_NAME)))


def _create(directory: Path, encoder: str, size: int) -> None:
    """Write the settings, in one step; a folder that cannot take them is left as it was."""
    if taken := [name for name in (VECTORS_NAME, IDS_NAME) if (directory / name).exists()]:
        raise ValueError(f"{directory} is no feature store, but holds {taken[0]}: choose another folder")
    settings = {"format": _FORMAT, "encoder": encoder, "size": size, "dtype": "float16"}
    is_new = not directory.exists()
    unfinished = directory / f"{STORE_NAME}.part"
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with unfinished.open("wb") as file:
            file.write(json.dumps(settings, indent=2).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(directory / STORE_NAME)
    except OSError:
        unfinished.unlink(missing_ok=True)
        if is_new:
            directory.rmdir()
        raise


def _check_encoder(directory: Path, encoder: str, size: int) -> None:
    settings = _read_settings(directory)
    found = (settings.get("encoder"), settings.get("size"))
    if found != (encoder, size):
        raise ValueError(
            f"{directory} holds vectors of another encoder ({found[0]}, size {found[1]}), not of {encoder}, "
            f"size {size}: choose another folder"
        )


def _read_settings(directory: Path) -> dict[str, object]:
    path = directory / STORE_NAME
    if not path.exists():
        raise ValueError(f"{directory} is no feature store: it has no {STORE_NAME}")
    settings = read_json(path)
    if field(settings, "format", str, where=str(path)) != _FORMAT:
        raise ValueError(f"{path}: `format` must be {_FORMAT!r}, but is {settings['format']!r}")
    return dict(settings)


def _journal_ids(path: Path) -> tuple[list[int | str], int]:
    """The ids on whole lines, and how many bytes those lines take; the rest was cut off."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], 0  # killed between making the store and its first file
    data = data[: data.rfind(b"\n") + 1]
    ids = [
        parse_json(line.decode("utf-8", "replace"), where=f"{path}, line {number}")
        for number, line in enumerate(data.splitlines(), start=1)
    ]
    return ids, len(data)


def _header(rows: int, size: int) -> bytes:
    """NumPy's own header, format 1.0, padded to a fixed length."""
    text = f"{{'descr': '<f2', 'fortran_order': False, 'shape': ({rows}, {size}), }}"
    start = b"\x93NUMPY\x01\x00" + (_HEADER_BYTES - 10).to_bytes(2, "little")
    return start + text.ljust(_HEADER_BYTES - len(start) - 1).encode() + b"\n"


def _open_binary(path: Path) -> BinaryIO:
    # Unbuffered: what is written is in the system's hands, and a kill of this process cannot take it back.
    return open(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)


def _write_at(file: BinaryIO, offset: int, data: bytes) -> None:
    file.seek(offset)
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
    os.fsync(file.fileno())


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[BinaryIO]:
    with (directory / LOCK_NAME).open("wb") as lock:
        if sys.platform != "win32":
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # let go by the system when this process ends
            except BlockingIOError:
                raise ValueError(f"another process is writing to {directory}") from None
        yield lock


@contextlib.contextmanager
def _disk_errors(directory: Path, *, kept: int | None = None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        rest = "" if kept is None else f"; the {kept} vectors before are kept"
        raise OSError(f"cannot write to {directory}: {error.strerror or error}{rest}") from None


def _repeats(ids: Sequence[int | str]) -> list[int | str]:
    return [image_id for position, image_id in enumerate(ids) if image_id in ids[:position]]
