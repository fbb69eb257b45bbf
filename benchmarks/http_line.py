"""The least that speaks HTTP, so that the client costs little beside the service; and a service in a process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen


class UnansweredError(ConnectionResetError):
    """The other end has closed the line before the first byte of an answer."""


class Line:
    """One connection that is kept; it is opened anew where the other end has closed it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self, body: bytes, *, path: str = "/v1/fill", verb: str = "POST", kind: str = "application/json", more: str = ""
    ) -> tuple[int, bytes]:
        """Status and body of the answer; an OSError where there is none."""
        head = f"{verb} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}\r\n"
        return await self.send(head.encode("latin-1", "replace") + body)

    async def send(self, data: bytes) -> tuple[int, bytes]:
        kept = self.streams is not None
        try:
            return await self._send(data)
        except UnansweredError:
            if not kept:
                raise
            return await self._send(data)  # the other end had closed a line that nobody used: a new one

    async def _send(self, data: bytes) -> tuple[int, bytes]:
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        head = b""
        try:
            writer.write(data)
            await writer.drain()
            while (head := (await reader.readuntil(b"\r\n\r\n")).lower()).split()[1] == b"100":
                pass  # go on, it says
            length = re.search(rb"content-length: (\d+)", head)
            body = await reader.readexactly(int(length[1])) if length else await reader.read()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError) as error:
            self.close()
            if head or getattr(error, "partial", b""):
                raise ConnectionAbortedError("the answer is cut off") from error
            raise UnansweredError("the other end has gone") from error
        if b"connection: close" in head or not length:
            self.close()
        return int(head.split()[1]), body

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


class Served:
    """`bibs serve` in a process of its own, on a free port."""

    def __init__(self, *arguments: str) -> None:
        self.log = Path(tempfile.mkstemp(suffix=".log")[1])
        with self.log.open("w") as log:
            command = [sys.executable, "-m", "bibs", "serve", "--port", "0", *arguments]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.port = int(line.rpartition(":")[2].partition("/")[0])
        while urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=60).status != 200:
            time.sleep(0.1)

    def memory(self) -> float:
        """MiB that the process holds. (Linux)"""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]

    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def share_of_cores(self) -> float:
        """What part of the time that its threads could run they had a core: below 1 where others use the machine."""
        ran = waited = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            running, waiting, _ = map(int, (task / "schedstat").read_text(encoding="ascii").split())
            ran, waited = ran + running, waited + waiting
        return ran / (ran + waited)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(60)
        self.log.unlink(missing_ok=True)


@contextlib.contextmanager
def served(*arguments: str) -> Iterator[Served]:
    service = Served(*arguments)
    try:
        yield service
    finally:
        service.end()
