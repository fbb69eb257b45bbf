"""`bibs features`: from picture files to a feature store."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bibs.cli.stopping import goes_on_from

if TYPE_CHECKING:
    from bibs.data import Pictures
    from bibs.vision import ImageEncoder


def features(
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of the feature store.")],
    pictures: Annotated[
        list[Path] | None, typer.Argument(help="Picture files, or folders to search through.", show_default=False)
    ] = None,
    list_file: Annotated[
        Path | None, typer.Option("--list", help="A text file with a picture or folder a line.")
    ] = None,
    encoder: Annotated[
        str, typer.Option(help="lite2 or lite0 (EfficientNet-Lite); a model's config.json says its own.")
    ] = "lite2",
    batch_size: Annotated[int, typer.Option(help="Pictures a thread encodes at a time: a kill loses no more.")] = 16,
    num_threads: Annotated[
        int | None, typer.Option(help="Threads; all cores where not given.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Turn pictures into vectors.

    By EfficientNet-Lite2 (what the bundled model wants) or -Lite0. A run that was stopped goes on where it was.

    Exit code 1 says that some pictures could not be read; each is named, and all others are kept.

    Example: bibs features photos/ --output photos.features
    """
    from bibs.data import find_pictures
    from bibs.vision import make_encoder

    warnings.filterwarnings("ignore", module=r"PIL\.")  # a picture that is read or named needs no second line
    found = find_pictures(pictures or (), list_file=list_file)
    with goes_on_from(output):
        summary = encode_pictures(found, make_encoder(encoder), output, batch_size=batch_size, num_threads=num_threads)
    print(json.dumps(summary.as_json()) if as_json else summary.as_text())
    if summary.absent or summary.failed:
        raise typer.Exit(1)


@dataclass
class Summary:
    output: Path
    encoder: ImageEncoder
    pictures: int
    already: int
    absent: tuple[Path, ...]
    encoded: int = 0
    seconds: float = 0.0
    failed: list[tuple[Path, str]] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.encoded / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "output": str(self.output),
            "encoder": self.encoder.name,
            "size": self.encoder.size,
            "pictures": self.pictures,
            "already": self.already,
            "encoded": self.encoded,
            "absent": [str(path) for path in self.absent],
            "failed": [{"path": str(path), "reason": reason} for path, reason in self.failed],
            "seconds": round(self.seconds, 3),
            "pictures_per_second": round(self.rate, 1),
        }

    def as_text(self) -> str:
        text = f"{self.encoded:,} pictures encoded in {self.seconds:.1f} s ({self.rate:.0f} a second)"
        text += f", {self.already:,} were there already" if self.already else ""
        text += f", {len(self.failed):,} could not be read" if self.failed else ""
        return f"{text}; written to {self.output}"


def encode_pictures(
    found: Pictures, encoder: ImageEncoder, output: Path, *, batch_size: int, num_threads: int | None
) -> Summary:
    from bibs.data import FeatureStore
    from bibs.vision import encode_files

    with FeatureStore(output, encoder=encoder.name, size=encoder.size) as store:
        left = {path: image_id for image_id, path in found.paths.items() if image_id not in store}
        already = len(found.paths) - len(left)
        summary = Summary(output, encoder, len(found.paths) + len(found.absent), already, found.absent)
        began = time.monotonic()
        with _progress(already, len(found.paths)) as (advance, say):
            if found.absent:
                say(_absent_line(found))
            for batch in encode_files(list(left), encoder, batch_size=batch_size, num_threads=num_threads):
                store.append([left[path] for path in batch.paths], batch.vectors)
                for _, reason in batch.failures:
                    say(f"left out: {reason}")
                summary.encoded += len(batch.paths)
                summary.failed += batch.failures
                summary.seconds = time.monotonic() - began
                advance(len(batch.paths) + len(batch.failures))
    return summary


def _absent_line(found: Pictures) -> str:
    named = ", ".join(map(str, found.absent[:5])) + (", ..." if len(found.absent) > 5 else "")
    return f"left out: {len(found.absent)} of the pictures named do not exist: {named}"


@contextmanager
def _progress(done: int, total: int) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    """How to advance and how to say a line: a bar with an ETA on a terminal, the lines alone in a pipe."""
    if not sys.stderr.isatty():
        yield (lambda count: None), (lambda line: print(line, file=sys.stderr, flush=True))
        return
    console = Console(stderr=True)
    columns = (TextColumn("pictures"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("pictures", total=total, completed=done)
        yield (
            lambda count: bar.advance(task, count),
            lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True),
        )
