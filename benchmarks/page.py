"""How long the page lets one wait: its first paint, and the answer to a click, in Chromium before `bibs serve`.

    python benchmarks/page.py [--repeats 5]

The service is warm: it has answered before. A click is answered when all three methods are shown. Beside the time on
the clock, which says how busy the machine was too, stands the processor time of service and browser together: the work
is done one thing after the other, so this is about what the clock would say on an idle machine.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import Page, sync_playwright

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]

PAINT = 'performance.getEntriesByName("first-contentful-paint")[0].startTime'

ANSWER = """(run) => new Promise((resolve) => {
  const table = document.getElementById("answers");
  const began = performance.now();
  new MutationObserver((_, watch) => {
    if (table.hasAttribute("aria-busy")) return;
    watch.disconnect();
    requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - began))); // when it has been painted
  }).observe(table, { attributes: true, attributeFilter: ["aria-busy"] });
  document.querySelector(run).click();
})"""

WORD = "tbody[data-method=bibs] button.word"
CLICKS = {  # the last is timed, those before it prepare it
    "a word made a blank": ["#sentence [data-index='1']"],
    "a blank made a word": ["#sentence [data-index='3']"],
    "another photograph": ["[name=picture][value=coffee]"],
    "a blank of any length": ["#any-length"],
    "a word fixed": [WORD, "#alternatives .choice:not(.now)"],
    "a word forbidden": [WORD, "#alternatives-ban button"],
    "one more method": ["[name=method][value=rerank-sum]"],
    "the passes opened": ["summary"],
    "something undone": ["#sentence [data-index='1']", "#undo"],
}


class Waited(NamedTuple):
    """Milliseconds."""

    clock: float
    processor: float


@contextmanager
def serving() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "bibs", "serve", "--port", str(port), "--quiet"])
    address = f"http://127.0.0.1:{port}/"
    try:
        while True:
            try:
                urllib.request.urlopen(f"{address}readyz")
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def open_page(browser: Any, address: str) -> Page:
    page: Page = browser.new_context(viewport={"width": 1280, "height": 860}).new_page()
    page.goto(address)
    page.wait_for_selector("#status[data-kind=live]")
    page.wait_for_selector("#answers:not([aria-busy])")
    return page


def paints(browser: Any, address: str, repeats: int) -> dict[str, list[Waited]]:
    """From the request for the page: the first paint holds the stored sentence and its fills, then come live ones."""
    found: dict[str, list[Waited]] = {"first paint, with a filled sentence": [], "live answers": []}
    for _ in range(repeats):
        began, used = time.perf_counter(), processor_time()
        page = open_page(browser, address)
        waited = Waited(1000 * (time.perf_counter() - began), processor_time() - used)
        found["first paint, with a filled sentence"].append(Waited(page.evaluate(PAINT), math.nan))
        found["live answers"].append(waited)
        page.context.close()
    return found


def clicks(browser: Any, address: str, repeats: int) -> dict[str, list[Waited]]:
    """From a click on a page that was just opened to the answers of all methods."""
    found: dict[str, list[Waited]] = {name: [] for name in CLICKS}
    for _ in range(repeats):
        for name, (*before, timed) in CLICKS.items():
            page = open_page(browser, address)
            for selector in before:
                page.locator(selector).first.click()
                page.wait_for_selector("#answers:not([aria-busy])")
            used = processor_time()
            clock = page.evaluate(ANSWER, timed)
            found[name].append(Waited(clock, processor_time() - used))
            page.context.close()
    return found


def processor_time() -> float:
    """Milliseconds that all processes begun by this one have used."""
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        parents[int(path.parent.name)] = int(fields[1])
        used[int(path.parent.name)] = 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    ours: set[int] = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(used[pid] for pid in ours - {os.getpid()} if pid in used)


def show(title: str, found: dict[str, list[Waited]]) -> None:
    print(f"{title:38}{'least':>8}{'median':>8}{'processor':>11}   ms")
    for name, waits in found.items():
        clock = [wait.clock for wait in waits]
        processor = statistics.median(wait.processor for wait in waits)
        print(f"  {name:36}{min(clock):8.0f}{statistics.median(clock):8.0f}{processor:11.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    path = shutil.which("chromium")
    if path is None:
        sys.exit("chromium must be installed")
    with serving() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        open_page(browser, address).context.close()
        show("from the request for the page", paints(browser, address, repeats))
        show("from a click to all answers", clicks(browser, address, repeats))
        browser.close()
    print(f"load of the machine, one minute: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
