"""Engine `ray`: an actor pool of Ray Data. Needs the extra `bibs[ray]`, and files that every machine sees.

What goes through Ray is the name of a shard and what became of it. An actor loads the model once, reads the rows of a
shard where it stands and writes their answers itself. So the driver holds nothing that grows with the rows. Ray starts
an actor that died again and repeats its shard, as often as it takes; `do_shard` says when it is enough.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bibs.scale.local import Event
from bibs.scale.output import Done, Output
from bibs.scale.tables import Shard
from bibs.scale.work import Failure, Loader, do_shard
from bibs.vision import MissingExtraError

for name, value in (
    ("RAY_USAGE_STATS_ENABLED", "0"),
    ("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"),  # says nothing of graphics cards that nobody asked for
    ("RAY_BACKEND_LOG_LEVEL", "fatal"),  # what ends a job is said in one line of ours
):
    os.environ.setdefault(name, value)

try:
    import ray
    import ray.data
except ImportError as error:
    raise MissingExtraError(
        f'the engine `ray` needs the package `ray`, which could not be imported ({error}): pip install ".[ray]"'
    ) from None

OBJECT_STORE_BYTES = 256 << 20
"""Of a Ray that is started here: only names go through it."""

KNOCK_SECONDS = 5.0


def run_on_ray(loader: Loader, output: Output, shards: Sequence[Shard], workers: int) -> Iterator[Event]:
    """Do all shards; yields what became of each. Ray must be `connected`."""
    ray.data.DataContext.get_current().enable_progress_bars = False  # there is one of ours
    items = [{"place": place, "shard": shard} for place, shard in enumerate(shards)]
    results = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
        ShardActor,
        fn_constructor_args=(loader, output),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=min(workers, len(shards))),
        num_cpus=1,
    )
    try:
        for result in results.iter_rows():
            done = Done(result["rows"], result["errors"])
            failure = Failure(result["failure"], result["fatal"])
            yield shards[result["place"]], failure if failure.reason else done
    except ray.exceptions.RayError as error:
        said = " ".join(str(error).split())[-300:]
        raise ValueError(f"Ray gave up; the same command goes on from what is whole: {said}") from None


class ShardActor:
    """One model, which does the shards that it is given."""

    def __init__(self, loader: Loader, output: Output) -> None:
        import torch

        torch.set_num_threads(1)
        self.output, self.fill = output, loader.load()

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """A batch of one shard."""
        said = do_shard(batch["shard"][0], self.output, self.fill)
        done, failure = (said, Failure("")) if isinstance(said, Done) else (Done(0, 0), said)
        return {
            "place": [batch["place"][0]],
            "rows": [done.rows],
            "errors": [done.errors],
            "failure": [failure.reason],
            "fatal": [failure.fatal],
        }


@contextmanager
def connected(address: str | None, workers: int) -> Iterator[None]:
    """Ray while the block runs: that of `address`, or one that is started here and ended with it."""
    here: dict[str, Any] = {
        "num_cpus": workers,
        "object_store_memory": OBJECT_STORE_BYTES,
        "include_dashboard": False,
    }
    try:
        _knock(address)
        with _silent():
            ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **({} if address else here))
    except Exception as error:  # a node that starts too slowly, for one, is a plain Exception of Ray
        where = f"no Ray answers at `--address` {address}" if address else "Ray could not be started"
        raise ValueError(f"{where}: {' '.join(str(error).split())[:200]}") from None
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str | None) -> None:
    """Ray itself tries for two minutes before it says that nobody is there."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=KNOCK_SECONDS).close()


@contextmanager
def _silent() -> Iterator[None]:
    """Without the lines that Ray's C++ part writes while it starts; what goes wrong is an exception, too."""
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)
