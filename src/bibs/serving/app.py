"""The application: which address answers what. What is decided about a request stands in the other files."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

import bibs
from bibs.infiller import Infiller
from bibs.methods import SAMPLERS

from . import schemas
from .answers import filled
from .batching import Batcher
from .checks import RefusedError
from .completions import answer, as_events, by_other_names, to_fill
from .description import DESCRIPTIONS, describe_body, describe_errors, with_bodies
from .doors import CLIENT_GONE, COMPLETIONS, Guarded, Watched, error_body
from .reading import read_completion, read_fill
from .service import ClientGoneError, Queue, Service
from .settings import ServiceSettings
from .watching import Metrics

STATIC = Path(__file__).parent / "static"


def create_app(
    infiller: Infiller, settings: ServiceSettings | None = None, *, make_queue: Callable[..., Queue] = Batcher
) -> FastAPI:
    """The service and the page around one pair of models, for any ASGI server.

    `make_queue` makes what gathers the requests that are decoded together, where the server has its own way to.
    """
    settings = settings or ServiceSettings()
    metrics = Metrics()
    service = Service(infiller, settings, metrics, make_queue)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        service.stop()

    app = FastAPI(
        title="bibs",
        version=bibs.__version__,
        description="Fill in the blanks with one left-to-right and one right-to-left model.",
        lifespan=lifespan,
        docs_url=None,  # they load foreign code
        redoc_url=None,
        redirect_slashes=False,
    )
    _add_fill(app, service)
    _add_completions(app, service)
    _add_facts(app, service)
    _add_page(app)
    app.add_exception_handler(HTTPException, _say)
    app.add_exception_handler(RefusedError, _say)
    app.add_exception_handler(ClientGoneError, _say)
    app.openapi = with_bodies(app, has_key=bool(settings.api_key))  # type: ignore[method-assign]
    paths = [route.path for route in app.routes if hasattr(route, "path")]
    app.add_middleware(Guarded, settings=settings, metrics=metrics)
    app.add_middleware(
        CORSMiddleware,
        allow_origins=settings.cors_origins,
        allow_methods=["GET", "POST"],
        allow_headers=["authorization", "content-type"],
        expose_headers=["retry-after"],
    )
    app.add_middleware(Watched, settings=settings, metrics=metrics, paths=paths)
    return app


def to_json(body: object, status: int = 200, **headers: str) -> Response:
    data = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return Response(data, status, headers=headers, media_type="application/json")


async def _say(request: Request, error: Exception) -> Response:
    """What is wrong, in one line."""
    if isinstance(error, ClientGoneError):
        return Response(status_code=CLIENT_GONE)
    headers: dict[str, str] = {}
    if isinstance(error, HTTPException):
        status = error.status_code
        message = {404: "there is nothing at this address", 405: "this address has another verb"}.get(
            status if error.detail in ("Not Found", "Method Not Allowed") else 0, str(error.detail)
        )
        headers = dict(error.headers or {})
    else:
        status, message = getattr(error, "status", 422), str(error)
        headers = {"retry-after": "1"} if status == 503 else {}
    if request.url.path == COMPLETIONS:
        message = by_other_names(message)
    return to_json(error_body(request.url.path, message, status), status, **headers)


def _add_fill(app: FastAPI, service: Service) -> None:
    @app.post(
        "/v1/fill",
        summary="Fill the blanks of a template, or of a list",
        responses={200: {"model": schemas.FillAnswer}, **describe_errors(schemas.ErrorAnswer)},
        response_class=Response,
        openapi_extra=describe_body("FillRequest", "FillForm"),
    )
    async def fill(request: Request) -> Response:
        asked, uploads = await read_fill(request)
        found = await service.fill(asked, uploads=uploads, receive=request.receive)
        log = {"search": asked.method, "templates": len(found.results)}
        request.scope["bibs.log"] = log | ({"text": found.checked.templates} if service.settings.log_text else {})
        results = [
            {"template": template, "error": each}
            if isinstance(each, str)
            else filled(template, each, found.checked.options, service.infiller.vocabulary)
            for template, each in zip(found.checked.templates, found.results, strict=True)
        ]
        return to_json({"model": service.settings.name, "precision": service.infiller.precision, "results": results})


def _add_completions(app: FastAPI, service: Service) -> None:
    @app.post(
        COMPLETIONS,
        summary="Fill in the middle: prompt, blank, suffix",
        responses={
            200: {"model": schemas.CompletionsAnswer, "content": {"text/event-stream": {}}},
            **describe_errors(schemas.CompletionErrorAnswer),
        },
        response_class=Response,
        openapi_extra=describe_body("CompletionRequest"),
    )
    async def completions(request: Request) -> Response:
        asked = await read_completion(request)
        name = service.settings.name
        if asked.model not in ("", name):
            raise RefusedError(f"`model` must be {name!r}, but is {asked.model[:60]!r}", 404)
        try:
            wanted = to_fill(asked, service.settings.limits)
        except ValidationError as error:
            raise RefusedError(schemas.one_line(error)) from None
        found = await service.fill(wanted, receive=request.receive)
        body = answer(asked, found, name)
        return Response(as_events(body), media_type="text/event-stream") if asked.stream else to_json(body)


def _add_facts(app: FastAPI, service: Service) -> None:
    settings = service.settings
    why_not = service.pictures.why_not
    model = {
        "id": settings.name,
        "object": "model",
        "created": 0,
        "owned_by": "bibs",
        "precision": service.infiller.precision,
        "vocabulary": len(service.infiller.vocabulary),
        "pictures": not why_not,
        "why_no_pictures": why_not or None,
    }

    @app.get("/v1/methods", summary="The methods, and the bounds of a request", response_model=schemas.MethodsAnswer)
    async def methods() -> Response:
        rows: list[dict[str, Any]] = [
            {"name": name, "description": said, "samples": name in SAMPLERS} for name, said in DESCRIPTIONS.items()
        ]
        return to_json({"methods": rows, "limits": asdict(settings.limits)})

    @app.get("/v1/models", summary="The model that is served", response_model=schemas.ModelsAnswer)
    async def models() -> Response:
        return to_json({"object": "list", "data": [model]})

    @app.get(
        "/v1/models/{name}",
        summary="The model of this name",
        response_model=schemas.ModelAnswer,
        responses={404: {"model": schemas.ErrorAnswer}},
    )
    async def one_model(name: str) -> Response:
        if name != settings.name:
            raise HTTPException(404, f"the only model here is {settings.name!r}")
        return to_json(model)

    @app.get("/healthz", summary="Whether the process lives", response_model=schemas.StatusAnswer)
    async def healthz() -> Response:
        return to_json({"status": "ok"})

    @app.get(
        "/readyz",
        summary="Whether requests are taken",
        response_model=schemas.StatusAnswer,
        responses={503: {"model": schemas.StatusAnswer}},
    )
    async def readyz() -> Response:
        ready = service.is_ready
        return to_json({"status": "ready" if ready else "stopping"}, 200 if ready else 503)

    @app.get(
        "/metrics", summary="For Prometheus", response_class=Response, responses={200: {"content": {"text/plain": {}}}}
    )
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


class _Files(StaticFiles):
    """Files that a browser asks about each time; it is told that it has them already where that is so."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = "no-cache"
        return response


def _add_page(app: FastAPI) -> None:
    if not STATIC.is_dir():
        return
    for suffix, kind in ((".js", "text/javascript"), (".css", "text/css"), (".svg", "image/svg+xml")):
        mimetypes.add_type(kind, suffix)  # some systems say otherwise
    files = _Files(directory=STATIC)

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        scope: Scope = request.scope
        return await files.get_response("index.html", scope)

    app.mount("/static", files)
