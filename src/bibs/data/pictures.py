"""Which picture files a command line or a list names, and the image id of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bibs.data.files import image_id_of, read_lines

_SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".avif")


@dataclass(frozen=True)
class Pictures:
    """`paths` by image id, in the order named; `absent` are the names that lead to no file."""

    paths: dict[int | str, Path]
    absent: tuple[Path, ...]


def find_pictures(sources: Iterable[str | Path] = (), *, list_file: str | Path | None = None) -> Pictures:
    """Files as named; folders searched through for the usual picture formats; a list with a file or folder a line.

    The id of a picture is the COCO id that its name gives, else its name. Two files of one COCO id are the same
    picture, and the first is taken; two files of any other name would be taken for one another, and are refused.
    """
    named = [Path(source) for source in sources]
    if list_file is not None:
        named += [Path(line) for _, line in read_lines(Path(list_file))]
    paths: dict[int | str, Path] = {}
    absent: list[Path] = []
    for source in named:
        if not source.exists():
            absent.append(source)
            continue
        for path in _files(source):
            image_id = image_id_of(path.name)
            first = paths.setdefault(image_id, path)
            if isinstance(image_id, str) and first != path and not first.samefile(path):
                raise ValueError(
                    f"two pictures have the name {image_id}, which is their id: {first} and {path}; "
                    "rename one, or give each folder its own store"
                )
    if not paths:
        raise ValueError("no picture found" + (f" (there is no {absent[0]})" if absent else ""))
    return Pictures(paths=paths, absent=tuple(absent))


def _files(source: Path) -> Iterator[Path]:
    if not source.is_dir():
        yield source
        return
    for path in sorted(source.rglob("*")):
        if path.suffix.lower() in _SUFFIXES and path.is_file():
            yield path
