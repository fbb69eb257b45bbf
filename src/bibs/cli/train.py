"""`bibs train`: from files of captions to a model directory."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from bibs.cli.stopping import says_what_is_kept

if TYPE_CHECKING:
    from bibs.training import Report, Sources, TrainingResult

PLAIN_SECONDS = 30.0
"""In a pipe, each direction says a line this often."""


def train(
    context: typer.Context,
    output: Annotated[Path, typer.Option(help="The model directory to write; it is whole from the first epoch on.")],
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Captions (Karpathy JSON, JSONL, ...) or plain text, a line each; may be repeated."),
    ] = None,
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
        str | None,
        typer.Option(
            help="Cuts of the adaptive softmax, '' for a dense layer; unset: 500,2000, as far as there are more words."
        ),
    ] = None,
    tied: Annotated[
        bool, typer.Option(help="Read each word by the vector by which it is predicted: fewer weights to learn.")
    ] = False,
    epochs: Annotated[int, typer.Option(help="Times to read all captions.")] = 7,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Captions a step; unset: 128, or as few as give an epoch 150 steps, but not below 16."),
    ] = None,
    learning_rate: Annotated[float, typer.Option(help="The highest learning rate.")] = 2e-3,
    warmup_steps: Annotated[
        int | None,
        typer.Option(help="Steps until the learning rate is highest; unset: 200, at most a tenth of all steps."),
    ] = None,
    weight_decay: Annotated[float, typer.Option(help="Decoupled weight decay.")] = 0.0,
    dropout: Annotated[float, typer.Option(help="Share of units dropped in training.")] = 0.3,
    picture_dropout: Annotated[float, typer.Option(help="Share of pictures withheld in training.")] = 0.1,
    weight_dropout: Annotated[
        float, typer.Option(help="Share of the recurrent weights that are zero for a step, drawn anew for each.")
    ] = 0.0,
    word_dropout: Annotated[
        float, typer.Option(help="Share of the words whose vectors are zero for a step, drawn anew for each.")
    ] = 0.0,
    clip_norm: Annotated[float, typer.Option(help="Longest gradient.")] = 5.0,
    patience: Annotated[int, typer.Option(help="Epochs without a better loss before stopping; 0: never.")] = 2,
    ema_decay: Annotated[
        float, typer.Option(help="Keep the moving average of the weights, with this decay a step (0.999); 0: the last.")
    ] = 0.0,
    precision: Annotated[
        str,
        typer.Option(help="Of matrix products in training: float32, or bfloat16 where the processor has it (faster)."),
    ] = "float32",
    storage: Annotated[
        str, typer.Option(help="How weights are written: float16, or int8 (half the size, a scale a row).")
    ] = "float16",
    seed: Annotated[int, typer.Option(help="Decides everything that is left to chance.")] = 0,
    init: Annotated[
        Path | None, typer.Option(help="A model directory to go on from: its weights, words and shape are taken.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with the run in the output: no other option is needed, --epochs may rise."
        ),
    ] = False,
    checkpoint_every: Annotated[float, typer.Option(help="Minutes between checkpoints.")] = 2.0,
    missing: Annotated[
        float | None, typer.Option(help="Train a NADE with this share of missing words, instead of a pair.")
    ] = None,
    parallel: Annotated[bool, typer.Option(help="Train both directions at once, in two processes.")] = True,
    calibrate: Annotated[bool, typer.Option(help="Fit on `val`, in the end, how long `___` is.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the losses and sizes as JSON instead.")] = False,
) -> None:
    """Train a pair of models on any text, or on captions.

    One model reads left to right, one right to left. Both are written as a model directory.

    Example: bibs train --data notes.txt --output model

    With pictures: bibs train --data dataset_coco.json --features F.npy --feature-ids ids.json --output models/coco

    After Ctrl-C or a kill: bibs train --output models/coco --resume

    Several processes, which share every batch: torchrun --nproc-per-node 4 -m bibs train ...
    """
    from bibs.training import load_record, read_settings, read_sources, team, train_nade
    from bibs.training import train as run_training

    options: dict[str, Any] = {  # by the names that Python has for them
        "data": data or [],
        "texts": text or [],
        "features": features,
        "feature_ids": feature_ids,
        "encoder": encoder,
        "allow_missing_features": allow_missing_features,
        "min_count": min_count,
        "val_share": val_share,
        "hidden_size": hidden,
        "embedding_size": embedding,
        "num_layers": layers,
        "cell": cell,
        "cutoffs": None if cutoffs is None else parse_cutoffs(cutoffs),
        "tied": tied,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "warmup_steps": warmup_steps,
        "weight_decay": weight_decay,
        "dropout": dropout,
        "picture_dropout": picture_dropout,
        "weight_dropout": weight_dropout,
        "word_dropout": word_dropout,
        "clip_norm": clip_norm,
        "patience": patience,
        "ema_decay": ema_decay,
        "precision": precision,
        "storage": storage,
        "seed": seed,
        "init": init,
        "missing": missing,
    }
    record = load_record(output) if resume else None
    if record is not None:
        typed = {PYTHON_NAMES.get(name, name) for name in _typed_options(context)}
        options |= {name: value for name, value in record.options.items() if name not in typed}
    elif not data:
        why = f", and {output} holds no run that says it" if resume else ""
        raise ValueError(f"`--data` must name the captions to train on, but is missing{why}")
    settings, sources = read_settings(options), read_sources(options)
    begin: dict[str, Any] = {
        "init": Path(options["init"]) if options["init"] else None,
        "resume": resume,
        "checkpoint_seconds": checkpoint_every * 60,
        "command": ["bibs", "train", *_arguments()],
    }
    if options["missing"] is not None and os.environ.get("WORLD_SIZE", "1") != "1":
        raise ValueError("`--missing` must be left out under torchrun: a NADE is trained by one process")
    if options["missing"] is not None:
        with says_what_is_kept(output), progress_display(settings.epochs, ("nade",)) as report:
            losses = train_nade(
                sources, settings, output, missing=options["missing"], report=report, **begin
            ).val_losses
        said = f"val loss {min(losses):.4f} nats a missing word; written to {output}"
        print(json.dumps({"output": str(output), "val_losses": losses}) if as_json else said)
        return
    with team.joined(), says_what_is_kept(output), progress_display(settings.epochs) as report:
        result = run_training(sources, settings, output, in_parallel=parallel, report=report, **begin)
        is_first = team.is_first()
    if not is_first:
        return
    if not as_json:
        show_result(result, output)
    fitted = calibrate and fit_lengths(sources, output)
    if as_json:
        print(json.dumps({"output": str(output), "lengths_fitted": fitted, **asdict(result)}, indent=2))
    else:
        show_next_step(sources, output, fitted=fitted)


PYTHON_NAMES = {"hidden": "hidden_size", "embedding": "embedding_size", "layers": "num_layers", "text": "texts"}
"""What an option of the command is called in Python, where that is another name."""


def _typed_options(context: typer.Context) -> list[str]:
    """Those that stand on the command line, whatever their value."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in sources.items() if source is not None and source.name != "DEFAULT"]


