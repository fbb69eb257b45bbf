"""Pictures need packages that text does not: they come with the extra `bibs[vision]`."""

from __future__ import annotations

import importlib
from typing import Any


class MissingExtraError(ImportError, ValueError):
    """A package of an optional extra is not installed."""


def require(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"pictures need the package `{module.partition('.')[0]}`, which could not be imported ({error}): "
            'pip install ".[vision]"'
        ) from None
