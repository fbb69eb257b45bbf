"""What the models are shown beside the words: pictures become vectors, and vectors are checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bibs.models.ngram import NGramModel
from bibs.models.recurrent import RecurrentModel
from bibs.search import StepModel
from bibs.vision import ImageEncoder, encode_each, make_encoder


class PictureReader:
    """Reads pictures for a model; its encoder is made when the first picture comes."""

    def __init__(self, model: StepModel, encoder: ImageEncoder | None) -> None:
        self._model = model
        self._size = _condition_size(model)
        self._encoder_name = _encoder_name(model)
        self._encoder = encoder

    def read(self, images: Any, count: int, *, one: bool) -> list[Any]:
        """Per template: a vector as it is, a picture encoded, None where there is nothing to see, or what is wrong."""
        if images is None:
            return [None] * count
        if one:
            images = [images]
        elif isinstance(images, str | bytes) or not hasattr(images, "__len__"):
            raise ValueError(
                f"`images` must hold one (or None) per template ({count}), but is one picture: {images!r:.60}"
            )
        if len(images) != count:
            raise ValueError(f"`images` must hold one (or None) per template ({count}), but holds {len(images)}")
        pictures = {id(image): image for image in images if image is not None and not _is_vector(image)}
        vectors: dict[int, Any] = {}
        if pictures and self._size != 0:
            self._encoder = self._encoder or make_encoder(self._encoder_name)
            vectors = dict(zip(pictures, encode_each(list(pictures.values()), self._encoder), strict=True))
        return [
            None
            if image is None
            else self._checked("`images`" if one else f"`images[{place}]`", vectors.get(id(image), image))
            for place, image in enumerate(images)
        ]

    def _checked(self, name: str, vector: Any) -> Tensor | ValueError:
        """A vector that the model can read, or what is wrong with it."""
        tensor = _as_numbers(name, vector, self._size)
        if isinstance(tensor, ValueError) or not isinstance(self._model, RecurrentModel):
            return tensor
        if self._model.of_another_encoder(tensor[None]).any():
            return ValueError(f"{name} must be a vector of {self._model.encoder}, but cannot be one")
        return tensor


def _as_numbers(name: str, vector: Any, size: int | None) -> Tensor | ValueError:
    if size == 0:
        return ValueError(f"{name} must be None for models that were trained on words alone, but is not")
    if isinstance(vector, ValueError):
        return ValueError(f"{name}: {vector}")
    if isinstance(vector, np.ndarray) and vector.dtype.kind not in "iufb":
        return ValueError(f"{name} must hold numbers, but holds {vector.dtype}")
    tensor = torch.as_tensor(vector)  # (D,)
    if size not in (None, len(tensor)):
        return ValueError(f"{name} must hold {size} numbers, but holds {len(tensor)}")
    wrong = tensor[~torch.isfinite(tensor)]
    return ValueError(f"{name} must hold finite numbers, but holds {wrong[0].item()}") if len(wrong) else tensor


def _encoder_name(model: StepModel) -> str:
    """The encoder whose vectors a model was trained on; one that does not say had the first that there was."""
    config = getattr(model, "config", None)
    return getattr(config, "encoder", "") or "lite0"


def _condition_size(model: StepModel) -> int | None:
    """How many numbers a model reads of a picture, 0 for none; None where only its owner knows."""
    if isinstance(model, NGramModel):
        return 0
    return getattr(getattr(model, "config", None), "condition_size", None)


def _is_vector(image: Any) -> bool:
    return isinstance(image, (Tensor, np.ndarray)) and image.ndim == 1