def fit_lengths(sources: Sources, output: Path) -> bool:
    """Fit the length prior of a model on the data that it was trained on; a model is whole without it, too."""
    from bibs.cli.eval_display import count_cores, progress_bars
    from bibs.evaluation.calibration import CalibrationSettings, calibrate

    try:
        with progress_bars() as progress:
            calibrate(
                data=sources.data,
                model=output,
                features=sources.features.load() if sources.features else None,
                settings=CalibrationSettings(),
                val_share=sources.val_share,
                allow_missing_features=True,  # training has checked that only those lack one that may
                workers=count_cores(),
                progress=progress,
            )
    except ValueError as error:
        print(f"bibs: the model is whole, but how long `___` is could not be fitted: {error}", file=sys.stderr)
        return False
    except KeyboardInterrupt:
        print("stopped; the model is whole, but how long `___` is was not fitted", file=sys.stderr)
        show_next_step(sources, output, fitted=False)
        raise typer.Exit(130) from None
    return True


def show_next_step(sources: Sources, output: Path, *, fitted: bool) -> None:
    from bibs.models.directory import load_vocabulary
    from bibs.text import SPECIALS

    words = load_vocabulary(output).words[len(SPECIALS) :]
    template = " ".join([*words[:1], "___"])  # begins with the most frequent word
    print(f"Next: bibs fill --model {shlex.quote(str(output))} {shlex.quote(template)}")
    if not fitted:
        files = (
            {"--features": sources.features.vectors, "--feature-ids": sources.features.ids} if sources.features else {}
        )
        named = {"--model": output, "--data": sources.data[0], **files}
        arguments = "".join(f" {name} {shlex.quote(str(path))}" for name, path in named.items() if path)
        print(f"To fit how long `___` is: bibs calibrate{arguments}")


def parse_cutoffs(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"`cutoffs` must be numbers with commas between, but are {text!r}") from None


def _arguments() -> list[str]:
    """What was typed behind `bibs train`, but for what goes on with an earlier run."""
    typed = sys.argv[2:] if sys.argv[1:2] == ["train"] else sys.argv[1:]
    return [argument for argument in typed if argument != "--resume"]


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
    Console().print(table)
    unknown = f"{result.unknown_share:.2%} of the validation tokens unknown"
    print(f"{result.vocab_size} words, {unknown}; written to {output}")  # not by rich, which reads [brackets] as markup
