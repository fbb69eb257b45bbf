"""Files that are whole or absent: tensors as safetensors, settings as JSON, written beside and renamed."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from bibs.models.products import quantise

SCALES = ".scales"
"""What the scales of a matrix of integers are called, behind its name."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a kill or a full disk leaves the old file or the new one, never a part."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise ValueError(f"{path} could not be written: {error.strerror or error}") from error
    with contextlib.suppress(OSError):  # some file systems cannot sync a folder; the rename still holds
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def make_directory(path: Path) -> None:
    """Make a directory that can be written to, or say why not before any work is done."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{path} cannot be made: {error.strerror or error}") from None
    if not os.access(path, os.W_OK):
        raise ValueError(f"{path} cannot be written to")


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, save(whole, dict(metadata) if metadata else None))


def load_tensors(path: Path) -> dict[str, Tensor]:
    data = read_bytes(path)
    try:
        return load(data)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise ValueError(f"{path} is not a whole safetensors file ({error})") from error


def save_weights(path: Path, weights: Mapping[str, Tensor], dtype: torch.dtype | None) -> None:
    """Write weights in `dtype` (None: as they are); with `torch.int8` every matrix as integers with a scale a row."""
    if dtype == torch.int8:
        save_tensors(path, packed(weights))
    else:
        save_tensors(path, {name: weight.to(dtype or weight.dtype) for name, weight in weights.items()})


def load_weights(path: Path) -> dict[str, Tensor]:
    tensors = load_tensors(path)
    try:
        return unpacked(tensors)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def packed(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every matrix as integers and their scales, all else in float16."""
    result: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if weight.dim() == 2:
            result[name], result[name + SCALES] = quantise(weight.float())
        else:
            result[name] = weight.to(torch.float16)
    return result


def unpacked(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights again; those that were integers are float32."""
    scales_of = {name + SCALES for name in tensors}
    weights = {name: tensor for name, tensor in tensors.items() if name not in scales_of}
    for name, tensor in weights.items():
        if tensor.dtype == torch.int8:
            scales = tensors.get(name + SCALES, torch.empty(0))
            if tensor.dim() != 2 or scales.shape != (len(tensor), 1) or not scales.is_floating_point():
                raise ValueError(f"{name} holds integers, which must have a scale a row")
            weights[name] = tensor * scales.float()
    return weights


def save_json(path: Path, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def load_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(read_bytes(path).decode())
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
            raise ValueError(f"{path} is not valid JSON ({error})") from error
        raise
    except RecursionError:
        raise ValueError(f"{path} is not valid JSON (nested too deeply)") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, but holds a {type(value).__name__}")
    return value


def read_bytes(path: Path) -> bytes:
    if path.exists() and not path.is_file():  # a device may never end
        raise ValueError(f"{path} could not be read: it is not a file")
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} could not be read: {error.strerror or error}") from error


def check_tensors(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], path: Path) -> None:
    """Raise one line if the names or the shapes differ from those of the network that is to hold them."""
    missing = sorted(set(expected) - set(tensors))
    if missing:
        raise ValueError(f"{path} lacks {len(missing)} tensors of the network, the first is {missing[0]}")
    unknown = sorted(set(tensors) - set(expected))
    if unknown:
        raise ValueError(f"{path} holds {len(unknown)} tensors that the network lacks, the first is {unknown[0]}")
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            have, want = tuple(tensor.shape), tuple(expected[name].shape)
            raise ValueError(f"{path}: {name} has shape {have}, but the configuration asks for {want}")
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{path}: {name} holds NaN or infinite numbers")


def load_metadata(path: Path) -> dict[str, str]:
    """The strings that `save_tensors` was given, read without the tensors."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > path.stat().st_size:  # it would be asked of memory first
                raise ValueError(f"{path} has no whole header")
            header = json.loads(file.read(length))
        found = dict(header.get("__metadata__", {}))
        if not all(isinstance(value, str) for value in found.values()):
            raise ValueError(f"{path} holds metadata that are not text")
        return found
    except OSError as error:
        raise ValueError(f"{path} could not be read: {error.strerror or error}") from error
    except (ValueError, TypeError, AttributeError, OverflowError, MemoryError, RecursionError) as error:
        raise ValueError(f"{path} is not a whole safetensors file") from error
