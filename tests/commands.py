"""`bibs` as a process of its own, with files for its standard streams: forked from one that has imported torch, since
most of a short command is that import."""

from __future__ import annotations

import io
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

STREAMS = {0: ("in", os.O_RDONLY), 1: ("out", os.O_WRONLY | os.O_CREAT), 2: ("err", os.O_WRONLY | os.O_CREAT)}

WARM = multiprocessing.get_context("forkserver")
WARM.set_forkserver_preload(["bibs.infiller", "bibs.cli.fill"])


def run(*arguments: object, given: bytes = b"", timeout: float = 120) -> tuple[int, list[str], list[str]]:
    """Exit code, lines of standard output, lines of standard error."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "in").write_bytes(given)
        process = WARM.Process(target=_work, args=(folder, os.getcwd(), list(map(str, arguments))))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            raise TimeoutError(f"bibs {' '.join(map(str, arguments))} takes more than {timeout} seconds")
        out, err = ((Path(folder) / name).read_bytes().decode().splitlines() for name in ("out", "err"))
        return process.exitcode, out, err


def _work(folder: str, home: str, arguments: list[str]) -> None:
    os.chdir(home)
    for number, (name, flags) in STREAMS.items():
        os.dup2(os.open(Path(folder) / name, flags), number)
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(os.fdopen(number, mode, closefd=False), encoding="utf-8", line_buffering=number == 2)
        for number, mode in ((0, "rb"), (1, "wb"), (2, "wb"))
    )
    sys.argv = ["bibs", *arguments]
    from bibs.cli import main

    main()
