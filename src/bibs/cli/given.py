"""Which options stand on the command line, whatever their value."""

from __future__ import annotations

from collections.abc import Sequence

import typer


def was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def refuse_options(context: typer.Context, names: Sequence[str], why: str) -> None:
    """Say which option, as it was typed, does not go with the others."""
    options = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    for name in names:
        if was_given(context, name):
            raise ValueError(f"`{options[name]}` {why}")
