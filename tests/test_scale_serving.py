"""`bibs serve --engine ray` answers what `bibs serve` answers: its queue, and a whole Ray Serve."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bibs import Infiller
from bibs.cli import main
from served import counted, get, held, post, served

pytest.importorskip("ray.serve", reason="needs the extra: pip install '.[ray]'")
from bibs.scale.serving import Replicas, ServeQueue, serving_on_ray
from bibs.serving import Limits, ServiceSettings
from bibs.serving.batching import ClosedError, Job

BODIES = [
    {"template": "a man is _ a wave"},
    {"template": ["the _ is ___", "a __", "a man _ _ a wave"], "num_beams": 3},
    {"template": "A man _ a wave!", "method": "gsn", "seed": 7},
    {"template": "a __"},
    {"template": "a _", "num_beams": 0},
]


@pytest.fixture(scope="module")
def expected() -> list[tuple[int, object]]:
    """What the service without Ray answers."""
    with served(counted()) as (address, _):
        return [(answer.status_code, answer.json()) for answer in (post(address, body) for body in BODIES)]


def answers(address: str) -> list[tuple[int, object]]:
    with ThreadPoolExecutor(len(BODIES)) as threads:
        found = list(threads.map(lambda body: post(address, body), BODIES))
    return [(answer.status_code, answer.json()) for answer in found]


def fails_at_horse() -> Infiller:
    return held()[0]


def test_jobs_of_one_key_run_together_and_a_failure_is_that_of_no_other():
    calls = []

    def run(key: str, items: list[int]) -> list[str]:
        calls.append((key, items))
        if 0 in items:
            raise ValueError("zero")
        return [f"{key}{item}" for item in items]

    counted_items: list[int] = []
    queue = ServeQueue(run, on_batch=lambda items, seconds: counted_items.append(items))
    jobs = [Job("a", [1, 2]), Job("b", [3]), Job("a", [4]), Job("b", [0]), Job("b", [5])]
    outcomes = queue._run(jobs)
    assert [str(outcome) for outcome in outcomes] == ["['a1', 'a2']", "['b3']", "['a4']", "zero", "['b5']"]
    assert calls == [("a", [1, 2, 4]), ("b", [3, 0, 5]), ("b", [3]), ("b", [0]), ("b", [5])]
    assert counted_items == [3, 1, 1]
    queue.close()
    assert not queue.is_running
    with pytest.raises(ClosedError):
        queue.submit(jobs[0])


@pytest.fixture(scope="module")
def on_ray() -> Iterator[str]:
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))  # where replicas find `served`
        settings = ServiceSettings(limits=Limits(body_bytes=5_000))
        with serving_on_ray(fails_at_horse, settings, Replicas(), host="127.0.0.1", port=0) as port:
            yield f"http://127.0.0.1:{port}"


@pytest.mark.skipif("BIBS_TEST_RAY" not in os.environ, reason="a whole Ray takes its time: set BIBS_TEST_RAY=1")
def test_ray_serve_answers_as_the_service_alone_does(on_ray, expected):
    assert answers(on_ray) == expected
    with ThreadPoolExecutor(4) as threads:
        some = threads.map(lambda template: post(on_ray, {"template": template}), ["a _", "a horse _", "_ is", "_ man"])
        assert [answer.status_code for answer in some] == [200, 500, 200, 200]
    assert get(on_ray, "/readyz").json() == {"status": "ready"}
    page = get(on_ray, "/")
    assert "content-security-policy" in page.headers
    assert "<html" in page.text
    assert post(on_ray, {"template": "_ " * 5_000}).status_code == 413


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--engine", "spark"], "`--engine` must be uvicorn or ray, but is 'spark'"),
        (["--replicas", "2"], "`--replicas` must come with `--engine ray`, but comes with 'uvicorn'"),
        (["--address", "auto"], "`--address` must come with `--engine ray`, but comes with 'uvicorn'"),
        (["--engine", "ray", "--replicas", "0"], "`--replicas` must be at least 1, but is 0"),
        (["--engine", "ray", "--port", "99999"], "`--host` and `--port` must be free, but 127.0.0.1:99999 is not"),
    ],
)
def test_options_of_the_engine_that_cannot_be_are_one_line(monkeypatch, capsys, arguments, said):
    monkeypatch.setattr("sys.argv", ["bibs", "serve", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"bibs: {said}")


def test_replicas_and_their_queue_have_at_least_one_place():
    for options, named in (({"count": 0}, "--replicas"), ({"max_queued": 0}, "--max-queued-requests")):
        with pytest.raises(ValueError, match=f"`{named}` must be at least 1, but is 0"):
            Replicas(**options)
