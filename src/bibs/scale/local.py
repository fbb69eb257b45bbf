"""Engine `local`: a process per core, each with one thread and a model of its own. Needs nothing but this machine.

A worker that is killed costs the shard that it had: another one takes its place and does that shard again.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from bibs.scale.output import Done, Output
from bibs.scale.tables import Shard
from bibs.scale.work import TRIES, Failure, Loader, do_shard, ended_workers

Event = tuple[Shard, int | Done | Failure]
"""A shard, and what is heard of it: how many of its rows are filled by now, or what became of it."""


def run_locally(loader: Loader, output: Output, shards: Sequence[Shard], workers: int) -> Iterator[Event]:
    """Do all shards; yields what is heard of them. Whoever stops listening ends the workers."""
    pool = _Pool(loader, output, deque(shards))
    try:
        for _ in range(min(workers, len(shards))):
            pool.start()
        while pool.busy:
            yield from pool.hear()
    finally:
        pool.end()


@dataclass
class _Pool:
    loader: Loader
    output: Output
    open: deque[Shard]
    busy: dict[Connection, tuple[BaseProcess, Shard]] = field(default_factory=dict)
    deaths: dict[str, int] = field(default_factory=dict)
    ended: list[BaseProcess] = field(default_factory=list)

    def start(self) -> None:
        # Not forked: a child of a process that has used its threads may wait for them for ever.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(self.loader, self.output, theirs), daemon=True)
        process.start()
        theirs.close()  # now open in the child alone, so that its death ends the pipe
        self._give(ours, process)

    def hear(self) -> Iterator[Event]:
        for pipe in wait(list(self.busy)):
            assert isinstance(pipe, Connection)
            process, shard = self.busy[pipe]
            try:
                said: int | Done | Failure = pipe.recv()
            except (EOFError, OSError):
                yield from self._bury(pipe)
                continue
            if not isinstance(said, int):
                del self.busy[pipe]
                self._give(pipe, process)
            yield shard, said

    def _give(self, pipe: Connection, process: BaseProcess) -> None:
        """The next shard, or the end."""
        shard = self.open.popleft() if self.open else None
        if shard is not None:
            self.busy[pipe] = (process, shard)
        else:
            self.ended.append(process)
        with contextlib.suppress(OSError):  # it is dead, which `hear` will find
            pipe.send(shard)

    def _bury(self, pipe: Connection) -> Iterator[Event]:
        process, shard = self.busy.pop(pipe)
        process.join()
        deaths = self.deaths[shard.name] = self.deaths.get(shard.name, 0) + 1
        if deaths < TRIES:
            self.open.appendleft(shard)
        else:
            yield shard, ended_workers(shard)
        if self.open:
            self.start()

    def end(self) -> None:
        for process, _ in self.busy.values():
            process.terminate()
            self.ended.append(process)
        for process in self.ended:
            process.join()


def _work(loader: Loader, output: Output, pipe: Connection) -> None:
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, too, and ends its children
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    try:
        fill = loader.load()
    except Exception as error:
        pipe.send(Failure(f"a worker could not begin: {error}", fatal=True))
        return
    while (shard := pipe.recv()) is not None:
        pipe.send(do_shard(shard, output, fill, pipe.send))


def _leave_with_parent() -> None:
    """A parent that was killed says nothing."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
