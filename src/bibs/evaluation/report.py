"""What a finished run writes beside its completions: results.json, table.md, table.tex, plots and report.html.

The page stands alone: every picture is inside the file. `*.jinja` are the layouts.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from bibs.evaluation.plots import Plot
from bibs.evaluation.results import Results
from bibs.evaluation.samples import NUM_SAMPLES, Gallery, picture_source
from bibs.evaluation.tables import Table
from bibs.models.storage import save_json, write_atomically

EXTRA = {"plots": "matplotlib", "reports": "jinja2", "caption metrics": "pycocoevalcap"}


@dataclass(frozen=True)
class Report:
    """An experiment as people read it."""

    title: str
    lead: str
    results: Results
    tables: tuple[Table, ...]
    plots: tuple[Plot, ...] = ()
    more: tuple[Table, ...] = ()  # after the plots
    galleries: tuple[Gallery, ...] = ()


def require_extra() -> None:
    """Say what is missing before hours of work, not after."""
    for use, package in EXTRA.items():
        try:
            import_module(package)
        except ImportError:
            raise ValueError(f'{use} need {package}: pip install ".[eval]"') from None


def write_outputs(report: Report, directory: Path, images: Path | None = None) -> None:
    """`images` is the folder of the pictures, to show some."""
    save_json(directory / "results.json", report.results.json())
    for plot in report.plots:
        plot.save(directory)
    for name in ("table.md", "table.tex", "report.html"):
        write_atomically(directory / name, render(name, report, directory, images).encode())


def render(name: str, report: Report, directory: Path, images: Path | None = None) -> str:
    """One of the layouts beside this file; `directory` holds the plots."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=name.endswith(".html"),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "inline": lambda plot: base64.b64encode(plot.file(directory).read_bytes()).decode(),
        "picture_source": picture_source,
        "short": lambda text: re.sub(r"^([+-]?)0\.", r"\1.", text),
        "tex": lambda text: re.sub(r"([%&_#$])", r"\\\1", text),
    }
    told = {"report": report, "tables": [*report.tables, *report.more], "num_samples": NUM_SAMPLES, "images": images}
    return environment.get_template(f"{name}.jinja").render(told).rstrip() + "\n"
