"""A service and a browser for the tests of the page."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-sync",
    "--no-first-run",
    "--disable-component-update",
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(port: int) -> Iterator[str]:
    """`bibs serve` with the bundled model, until the block ends."""
    process = subprocess.Popen([sys.executable, "-m", "bibs", "serve", "--port", str(port), "--quiet"])
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            assert process.poll() is None, "the service ended"
            try:
                urllib.request.urlopen(f"{address}/readyz")
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def settle(page: Any) -> None:
    """Wait until all methods have answered what is asked now."""
    page.wait_for_selector("#status[data-kind=live]")
    page.wait_for_selector("#answers:not([aria-busy])")
