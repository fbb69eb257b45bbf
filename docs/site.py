"""What `make docs` asks of mkdocs beyond mkdocs.yml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COMING = {"comparison.md", "dna.md", "paths.md", "scale.md", "transformers.md"}
"""Pages that may not be there yet. Any other page that the navigation names must exist."""


def on_config(config: Any) -> Any:
    absent = {name for name in COMING if not Path(config["docs_dir"], name).exists()}
    config["nav"] = _without(absent, config["nav"])
    return config


def _without(absent: set[str], entries: list[Any]) -> list[Any]:
    kept = []
    for entry in entries:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            kept.append({title: _without(absent, target)})
        elif target not in absent:
            kept.append(entry)
    return kept
