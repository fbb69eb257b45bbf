"""Both directions of one training command, each in a process of its own with one thread, and the model they become.

Two single-thread processes beat one process with two threads: the matrices of a step are too small to share.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from bibs.data import Features
from bibs.training.checkpoint import Progress, load_progress
from bibs.training.loop import Report, Run, train_direction


@dataclass(frozen=True)
class FeatureFiles:
    """Where the image vectors are; every process maps them into memory by itself.

    `encoder` names what made them, where the files do not say it themselves.
    """

    vectors: Path
    ids: Path | None = None
    encoder: str = ""

    def load(self) -> Features:
        return Features.load(self.vectors, self.ids, encoder=self.encoder)


def train_pair(
    runs: tuple[Run, Run],
    features: FeatureFiles | None,
    report: Callable[[Report], None] = lambda report: None,
    *,
    in_parallel: bool = True,
) -> tuple[Progress, Progress]:
    """Train both runs to their end. An error in either ends both, and is raised as one line.

    One after the other they take turns, an epoch each, so that both have weights soon.
    """
    if not in_parallel:
        loaded = features.load() if features else None
        for epoch in range(1, runs[0].settings.epochs + 1):
            first, second = (train_direction(run, loaded, report, until=epoch) for run in runs)
            if first.finished and second.finished:
                break
        return first, second
    children = _start(runs, features)
    try:
        _listen(children, report)
    finally:
        for process in children.values():
            process.terminate()
    forward, backward = (load_progress(run.checkpoint) for run in runs)
    return forward, backward


def _start(runs: tuple[Run, Run], features: FeatureFiles | None) -> dict[Connection, BaseProcess]:
    context = multiprocessing.get_context("spawn")
    children: dict[Connection, BaseProcess] = {}
    with _single_thread_environment(), held_back_interrupts():
        for run in runs:
            reader, writer = context.Pipe(duplex=False)
            process = context.Process(
                target=_work, args=(run, features, writer), name=f"{run.direction} training", daemon=True
            )
            process.start()
            writer.close()  # now open in the child alone, so that its death ends the pipe
            children[reader] = process
    return children


def _listen(children: dict[Connection, BaseProcess], report: Callable[[Report], None]) -> None:
    """Pass reports on until both children are done."""
    running = dict(children)
    while running:
        for reader in wait(list(running)):
            assert isinstance(reader, Connection)
            try:
                message: Report | str = reader.recv()
            except (EOFError, OSError):
                process = running.pop(reader)
                process.join()
                if process.exitcode:
                    raise ValueError(
                        f"the {process.name} was ended (exit code {process.exitcode}); continue it with --resume"
                    ) from None
                continue
            if isinstance(message, str):
                raise ValueError(message)
            report(message)


def _work(run: Run, features: FeatureFiles | None, writer: Connection) -> None:
    torch.set_num_threads(1)
    _end_with_parent()
    try:
        train_direction(run, features.load() if features else None, writer.send)
    except ValueError as error:
        writer.send(str(error))
    finally:
        writer.close()


def _end_with_parent() -> None:
    """A killed parent must not leave children that go on writing checkpoints."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def held_back_interrupts() -> Iterator[None]:
    """Ctrl-C is for the parent, which ends its children: they inherit that they do not hear it. It hears it after this.

    Held back, not ignored: a child that reads a large corpus may take seconds to start.
    """
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    resource_tracker.ensure_running()  # started later, with the first child, it would let them through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _single_thread_environment() -> Iterator[None]:
    """OpenMP reads its settings when a process starts, so they are set around the start of the children."""
    wanted = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
