"""A stranger's path, timed: the shell blocks of docs/tutorial.md, from a wheel, in an empty folder elsewhere.

The only liberty: where the page installs `.`, this installs the wheel that it has just built. The source distribution
is then installed in place of the wheel and fills a blank too.

    python benchmarks/stranger.py [--json times.json]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r"^## (?P<title>[^\n]+)|^```sh\n(?P<code>.*?)^```", flags=re.DOTALL | re.MULTILINE)
LIKE_A_SHELL = "set -eo pipefail\n[ ! -e venv/bin/activate ] || . venv/bin/activate\n"


def steps() -> list[tuple[str, str]]:
    """The shell blocks of the page, each with the heading that it stands under."""
    title, found = "", []
    for match in BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        title = match["title"] or title
        if match["code"]:
            found.append((title, match["code"]))
    return found


def build(place: Path) -> tuple[Path, Path]:
    command = [sys.executable, "-m", "build", "--outdir", str(place), str(ROOT)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (wheel,), (source,) = place.glob("*.whl"), place.glob("*.tar.gz")
    return wheel, source


def run(code: str, folder: Path) -> tuple[float, float]:
    """Seconds by the clock, and of processors."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    began, used = time.monotonic(), processor_seconds()
    shell = subprocess.Popen(
        ["bash", "-c", LIKE_A_SHELL + code], cwd=folder, env=environment | {"PIP_QUIET": "1"}, start_new_session=True
    )
    if shell.wait():
        os.killpg(shell.pid, signal.SIGKILL)
        sys.exit(f"stranger.py: a block of {PAGE.name} ended with exit code {shell.returncode}:\n{code}")
    return time.monotonic() - began, processor_seconds() - used


def processor_seconds() -> float:
    """Of all processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where the seconds of each step go")
    arguments = parser.parse_args()
    seconds: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory(prefix="bibs-stranger-") as temporary:
        folder = Path(temporary)
        wheel, source = build(folder / "dist")
        home = folder / "home"
        home.mkdir()
        for title, code in steps():
            print(f"\n== {title}", flush=True)
            seconds[title] = run(code.replace('".[serve]"', f'"{wheel}[serve]"'), home)
        print("\n== The source distribution", flush=True)
        reinstall = f'pip install --quiet --no-deps --force-reinstall "{source}"\nbibs fill "a _ on a table"\n'
        seconds["The source distribution"] = run(reinstall, home)
    print("\n  clock  processors")
    for title, (clock, processors) in seconds.items():
        print(f"{clock:6.1f}s {processors:10.1f}s  {title}")
    clock, processors = map(sum, zip(*seconds.values(), strict=True))
    print(
        f"{clock:6.1f}s {processors:10.1f}s  in all; {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f} at the end"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(seconds, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
