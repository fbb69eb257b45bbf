"""What every request passes before it is looked at: the key, the room, the size of its body. Plain ASGI.

`Watched` is the outermost: it counts, logs, adds the headers of safety, and turns a fault of ours into one line.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import Sequence
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .settings import ServiceSettings
from .watching import LOG, Metrics, describe

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SAFETY = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
}
COMPLETIONS = "/v1/completions"
CLIENT_GONE = 499


def error_body(path: str, message: str, status: int) -> dict[str, Any]:
    """One line; where clients of other servers ask, in the shape that these expect."""
    if path != COMPLETIONS:
        return {"error": message}
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


async def refuse(scope: Scope, send: Send, status: int, message: str, **headers: str) -> None:
    body = json.dumps(error_body(scope["path"], message, status)).encode()
    given = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


class Watched:
    """Counts and logs every answer; a fault is told to the log, and to the client that there was one."""

    def __init__(self, app: ASGIApp, *, settings: ServiceSettings, metrics: Metrics, paths: Sequence[str]) -> None:
        self.app, self.settings, self.metrics, self.paths = app, settings, metrics, frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        path = scope["path"] if scope["path"] in self.paths else "other"
        begin, status = time.monotonic(), 0

        async def send_safely(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present = {name for name, _ in message["headers"]}
                extra = [(name.encode(), value.encode()) for name, value in SAFETY.items()]
                message["headers"] = [*message["headers"], *(each for each in extra if each[0] not in present)]
            await send(message)

        try:
            await self.app(scope, receive, send_safely)
        except Exception as error:
            fault = describe(error, with_text=self.settings.log_text)
            LOG.error("fault", extra={"fields": {"path": path, **fault}})
            if not status:
                await refuse(scope, send_safely, 500, "the service failed to answer; its log says more")
        finally:
            seconds = time.monotonic() - begin
            status = status or CLIENT_GONE  # before it had sent its body
            self.metrics.answered(path, status, seconds)
            fields = {"method": scope["method"], "path": path, "status": status, "seconds": round(seconds, 4)}
            LOG.info("answered", extra={"fields": fields | scope.get("bibs.log", {})})


class Guarded:
    """The key, for what is under /v1/ and /metrics; and room for so many requests with a body, no more."""

    def __init__(self, app: ASGIApp, *, settings: ServiceSettings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.num_inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        if not self.may_enter(scope):
            return await refuse(
                scope, send, 401, "this service wants `Authorization: Bearer KEY`", www_authenticate="Bearer"
            )
        if scope["method"] != "POST":
            return await self.app(scope, receive, send)
        if self.num_inside >= self.settings.limits.waiting:
            return await refuse(scope, send, 503, "too many requests wait; try again", retry_after="1")
        self.num_inside += 1
        self.metrics.waiting.set(self.num_inside)
        try:
            await self._with_body(scope, receive, send)
        finally:
            self.num_inside -= 1
            self.metrics.waiting.set(self.num_inside)

    def may_enter(self, scope: Scope) -> bool:
        key = self.settings.api_key
        if not key or not scope["path"].startswith(("/v1/", "/metrics")) or scope["method"] == "OPTIONS":
            return True
        given = dict(scope["headers"]).get(b"authorization", b"")
        kind, _, value = given.partition(b" ")
        return hmac.compare_digest(value.strip(), key.encode()) and kind.lower() == b"bearer"

    async def _with_body(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body, no more of it than may be, and hand it on as one piece."""
        limits = self.settings.limits
        too_large = f"the body must have at most {limits.body_bytes} bytes"
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if not announced.isdigit() or int(announced[:20]) > limits.body_bytes:
            return await refuse(scope, send, 413, too_large, connection="close")
        body = bytearray()

        async def read() -> bool:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return False
                body.extend(message.get("body", b""))
                if len(body) > limits.body_bytes or not message.get("more_body", False):
                    return True

        try:
            if not await asyncio.wait_for(read(), limits.body_seconds):
                return  # the client has gone
        except asyncio.TimeoutError:
            late = f"the body must arrive within {limits.body_seconds:g} seconds"
            return await refuse(scope, send, 408, late, connection="close")
        if len(body) > limits.body_bytes:
            return await refuse(scope, send, 413, too_large, connection="close")
        waiting = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        await self.app(scope, replay, send)
