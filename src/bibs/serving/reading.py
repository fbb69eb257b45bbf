"""Bodies to requests. A body is JSON, or multipart with JSON in `request` and pictures in `image`."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile
from starlette.requests import Request

from .checks import RefusedError
from .schemas import CompletionRequest, FillRequest, one_line

MAX_FILES = 64

R = TypeVar("R", bound=BaseModel)


async def read_fill(request: Request) -> tuple[FillRequest, list[bytes]]:
    """The request, and the pictures that were uploaded with it."""
    if _media_type(request) != "multipart/form-data":
        return _read_json(FillRequest, await _json_body(request)), []
    try:
        async with request.form(max_files=MAX_FILES, max_fields=2, max_part_size=1 << 20) as form:
            given = form.getlist("request")
            uploads = [await file.read() for file in form.getlist("image") if isinstance(file, UploadFile)]
            strangers = set(form) - {"request", "image"}
            text_images = any(isinstance(image, str) for image in form.getlist("image"))
            asked = [await each.read() if isinstance(each, UploadFile) else each for each in given]
    except Exception:  # whatever a broken body leads the parser to
        raise RefusedError("the body must be multipart/form-data, but cannot be read as such", 400) from None
    if strangers:
        raise RefusedError(f"a form must have the fields `request` and `image`, but has `{min(strangers)[:60]}`")
    if len(asked) != 1:
        raise RefusedError(f"a form must have one field `request`, but has {len(asked)}")
    if text_images:
        raise RefusedError("`image` must be a file, but is a text")
    return _read_json(FillRequest, asked[0]), uploads


async def read_completion(request: Request) -> CompletionRequest:
    return _read_json(CompletionRequest, await _json_body(request))


async def _json_body(request: Request) -> bytes:
    kind = _media_type(request)
    if kind != "application/json":
        raise RefusedError(f"the body must be application/json, but is {kind[:60]!r}", 415)
    return await request.body()


def _read_json(kind: type[R], body: bytes | str) -> R:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise RefusedError(one_line(error)) from None


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
