"""What OpenAPI cannot see by itself: bodies that we read ourselves, errors, the key; and each method in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from .schemas import CompletionRequest, FillForm, FillRequest

DESCRIPTIONS = {
    "bibs": "Bidirectional Beam Search: beams from both ends that hear each other.",
    "forward": "Beam search from left to right, blind to what stands behind the blank.",
    "backward": "Beam search from right to left, blind to what stands before the blank.",
    "rerank-max": "Both one-way searches; the better of the two scores decides.",
    "rerank-sum": "Both one-way searches; the sum of the two scores decides.",
    "gsn": "Sampling word by word, in order, from what both models say together.",
    "gsn-random": "The same with words drawn in random order.",
    "coordinate": "The best word for each slot in turn, given all others.",
    "unidirectional-gibbs": "Sampling word by word from the left-to-right model alone.",
    "exact": "All fills there are, scored one by one; for a single missing word.",
}

STATUSES = {
    400: "The body cannot be read.",
    401: "The API key is missing or wrong.",
    404: "There is no such place or model.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is of another kind.",
    422: "Something in the request is wrong.",
    500: "The service failed.",
    503: "Too many requests wait; `Retry-After` says when to try again.",
    504: "The answer was not ready in time.",
}


def describe_errors(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": model, "description": said} for status, said in STATUSES.items()}


def describe_body(name: str, form: str | None = None) -> dict[str, Any]:
    kinds = {"application/json": name, **({"multipart/form-data": form} if form else {})}
    content = {kind: {"schema": {"$ref": f"#/components/schemas/{each}"}} for kind, each in kinds.items()}
    return {"requestBody": {"required": True, "content": content}}


def with_bodies(app: FastAPI, *, has_key: bool) -> Callable[[], dict[str, Any]]:
    """The description of an app, with the bodies that `describe_body` names."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            _, found = models_json_schema(
                [(kind, "validation") for kind in (FillRequest, FillForm, CompletionRequest)],
                ref_template="#/components/schemas/{model}",
            )
            components = schema.setdefault("components", {})
            components.setdefault("schemas", {}).update(found["$defs"])
            if has_key:
                components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
                for path, operations in schema["paths"].items():
                    if path.startswith(("/v1/", "/metrics")):
                        for operation in operations.values():
                            operation["security"] = [{"key": []}]
            app.openapi_schema = schema
        return app.openapi_schema

    return openapi
