"""`bibs serve`: the page and the service on one port."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bibs.cli.given import refuse_options

KEY = "BIBS_API_KEY"


def serve(
    context: typer.Context,
    model: Annotated[Path | None, typer.Option(help="A model directory; by default the bundled one.")] = None,
    precision: Annotated[
        str, typer.Option(help="Of the search: float32, int8 (faster) or auto. Scores are float32 in any case.")
    ] = "auto",
    host: Annotated[str, typer.Option(help="The address to listen at; 0.0.0.0 lets others in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.")] = 8017,
    api_key: Annotated[
        str | None, typer.Option(envvar=KEY, help="Ask every request for this key; better set in the environment.")
    ] = None,
    cors_origin: Annotated[
        list[str] | None, typer.Option(help="A page's origin that may ask too, or *; may be repeated.")
    ] = None,
    max_waiting: Annotated[int, typer.Option(help="Requests answered at a time; more are told to come again.")] = 64,
    max_rows: Annotated[int, typer.Option(help="What a request may cost (see docs/service.md).")] = 10_000,
    max_body: Annotated[int, typer.Option(help="The most bytes of a request.")] = 12 << 20,
    max_pixels: Annotated[int, typer.Option(help="The most pixels of a picture.")] = 16 << 20,
    deadline: Annotated[float, typer.Option(help="Seconds within which a request is answered.")] = 30.0,
    log_text: Annotated[bool, typer.Option("--log-text", help="Let the log hold what users wrote.")] = False,
    engine: Annotated[str, typer.Option(help="uvicorn, one process; or ray, Ray Serve (extra bibs[ray]).")] = "uvicorn",
    replicas: Annotated[int, typer.Option(help="With --engine ray: models that answer side by side.")] = 1,
    max_queued_requests: Annotated[
        int, typer.Option(help="With --engine ray: requests that wait for a replica; more are told to come again.")
    ] = 256,
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster; without one, Ray is started here.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Log warnings and faults alone.")] = False,
) -> None:
    """Serve the page and the HTTP interface until Ctrl-C.

    Nothing is loaded from elsewhere.

    Example: bibs serve, then open http://127.0.0.1:8017/
    """
    if (os.environ.get(KEY) if api_key is None else api_key) == "":
        raise ValueError(f"`--api-key` ({KEY}) must not be empty: leave it out where anybody may ask")
    from bibs.serving import Limits, ServiceSettings  # first: it says which extra is missing
    from bibs.serving.run import load_infiller, run

    settings = ServiceSettings(
        name="coco" if model is None else model.resolve().name,
        limits=Limits(
            waiting=max_waiting, rows=max_rows, body_bytes=max_body, pixels=max_pixels, deadline_seconds=deadline
        ),
        api_key=api_key or "",
        cors_origins=tuple(cors_origin or ()),
        log_text=log_text,
    )
    log_level = "warning" if quiet else "info"
    if engine == "uvicorn":
        with_ray_alone = ("address", "replicas", "max_queued_requests")
        refuse_options(context, with_ray_alone, "must come with `--engine ray`, but comes with 'uvicorn'")
        run(model, settings, precision=precision, host=host, port=port, log_level=log_level)
        return
    if engine != "ray":
        raise ValueError(f"`--engine` must be uvicorn or ray, but is {engine!r}")
    import bibs.scale.on_ray  # noqa: F401  # first: it says which extra is missing
    from bibs.scale.serving import Replicas, serve_on_ray

    load = partial(load_infiller, model and model.absolute(), precision)
    with_ray = Replicas(replicas, max_queued_requests, address)
    serve_on_ray(load, settings, with_ray, host=host, port=port, log_level=log_level)
