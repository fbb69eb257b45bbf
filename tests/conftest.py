"""One service and one Chromium for all tests of the page; `bibs` in the process of the tests."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from browsing import FLAGS, free_port, serving, settle


def pytest_collection_finish() -> None:
    """What was imported stays, and need not be looked through each time that Python looks for garbage."""
    gc.freeze()


@pytest.fixture
def bibs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """`bibs` with arguments, in this process: exit code, lines of standard output, lines of standard error."""
    from bibs.cli import main

    def call(*arguments: object) -> tuple[int, list[str], list[str]]:
        monkeypatch.setattr(sys, "argv", ["bibs", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out.splitlines(), err.splitlines()

    return call


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser; skipped where there is none, unless BIBS_REQUIRE_BROWSER says that there must be one."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None and "BIBS_REQUIRE_BROWSER" not in os.environ:
        pytest.skip("the page is tested in Chromium, and none is installed (Debian: apt-get install chromium)")
    assert path is not None, "BIBS_REQUIRE_BROWSER is set, but no chromium is on the path"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def service(chromium: Any) -> Iterator[str]:
    with serving(free_port()) as address:
        yield address


@pytest.fixture
def complaints() -> list[str]:
    """What the console has said, and requests to foreign hosts. A test that expects some clears it."""
    return []


@pytest.fixture
def open_page(chromium: Any, service: str, complaints: list[str]) -> Iterator[Callable[..., Any]]:
    """Open the page: `open_page(link="", live=True, at=service, **options of the browser's context)`."""
    contexts = []

    def watch(page: Any) -> None:
        page.on("console", lambda said: said.type in ("error", "warning") and complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: "://127.0.0.1:" in request.url or complaints.append(request.url))

    def start(link: str = "", *, live: bool = True, at: str = service, **options: Any) -> Any:
        context = chromium.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(20_000)
        page = context.new_page()
        watch(page)
        page.goto(f"{at}/{link}")
        if live:
            settle(page)
        return page

    yield start
    for context in contexts:
        context.close()
    assert [said for said in complaints if not said.startswith("blob:")] == []
