"""What a run was told, in `training/run.json`: whoever resumes it need not say it again, or is told what differs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from bibs.models.storage import load_json, save_json
from bibs.training.pair import FeatureFiles
from bibs.training.settings import TrainingSettings
from bibs.training.sources import Sources

CHECKPOINTS = "training"
"""The folder, inside the model directory, of what is needed to resume."""

RECORD = "run.json"

KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "int | None": (int, type(None)),
    "tuple[int, ...] | None": (list, type(None)),
}
"""By the type of a setting, what JSON has for it."""

FILES = ("data", "texts", "features", "feature_ids", "init")
"""These may have been moved: what they hold is compared by the names of the checkpoints, not where they are."""


@dataclass(frozen=True)
class Record:
    """All options of a run by their names, as JSON has them, and the command that began it."""

    options: Mapping[str, Any]
    command: tuple[str, ...] = ()
    earlier_epochs: tuple[int, ...] = ()  # what `epochs` was, each time that the run was resumed with more

    @staticmethod
    def of(
        sources: Sources,
        settings: TrainingSettings,
        *,
        init: Path | None = None,
        missing: float | None = None,
        command: Sequence[str] = (),
    ) -> Record:
        pictures = sources.features
        options = {
            "data": [_absolute(path) for path in sources.data],
            "texts": [_absolute(path) for path in sources.texts],
            "features": _absolute(pictures.vectors) if pictures else None,
            "feature_ids": _absolute(pictures.ids) if pictures and pictures.ids else None,
            "encoder": pictures.encoder if pictures else "",
            "min_count": sources.min_count,
            "allow_missing_features": sources.allow_missing_features,
            "val_share": sources.val_share,
            "init": _absolute(init) if init else None,
            "missing": missing,
            **asdict(settings),
        }
        return Record(json.loads(json.dumps(options)), tuple(command))

    def resumed_by(self, new: Record) -> Record:
        """This run, gone on with. `epochs` may be more, and `storage` another."""
        for name, value in new.options.items():
            before = self.options.get(name)
            if name in FILES or value == before or (name == "epochs" and value > before) or name == "storage":
                continue
            rule = f"at least {before}" if name == "epochs" else f"{before!r}"
            raise ValueError(
                f"`{name}` must be {rule}, as when this run began, but is {value!r}: leave it out, or train into "
                "another directory"
            )
        before = self.options["epochs"]
        longer = new.options["epochs"] > before
        return replace(self, options=new.options, earlier_epochs=(*self.earlier_epochs, *([before] if longer else [])))

    def save(self, output: Path) -> None:
        save_json(output / CHECKPOINTS / RECORD, asdict(self))


def load_record(output: Path) -> Record | None:
    """What the run in a model directory was told; None where there is none, or an older one that did not write it."""
    path = output / CHECKPOINTS / RECORD
    if not path.exists():
        return None
    values = load_json(path)
    if set(values) != {field.name for field in fields(Record)} or not _are_options(values["options"]):
        raise ValueError(f"{path} is not the record of a training run")
    try:
        record = Record(values["options"], tuple(map(str, values["command"])), tuple(values["earlier_epochs"]))
        read_settings(record.options)
        read_sources(record.options)
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is not the record of a training run ({error})") from None
    return record


def _are_options(options: Any) -> bool:
    """Whether what a file holds has every option of a run, each of the kind that JSON has for it."""
    if not isinstance(options, dict) or not {*FILES, *(field.name for field in fields(TrainingSettings))} <= set(
        options
    ):
        return False
    return all(type(options[field.name]) in KINDS[str(field.type)] for field in fields(TrainingSettings))


def read_sources(options: Mapping[str, Any]) -> Sources:
    features, ids = options["features"], options["feature_ids"]
    return Sources(
        data=tuple(map(Path, options["data"])),
        texts=tuple(map(Path, options["texts"])),
        features=FeatureFiles(Path(features), Path(ids) if ids else None, options["encoder"]) if features else None,
        min_count=options["min_count"],
        allow_missing_features=options["allow_missing_features"],
        val_share=options["val_share"],
    )


def read_settings(options: Mapping[str, Any]) -> TrainingSettings:
    return TrainingSettings(**{field.name: options[field.name] for field in fields(TrainingSettings)})


def _absolute(path: Path) -> str:
    return str(Path(path).absolute())
