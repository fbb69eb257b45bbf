"""`bibs train`: from files of captions to a model directory."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from bibs.cli.stopping import goes_on_from

if TYPE_CHECKING:
    from bibs.training import Report, TrainingResult

PLAIN_SECONDS = 30.0
"""In a pipe, each direction says a line this often."""


def train(
    data: Annotated[
        list[Path],
        typer.Option(help="Captions (Karpathy JSON, JSONL, ...) or plain text, a line each; may be repeated."),
    ],
    output: Annotated[Path, typer.Option(help="The model directory to write.")],
    text: Annotated[list[Path] | None, typer.Option(help="Captions without pictures; may be repeated.")] = None,
    features: Annotated[Path | None, typer.Option(help="Image vectors: an .npy file or a feature store.")] = None,
    feature_ids: Annotated[Path | None, typer.Option(help="The image id of each row of the .npy file.")] = None,
    encoder: Annotated[
        str, typer.Option(help="What made the vectors, such as efficientnet-lite2-rms; a feature store says it itself.")
    ] = "",
    allow_missing_features: Annotated[
        bool, typer.Option(help="Train on captions whose picture has no vector as text alone.")
    ] = False,
    min_count: Annotated[int, typer.Option(help="Words seen less often in training are unknown.")] = 5,
    val_share: Annotated[
        float, typer.Option(help="Share of the data to validate on, by a hash of the line, where it has no `val`.")
    ] = 0.05,
    hidden: Annotated[int, typer.Option(help="Size of the recurrent state.")] = 512,
    embedding: Annotated[int, typer.Option(help="Size of the word vectors.")] = 512,
    layers: Annotated[int, typer.Option(help="Recurrent layers.")] = 1,
    cell: Annotated[str, typer.Option(help="lstm, gru or rnn.")] = "lstm",
    cutoffs: Annotated[
        str, typer.Option(help="Cuts of the adaptive softmax, such as 500,2000; empty for a dense layer.")
    ] = "500,2000",
    epochs: Annotated[int, typer.Option(help="Times to read all captions.")] = 7,
    batch_size: Annotated[int, typer.Option(help="Captions a step.")] = 128,
    learning_rate: Annotated[float, typer.Option(help="The highest learning rate.")] = 2e-3,
    warmup_steps: Annotated[int, typer.Option(help="Steps until the learning rate is highest.")] = 200,
    weight_decay: Annotated[float, typer.Option(help="Decoupled weight decay.")] = 0.0,
    dropout: Annotated[float, typer.Option(help="Share of units dropped in training.")] = 0.3,
    picture_dropout: Annotated[float, typer.Option(help="Share of pictures withheld in training.")] = 0.1,
    clip_norm: Annotated[float, typer.Option(help="Longest gradient.")] = 5.0,
    patience: Annotated[int, typer.Option(help="Epochs without a better loss before stopping; 0: never.")] = 2,
    ema_decay: Annotated[
        float, typer.Option(help="Keep the moving average of the weights, with this decay a step (0.999); 0: the last.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Decides everything that is left to chance.")] = 0,
    init: Annotated[
        Path | None, typer.Option(help="A model directory to go on from: its weights, words and shape are taken.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoints in the output.")] = False,
    checkpoint_every: Annotated[float, typer.Option(help="Minutes between checkpoints.")] = 2.0,
    missing: Annotated[
        float | None, typer.Option(help="Train a NADE with this share of missing words, instead of a pair.")
    ] = None,
    parallel: Annotated[bool, typer.Option(help="Train both directions at once, in two processes.")] = True,
) -> None:
    """Train a left-to-right and a right-to-left captioner and write them as a model directory.

    Example: bibs train --data dataset_coco.json --features F.npy --feature-ids ids.json --output models/coco
    """
    from bibs.training import FeatureFiles, Sources, TrainingSettings, train_nade
    from bibs.training import train as run_training

    settings = TrainingSettings(
        hidden_size=hidden,
        embedding_size=embedding,
        num_layers=layers,
        cell=cell,
        cutoffs=parse_cutoffs(cutoffs),
        dropout=dropout,
        picture_dropout=picture_dropout,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        warmup_steps=warmup_steps,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
        patience=patience,
        ema_decay=ema_decay,
        seed=seed,
    )
    sources = Sources(
        data=tuple(data),
        texts=tuple(text or ()),
        features=FeatureFiles(features, feature_ids, encoder) if features else None,
        min_count=min_count,
        allow_missing_features=allow_missing_features,
        val_share=val_share,
    )
    if missing is not None:
        with goes_on_from(output, option="--resume"), progress_display(settings.epochs, ("nade",)) as report:
            losses = train_nade(
                sources,
                settings,
                output,
                missing=missing,
                init=init,
                resume=resume,
                checkpoint_seconds=checkpoint_every * 60,
                report=report,
            ).val_losses
        print(f"val loss {min(losses):.4f} nats a missing word; written to {output}")
        return
    with goes_on_from(output, option="--resume"), progress_display(settings.epochs) as report:
        result = run_training(
            sources,
            settings,
            output,
            init=init,
            resume=resume,
            checkpoint_seconds=checkpoint_every * 60,
            in_parallel=parallel,
            command=["bibs", "train", *_arguments()],
            report=report,
        )
    show_result(result, output)
    pictures = _with_features(features, feature_ids)
    print(f"To fit how long a blank is: bibs calibrate --model {output} --data {data[0]}{pictures}")


def _with_features(features: Path | None, ids: Path | None) -> str:
    named = {"--features": features, "--feature-ids": ids}
    return "".join(f" {name} {path}" for name, path in named.items() if path)


def parse_cutoffs(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"`cutoffs` must be numbers with commas between, but are {text!r}") from None


def _arguments() -> list[str]:
    arguments = [argument for argument in sys.argv[1:] if argument not in ("train", "--resume")]
    return arguments


@contextmanager
def progress_display(epochs: int, names: Sequence[str] = ("forward", "backward")) -> Iterator[Callable[[Report], None]]:
    """Bars with an ETA on a terminal, a line from time to time in a pipe."""
    if not sys.stderr.isatty():
        yield _plain_lines(epochs)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks = {name: bars.add_task(name, total=None, state="") for name in names}

        def show(report: Report) -> None:
            task = tasks[report.direction]
            bars.update(task, total=report.total_steps, completed=report.step, state=_state(report, epochs))

        yield show


def _plain_lines(epochs: int) -> Callable[[Report], None]:
    first: dict[str, tuple[float, int]] = {}  # when each direction was first heard of, and at which step
    last: dict[str, tuple[float, int]] = {}  # when it last said a line, and how many epochs were done

    def show(report: Report) -> None:
        now = time.monotonic()
        began, first_step = first.setdefault(report.direction, (now, report.step))
        said, validated = last.get(report.direction, (-PLAIN_SECONDS, 0))
        if now - said < PLAIN_SECONDS and len(report.val_losses) == validated and report.step < report.total_steps:
            return
        last[report.direction] = (now, len(report.val_losses))
        line = f"{report.direction:8} step {report.step}/{report.total_steps}, {_state(report, epochs)}"
        if report.step > first_step:  # the first report says nothing of the speed
            left = (now - began) * (report.total_steps - report.step) / (report.step - first_step)
            line += f", {left / 60:.0f} min left"
        print(line, file=sys.stderr, flush=True)

    return show


def _state(report: Report, epochs: int) -> str:
    epoch = min(epochs, report.step * epochs // max(1, report.total_steps) + 1)
    text = f"epoch {epoch}/{epochs}, loss {report.loss:.3f}, {report.tokens_per_second:,.0f} tokens/s"
    return text + (f", val {report.val_losses[-1]:.4f}" if report.val_losses else "")


def show_result(result: TrainingResult, output: Path) -> None:
    table = Table("direction", "val loss", "without pictures", "minutes", title="nats per token, END included")
    for name, one in (("forward", result.forward), ("backward", result.backward)):
        table.add_row(name, f"{one.val_loss:.4f}", f"{one.val_loss_without_pictures:.4f}", f"{one.seconds / 60:.1f}")
    console = Console()
    console.print(table)
    console.print(
        f"{result.vocab_size} words, {result.unknown_share:.2%} of the validation tokens unknown; written to {output}"
    )
