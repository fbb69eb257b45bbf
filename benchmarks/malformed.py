"""Requests that are wrong in every way that we could think of: JSON, pictures, templates, headers, HTTP itself."""

from __future__ import annotations

import base64
import io
import json
import random
from typing import Any, NamedTuple

from PIL import Image

GOOD: dict[str, Any] = {"template": "a man _ _ a wave"}
NONSENSE: list[Any] = [None, True, -1, 0, 2**70, 1.5, 1e308, "", "x" * 300, [], [[]], {}, [None], {"a": {}}]
NONSENSE += ["\x00", "☃"]
MARKS = ["_", "__", "___", "____", "___{", "___{2", "___{9,1}", "___{0,0}", "___{999999}"]
MARKS += ["\\", "\\_", "a", "'", "\n", "☃", "{", " "]


class Wrong(NamedTuple):
    """A body, its kind, and headers besides; or the bytes of a whole request."""

    body: bytes = b""
    kind: str = "application/json"
    path: str = "/v1/fill"
    verb: str = "POST"
    more: str = ""
    raw: bytes | None = None


def make(draw: random.Random) -> Wrong:
    return draw.choice([_json, _cut, _field, _template, _picture, _form, _headers, _address, _raw, _completion])(draw)


def _json(draw: random.Random) -> Wrong:
    return Wrong(bytes(draw.choices(b'{}[]":,0123456789.eE+-truefalsn\\u \xff\x00', k=draw.randint(0, 200))))


def _cut(draw: random.Random) -> Wrong:
    body = json.dumps({**GOOD, "num_beams": 3, "bad_words": ["a", "b"]}).encode()
    return Wrong(body[: draw.randrange(len(body))] + bytes(draw.choices(range(256), k=draw.randint(0, 3))))


def _field(draw: random.Random) -> Wrong:
    names = ["template", "image", "method", "must_include", "bad_words", "num_beams", "num_rounds", "start", "lengths"]
    names += ["num_return_sequences", "diversity_penalty", "max_length", "num_lengths", "seed", "trace", "alternatives"]
    names += ["rescore", "lookup", "batch_size", "max_memory", "shortlist", "max_fills", "unknown", "__class__", ""]
    return Wrong(json.dumps({**GOOD, draw.choice(names): draw.choice(NONSENSE)}).encode())


def _template(draw: random.Random) -> Wrong:
    text = "".join(draw.choices(MARKS, k=draw.choice([1, 3, 10, 30, 3000])))
    return Wrong(
        json.dumps({"template": draw.choice([text, [text, "a __"]]), "num_beams": 1, "num_rounds": 0}).encode()
    )


def _picture(draw: random.Random) -> Wrong:
    buffer = io.BytesIO()
    Image.new(draw.choice(["RGB", "L", "1"]), (draw.randint(1, 40), draw.randint(1, 40))).save(
        buffer, draw.choice(["PNG", "JPEG", "GIF", "BMP"])
    )
    data = bytearray(buffer.getvalue())
    for _ in range(draw.randint(1, 20)):
        data[draw.randrange(len(data))] = draw.randrange(256)
    del data[draw.randrange(len(data)) :]
    text = base64.b64encode(bytes(data)).decode()
    damaged = draw.choice([text, text[:-1], f"data:,{text}", f"data:image/png;base64,{text}", "data:", "%" + text])
    return Wrong(json.dumps({"template": "a _", "num_beams": 1, "num_rounds": 0, "image": damaged}).encode())


def _form(draw: random.Random) -> Wrong:
    edge = draw.choice(["x", "y", "", "x" * 200])
    part = b'--x\r\ncontent-disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
    parts = [
        part
        % (name, b'; filename="a"' * draw.randint(0, 1), draw.choice([b"{}", json.dumps(GOOD).encode(), b"\xff\x00"]))
        for name in draw.choices([b"request", b"image", b"other", b"", b"\xff"], k=draw.randint(0, 5))
    ]
    body = b"".join(parts) + b"--x--\r\n"
    return Wrong(body[: draw.randint(0, len(body))], kind=f"multipart/form-data; boundary={edge}")


def _headers(draw: random.Random) -> Wrong:
    kinds = ["", "text/plain", "application/xml", "application/json; charset=utf-7", "multipart/form-data"]
    kinds += ["\u00ff", "a" * 500]
    more = ["", "authorization: Bearer \u00ff\r\n", "cookie: " + "a" * 5000 + "\r\n", "expect: 100-continue\r\n"]
    more += ["origin: null\r\n", "content-encoding: gzip\r\n", "if-none-match: *\r\n", "range: bytes=0-\r\n"]
    return Wrong(b"{", draw.choice(kinds), more=draw.choice(more))


def _address(draw: random.Random) -> Wrong:
    paths = ["/", "/v1/", "/v1/fill/", "/static/../app.py", "/static/%2e%2e/app.py", "/static/%00", "/%ff", "//v1/fill"]
    paths += ["/v1/fill?x=%ff", "/v1/models/" + "x" * 2000, "/v1/models/%2f", "/metrics/..", "/openapi.json/x"]
    return Wrong(
        b"{", path=draw.choice(paths), verb=draw.choice(["GET", "POST", "PUT", "DELETE", "PATCH", "TRACE", "X"])
    )


def _raw(draw: random.Random) -> Wrong:
    heads = [
        b"POST /v1/fill HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/fill HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n",
        b"POST /v1/fill HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
        b"POST /v1/fill HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v1/fill HTTP/9.9\r\nhost: x\r\n\r\n",
        b"POST /v1/fill HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 20_000 + b"\r\n",
        b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        bytes(draw.choices(range(256), k=100)) + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # someone speaks TLS
    ]
    return Wrong(raw=draw.choice(heads))


def _completion(draw: random.Random) -> Wrong:
    names = ["prompt", "suffix", "n", "max_tokens", "logprobs", "echo", "stop", "stream", "model", "seed"]
    body = {"prompt": "a man", "suffix": "a wave", "max_tokens": 1, draw.choice(names): draw.choice(NONSENSE)}
    return Wrong(json.dumps(body).encode(), path="/v1/completions")
