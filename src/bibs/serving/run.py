"""From a model directory to a server that runs until it is told to stop, and then finishes what it has accepted."""

from __future__ import annotations

import socket
import sys
import warnings
from pathlib import Path

import uvicorn

from bibs.infiller import Infiller

from .app import create_app
from .settings import ServiceSettings
from .watching import log_to

CONNECTIONS_PER_REQUEST = 8
"""Open connections for each request that may wait; a backstop, far behind the limit of requests."""


def run(
    model: Path | None,
    settings: ServiceSettings,
    *,
    host: str,
    port: int,
    precision: str = "auto",
    log_level: str = "info",
) -> None:
    """Listen at once, so that a port in use is said before the model is loaded; answer when it is."""
    listener = listen(host, port)
    # Inherited by every connection. asyncio sets it only on sockets that it made itself; without it an answer of two
    # packets waits 40 ms for the client to confirm the first.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    log_to(sys.stderr, log_level)
    warnings.simplefilter("ignore")  # an answer says itself what was not found
    app = create_app(load_infiller(model, precision), settings)
    deadline = settings.limits.deadline_seconds + settings.limits.body_seconds
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        limit_concurrency=CONNECTIONS_PER_REQUEST * settings.limits.waiting,
        timeout_graceful_shutdown=int(deadline) + 1,  # by then every request has its answer
    )
    say_address(host, listener.getsockname()[1])
    uvicorn.Server(config).run(sockets=[listener])


def load_infiller(model: Path | None, precision: str) -> Infiller:
    return Infiller.from_pretrained(model, precision=precision)


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"`--host` and `--port` must be free, but {host}:{port} is not: {reason}") from None


def say_address(host: str, port: int) -> None:
    name = f"[{host}]" if ":" in host else host
    print(f"bibs: http://{name}:{port}/ (Ctrl-C ends)", flush=True)
