"""Fill in the blanks with two models that each read in one direction.

Each name is imported when it is first asked for, so that `bibs --help` need not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bibs.infiller import Completion, Infiller
    from bibs.methods import bidirectional_beam_search, fill_templates
    from bibs.models import MatrixModel, from_next_token
    from bibs.search import Fill, Gap, StepModel
    from bibs.text import Template, Vocabulary
    from bibs.words import Word

__version__ = "0.1.0"

__all__ = [
    "Completion",
    "Fill",
    "Gap",
    "Infiller",
    "MatrixModel",
    "StepModel",
    "Template",
    "Vocabulary",
    "Word",
    "bidirectional_beam_search",
    "fill_templates",
    "from_next_token",
]

_HOMES = {
    "Completion": "infiller",
    "Infiller": "infiller",
    "bidirectional_beam_search": "methods",
    "fill_templates": "methods",
    "MatrixModel": "models",
    "from_next_token": "models",
    "Fill": "search",
    "Gap": "search",
    "StepModel": "search",
    "Template": "text",
    "Vocabulary": "text",
    "Word": "words",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
