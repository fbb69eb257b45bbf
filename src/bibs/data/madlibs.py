"""Visual Madlibs (Yu et al., ICCV 2015): sentences about a picture with one blank, and people's answers.

Two layouts are read: the official `tr_<type>.json`, and JSON lines with `left`, `blank` and `right`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bibs.data.files import field, parse_json, read_json, read_lines

MADLIBS_TYPES: dict[int, str] = {
    1: "scenes",
    2: "emotions",
    3: "interesting",
    4: "pasts",
    5: "futures",
    6: "object_attributes",
    7: "object_affordances",
    8: "object_positions",
    9: "person_attributes",
    10: "person_activities",
    11: "person_locations",
    12: "pair_relationships",
}
"""The twelve types by their number in the paper and by the name that stands in the official file's name."""

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Madlib:
    """One sentence `left ... right` with a blank between, and the answers given for it.

    `person_ids` and `object_ids` are COCO annotation ids; boxes are x0, y0, x1, y1, fractions of the picture.
    """

    id: int | str
    image_id: int
    type: int
    split: str
    left: str
    right: str
    answers: tuple[str, ...]
    person_ids: tuple[int, ...] = ()
    object_ids: tuple[int, ...] = ()
    person_box: Box | None = None
    object_box: Box | None = None


def madlibs_type(name: int | str) -> int:
    """The number of a type given by number, by name ("futures") or by its file's name ("tr_futures")."""
    if isinstance(name, int):
        if name in MADLIBS_TYPES:
            return name
    else:
        for number, known in MADLIBS_TYPES.items():
            if _stem(name) == _stem(known):
                return number
    known_names = ", ".join(f"{number} {known}" for number, known in MADLIBS_TYPES.items())
    raise ValueError(f"`type` must be one of {known_names}, but is {name!r}")


def read_madlibs(path: str | Path, *, type: int | str | None = None) -> Iterator[Madlib]:
    """Read either layout; `type` keeps one type only, and names it for an official file called otherwise."""
    path = Path(path)
    wanted = None if type is None else madlibs_type(type)
    if not path.exists():
        raise ValueError(f"no such file: {path}")
    if ".jsonl" in path.suffixes:
        madlibs = _derived(path)
        return madlibs if wanted is None else _of_type(madlibs, wanted, path)
    return _official(path, read_json(path), wanted)


def _of_type(madlibs: Iterator[Madlib], wanted: int, path: Path) -> Iterator[Madlib]:
    found = False
    for madlib in madlibs:
        if madlib.type == wanted:
            found = True
            yield madlib
    if not found:
        raise ValueError(f"{path} holds no Madlib of type {wanted} ({MADLIBS_TYPES[wanted]})")


def _official(path: Path, data: Any, wanted: int | None) -> Iterator[Madlib]:
    if not isinstance(data, dict) or len(data) != 1:
        raise ValueError(f"{path} must hold one object with one key, as in {{'tr_futures': [...]}}")
    (key,) = data
    try:
        number = madlibs_type(key)
    except ValueError as error:
        if wanted is None:
            raise ValueError(f"{path}: {error}") from None
        number = wanted
    if wanted is not None and number != wanted:
        raise ValueError(f"{path} holds type {number} ({MADLIBS_TYPES[number]}), not {wanted}")
    return _official_entries(path, key, field(data, key, list, where=str(path)), number)


def _official_entries(path: Path, key: str, entries: list[Any], number: int) -> Iterator[Madlib]:
    if not entries:
        raise ValueError(f"{path}: `{key}` is empty")
    for index, entry in enumerate(entries):
        where = f"{path}: {key}[{index}]"
        prompt = _list_of(entry, "prompt", str, where=where)
        if not 1 <= len(prompt) <= 2:
            raise ValueError(
                f"{where}: `prompt` must be the text before and after the blank, but has {len(prompt)} parts"
            )
        answers = _list_of(entry, "fitbs", str, where=where)
        if not answers:
            raise ValueError(f"{where}: `fitbs` must hold at least one answer, but is empty")
        yield Madlib(
            id=index,
            image_id=field(entry, "image_id", int, where=where),
            type=number,
            split="train",  # the official val and test files are multiple-choice questions, another layout
            left=prompt[0].strip(),
            right=prompt[1].strip() if len(prompt) == 2 else "",
            answers=tuple(answer.strip() for answer in answers),
            person_ids=_ids(entry, "person_id_list", where=where),
            object_ids=_ids(entry, "object_id_list", where=where),
        )


def _derived(path: Path) -> Iterator[Madlib]:
    for number, line in read_lines(path):
        where = f"{path}, line {number}"
        entry = parse_json(line, where=where)
        kind = field(entry, "type", (int, str), where=where)
        try:
            kind = madlibs_type(kind)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        split = field(entry, "split", str, where=where)
        if split not in ("train", "val", "test"):
            raise ValueError(f"{where}: `split` must be train, val or test, but is {split!r}")
        yield Madlib(
            id=field(entry, "id", (int, str), where=where),
            image_id=field(entry, "image_id", int, where=where),
            type=kind,
            split=split,
            left=field(entry, "left", str, where=where),
            right=field(entry, "right", str, where=where),
            answers=(field(entry, "blank", str, where=where),),
            person_box=_box(entry, "person_box", where=where),
            object_box=_box(entry, "object_box", where=where),
        )


def _stem(name: str) -> str:
    # Singular or plural is all one: not every file name is settled (scene, scenes).
    stem = name.lower().removeprefix("tr_").removeprefix("image_")
    return stem[:-3] + "y" if stem.endswith("ies") else stem.removesuffix("s")


def _list_of(entry: Any, name: str, kind: type[Any], *, where: str) -> list[Any]:
    values: list[Any] = field(entry, name, list, where=where)
    for value in values:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"{where}: `{name}` must be a list of {kind.__name__}, but holds {value!r:.40}")
    return values


def _ids(entry: Any, name: str, *, where: str) -> tuple[int, ...]:
    # The types about the whole picture have no person and no object.
    return tuple(_list_of(entry, name, int, where=where)) if entry.get(name) is not None else ()


def _box(entry: Any, name: str, *, where: str) -> Box | None:
    if entry.get(name) is None:
        return None
    values = field(entry, name, list, where=where)
    if len(values) != 4 or not all(isinstance(value, int | float) for value in values):
        raise ValueError(f"{where}: `{name}` must be four numbers x0, y0, x1, y1, but is {values!r:.60}")
    x0, y0, x1, y1 = map(float, values)
    return x0, y0, x1, y1
