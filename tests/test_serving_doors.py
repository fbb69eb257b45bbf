"""The key, the room, the size; clients that go; deadlines; the end: nothing that was accepted is lost."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from bibs.serving import Limits, ServiceSettings
from bibs.serving import app as app_module
from served import CLIENT, counted, get, held, metric, post, served, wait_until

ASKED = {"template": "a man _ a wave"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    settings = ServiceSettings(
        api_key="secret", cors_origins=("https://example.org",), limits=Limits(body_bytes=2000, body_seconds=0.3)
    )
    with served(counted(), settings) as (address, _):
        yield address


def bearer(key: str, kind: str = "Bearer") -> dict[str, str]:
    return {"authorization": f"{kind} {key}"}


@pytest.mark.parametrize(
    "headers", [{}, bearer("other"), {"authorization": "Bearer"}, bearer("secret", "Basic"), bearer("secret2")]
)
def test_without_the_key_nothing_is_answered(guarded, headers):
    for response in (
        post(guarded, ASKED, headers=headers),
        post(guarded, {"prompt": "a"}, "/v1/completions", headers=headers),
        *(get(guarded, path, headers=headers) for path in ("/v1/methods", "/v1/models", "/metrics")),
    ):
        assert response.status_code == 401
        assert "error" in response.json()
        assert response.headers["www-authenticate"] == "Bearer"


def test_with_the_key_everything_is(guarded):
    assert post(guarded, ASKED, headers=bearer("secret")).status_code == 200
    assert post(guarded, ASKED, headers=bearer("secret", "bearer")).status_code == 200
    for path in ("/v1/methods", "/v1/models", "/v1/models/coco", "/metrics"):
        assert get(guarded, path, headers=bearer("secret")).status_code == 200


def test_health_and_description_need_no_key(guarded):
    assert get(guarded, "/healthz").json() == {"status": "ok"}
    assert get(guarded, "/readyz").json() == {"status": "ready"}
    assert get(guarded, "/openapi.json").status_code == 200


def test_only_named_origins_may_ask_from_a_page(guarded):
    ours, other = "https://example.org", "https://example.com"
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    allowed = CLIENT.options(f"{guarded}/v1/fill", headers={"origin": ours, **asks})
    assert allowed.headers["access-control-allow-origin"] == ours
    refused = CLIENT.options(f"{guarded}/v1/fill", headers={"origin": other, **asks})
    assert "access-control-allow-origin" not in refused.headers
    # An error can be read by the page that is allowed to ask.
    assert post(guarded, ASKED, headers={"origin": ours}).headers["access-control-allow-origin"] == ours
    assert "access-control-allow-origin" not in post(guarded, ASKED, headers={"origin": other}).headers


def test_every_answer_has_the_headers_of_safety(guarded):
    answers = [
        get(guarded, "/healthz"),
        get(guarded, "/nowhere"),
        post(guarded, ASKED),
        post(guarded, {}, headers=bearer("secret")),
    ]
    assert [answer.status_code for answer in answers] == [200, 404, 401, 422]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "server" not in answer.headers or "uvicorn" in answer.headers["server"]


def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_sent(guarded):
    with connection(guarded) as line:
        line.sendall(head(b"content-length: 2001\r\n"))  # and not one byte of it
        assert answered(line).startswith(b"HTTP/1.1 413")


def test_a_body_that_does_not_say_is_refused_where_it_is_too_large(guarded):
    pieces = (b"x" * 500 for _ in range(100))
    response = CLIENT.post(
        f"{guarded}/v1/fill", content=pieces, headers={**bearer("secret"), "content-type": "application/json"}
    )
    assert response.status_code == 413
    assert response.json() == {"error": "the body must have at most 2000 bytes"}


def test_a_body_that_does_not_come_is_waited_for_no_longer_than_told(guarded):
    with connection(guarded) as line:
        line.sendall(head(b"content-length: 100\r\n") + b"{")
        assert answered(line).startswith(b"HTTP/1.1 408")
    assert post(guarded, ASKED, headers=bearer("secret")).status_code == 200


def test_a_client_that_goes_while_it_sends_hurts_nobody(guarded):
    for _ in range(5):
        with connection(guarded) as line:
            line.sendall(head(b"content-length: 100\r\n") + b"{")
    wait_until(lambda: "bibs_waiting 0.0" in get(guarded, "/metrics", headers=bearer("secret")).text)


def connection(address: str) -> socket.socket:
    parts = urlsplit(address)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60)


def head(headers: bytes) -> bytes:
    fixed = b"host: x\r\nauthorization: Bearer secret\r\ncontent-type: application/json\r\n"
    return b"POST /v1/fill HTTP/1.1\r\n" + fixed + headers + b"\r\n"


def answered(line: socket.socket) -> bytes:
    data = b""
    while chunk := line.recv(4096):
        data += chunk
    return data


def test_past_the_room_there_is_is_told_to_come_again_and_those_inside_are_answered():
    infiller, model = held()
    with served(infiller, ServiceSettings(limits=Limits(waiting=3))) as (address, _), ThreadPoolExecutor(3) as pool:
        model.hold()
        inside = [pool.submit(post, address, ASKED) for _ in range(3)]
        wait_until(lambda: metric(address, "bibs_waiting") == 3)
        for path, body in (("/v1/fill", ASKED), ("/v1/completions", {"prompt": "a"})):
            refused = post(address, body, path)
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) >= 1
        assert get(address, "/healthz").status_code == 200
        model.gate.set()
        assert [future.result().status_code for future in inside] == [200] * 3
        assert post(address, ASKED).status_code == 200


def test_a_request_past_its_deadline_is_told_so_and_leaves_the_queue():
    infiller, model = held()
    limits = Limits(deadline_seconds=0.5)
    with served(infiller, ServiceSettings(limits=limits)) as (address, _), ThreadPoolExecutor(2) as pool:
        model.hold()
        model.read.clear()
        running = pool.submit(post, address, ASKED)
        assert model.entered.wait(60)
        late = post(address, {"template": "the dog _"})
        assert (late.status_code, late.json()) == (504, {"error": "there was no answer within 0.5 seconds"})
        assert running.result().status_code == 504
        model.gate.set()
        assert post(address, ASKED).status_code == 200
        dog = infiller.vocabulary.encode(["dog"])[0]
        assert not any(dog in context for context in model.read)


def test_a_request_whose_client_has_gone_leaves_the_queue():
    infiller, model = held()
    with served(infiller) as (address, _), ThreadPoolExecutor(1) as pool:
        model.hold()
        model.read.clear()
        running = pool.submit(post, address, ASKED)
        assert model.entered.wait(60)
        body = json.dumps({"template": "the dog _"}).encode()
        with connection(address) as line:
            line.sendall(head(b"content-length: %d\r\n" % len(body)) + body)
            wait_until(lambda: metric(address, "bibs_waiting") == 2)
        wait_until(lambda: metric(address, "bibs_waiting") == 1)
        model.gate.set()
        assert running.result().status_code == 200
        assert post(address, ASKED).status_code == 200
        dog = infiller.vocabulary.encode(["dog"])[0]
        assert not any(dog in context for context in model.read)
        assert 'status="499"' in get(address, "/metrics").text


def test_the_end_waits_for_what_was_accepted():
    infiller, model = held()
    with served(infiller) as (address, server), ThreadPoolExecutor(8) as pool:
        model.hold()
        futures = [pool.submit(post, address, {**ASKED, "num_beams": 1 + number % 3}) for number in range(8)]
        wait_until(lambda: metric(address, "bibs_waiting") == 8)
        server.should_exit = True
        model.gate.set()
        assert [future.result().status_code for future in futures] == [200] * 8


@pytest.mark.parametrize("log_text", [False, True])
def test_the_log_holds_what_users_wrote_only_where_asked(caplog, log_text):
    caplog.set_level(logging.INFO, "bibs.serving")
    infiller, _ = held()
    words = ["wave", "riding", "secret", "horse", "xyzzy"]
    with served(infiller, ServiceSettings(log_text=log_text)) as (address, _):
        caplog.clear()
        post(address, {"template": "riding _ wave"})
        post(address, {"template": "riding __ wave"})
        post(address, {"template": "a horse _"})  # fails inside the model
        post(address, {"riding": "wave"})
        get(address, "/xyzzy?riding=wave")
        get(address, "/v1/models/xyzzy")
    lines = [as_line(record) for record in caplog.records if record.name == "bibs.serving"]
    answered = [line for line in lines if line["event"] == "answered"]
    assert [line["status"] for line in answered] == [200, 422, 500, 422, 404, 404]
    assert [line["path"] for line in answered] == ["/v1/fill"] * 4 + ["other"] * 2
    assert all(line["seconds"] >= 0 for line in answered)
    found = {word for word in words if word in json.dumps(lines)}
    assert found == ({"riding", "wave", "secret"} if log_text else set())


def as_line(record: logging.LogRecord) -> dict[str, Any]:
    from bibs.serving.watching import JsonLines

    line = JsonLines().format(record)
    assert "\n" not in line
    return json.loads(line)  # type: ignore[no-any-return]


def test_prometheus_reads_what_happened():
    with served(counted()) as (address, _):
        post(address, ASKED)
        post(address, {})
        text = get(address, "/metrics").text
    assert 'bibs_requests_total{path="/v1/fill",status="200"} 1.0' in text
    assert 'bibs_requests_total{path="/v1/fill",status="422"} 1.0' in text
    assert 'bibs_request_seconds_count{path="/v1/fill"} 2.0' in text
    assert "bibs_waiting 0.0" in text


def test_the_page_comes_with_its_kinds_and_is_asked_about_each_time(tmp_path, monkeypatch):
    (tmp_path / "index.html").write_text("<!doctype html><title>bibs</title>")
    (tmp_path / "main.js").write_text("export {};")
    (tmp_path / "page.css").write_text("body {}")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"\xff\xd8")
    monkeypatch.setattr(app_module, "STATIC", tmp_path)
    kinds = {
        "/": "text/html",
        "/static/main.js": "text/javascript",
        "/static/page.css": "text/css",
        "/static/photos/cat.jpg": "image/jpeg",
    }
    with served(counted(), ServiceSettings(api_key="secret")) as (address, _):
        for path, kind in kinds.items():
            answer = get(address, path)
            assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, kind)
            assert answer.headers["cache-control"] == "no-cache"
            again = get(address, path, headers={"if-none-match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
        for path in ("/static/nothing.js", "/static/../settings.py", "/static/%2e%2e/settings.py", "/main.js"):
            assert get(address, path).status_code == 404


# --- the command


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("model") / "small"
    counted().save(directory)
    return directory


def command(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bibs", "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.match(r"bibs: (http://127\.0\.0\.1:\d+)/ \(Ctrl-C ends\)$", line)
    assert found, line
    return found[1]


@pytest.mark.slow
def test_told_to_end_under_load_the_command_answers_what_it_has_accepted(model_directory):
    process = command("--model", str(model_directory), "--port", "0", "--quiet")
    address = address_of(process)
    texts = [f"a ___ {word}" for word in ("wave", "beach", "man", "dog", "surfboard", "horse")] * 5
    with ThreadPoolExecutor(len(texts) + 1) as pool:
        post(address, ASKED)
        clients = [httpx.Client(trust_env=False, timeout=60) for _ in texts]
        for client in clients:  # they are connected, so what they send is accepted
            client.get(f"{address}/healthz")
        futures = [
            pool.submit(client.post, f"{address}/v1/fill", json={"template": text, "num_beams": 20, "num_rounds": 8})
            for client, text in zip(clients, texts, strict=True)
        ]
        with httpx.Client(trust_env=False) as watcher:
            wait_until(
                lambda: (
                    "bibs_waiting 30.0" in watcher.get(f"{address}/metrics").text
                    or all(future.done() for future in futures)
                )
            )
        process.send_signal(signal.SIGTERM)
        statuses = [future.result().status_code for future in futures]
        for client in clients:
            client.close()
    assert statuses == [200] * len(texts)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in (0, -signal.SIGTERM)
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "nowhere"], "bibs: no model directory at nowhere"),
        (["--port", "99999"], "bibs: `--host` and `--port` must be free, but 127.0.0.1:99999 is not: "),
        (["--host", "300.1.1.1"], "bibs: `--host` and `--port` must be free, but 300.1.1.1:8017 is not: "),
        (["--cors-origin", "example.org"], "bibs: `--cors-origin` must be origins such as https://example.org, but"),
        (["--max-waiting", "0"], "bibs: `--max-waiting` must be a number above 0, but is 0"),
        (["--deadline", "inf"], "bibs: `--deadline` must be a number above 0, but is inf"),
        (["--max-queued-requests", "9"], "bibs: `--max-queued-requests` must come with `--engine ray`, but comes with"),
        (["--api-key", ""], "bibs: `--api-key` (BIBS_API_KEY) must not be empty"),
        (["--api-key", "schlüssel"], "bibs: `--api-key` must be plain ASCII without white space around it"),
    ],
)
def test_what_is_wrong_with_the_command_is_said_in_one_line(bibs, arguments, said):
    port = [] if "--port" in arguments or "--host" in arguments else ["--port", "0"]
    code, _, errors = bibs("serve", *arguments, *port)
    assert code == 2
    assert [line.startswith(said) for line in errors] == [True]


def test_a_key_that_is_set_to_nothing_does_not_open_the_service():
    command = [sys.executable, "-m", "bibs", "serve", "--port", "0", "--model", "nowhere"]
    done = subprocess.run(command, env=os.environ | {"BIBS_API_KEY": ""}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("bibs: `--api-key` (BIBS_API_KEY) must not be empty")


def test_a_port_in_use_is_said_before_the_model_is_loaded(bibs):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, errors = bibs("serve", "--port", taken.getsockname()[1], "--model", "nowhere")
    assert code == 2
    assert "Address already in use" in errors[0]


BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"fastapi", "starlette", "uvicorn", "prometheus_client"}:
            raise ImportError(f"No module named {name!r}")
sys.meta_path.insert(0, Block())
"""


@pytest.mark.slow
def test_a_missing_extra_is_named_and_nothing_else_needs_it():
    code = BLOCK + "sys.argv = ['bibs', 'serve']; from bibs.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("bibs: the service needs the package `fastapi`, which could not be imported")
    assert done.stderr.rstrip().endswith('pip install ".[serve]"')
    code = BLOCK + "import bibs, bibs.cli; print(bibs.Infiller.from_corpus(['a b c'])('a _ c')[0].text)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "a b c\n")
