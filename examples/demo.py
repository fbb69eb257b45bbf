"""`make demo`: the same blanks filled left to right, right to left, and both ways at once; then with pictures."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from bibs import Completion, Infiller

TEMPLATES = [
    "A man on _ _ _ _ _ how to ski.",
    "a man _ _ _ a wave",
    "The woman has _ _ _ _ _ at her stand.",
    "a group of _ _ _ _ _ _ snow covered slope",
    "two people _ _ _ _ the beach",
    "the _ was _ down the tracks",
]
PICTURED = ["a _ _ _ on a table", "a photo of a _ _ _ _ _", "a _ is _ _ _ the _"]
METHODS = {"left to right": "forward", "right to left": "backward", "both ways (BiBS)": "bibs"}


def marked(completion: Completion, template: str) -> str:
    """The completed text with the fills standing out."""
    pieces, spans = template.replace("_", "\0").split("\0"), iter(" ".join(completion.spans).split())
    return "".join(
        piece + (f"[bold]{next(spans)}[/bold]" if k + 1 < len(pieces) else "") for k, piece in enumerate(pieces)
    )


def show_directions(infiller: Infiller, console: Console) -> None:
    table = Table("search", "sentence", "S", title="One blank, three searches", title_justify="left")
    for template in TEMPLATES:
        table.add_section()
        table.add_row("template", template, "")
        for label, method in METHODS.items():
            best = infiller(template, method=method)[0]
            style = "green" if method == "bibs" else "dim"
            table.add_row(label, marked(best, template), f"{best.score:.1f}", style=style)
    console.print(table)
    console.print("S: log probability of the whole sentence under both models; closer to 0 is better.\n")


def show_pictures(infiller: Infiller, console: Console) -> None:
    from skimage import data

    photos = {"no picture": None, "a cat": data.chelsea(), "a cup of coffee": data.coffee(), "a rocket": data.rocket()}
    table = Table("template", *photos, title="The same blanks, different photographs", title_justify="left")
    for template in PICTURED:
        found = infiller([template] * len(photos), images=list(photos.values()))
        table.add_row(template, *(marked(completions[0], template) for completions in found))
    console.print(table)


def main() -> None:
    console = Console(width=None if sys.stdout.isatty() else 110)
    infiller = Infiller.from_pretrained()
    show_directions(infiller, console)
    show_pictures(infiller, console)


if __name__ == "__main__":
    main()
