"""The command `onnxtfl inspect`."""

from __future__ import annotations

import click

from onnxtfl.cli.options import CONTEXT, MODEL, verbose


@click.command("inspect", context_settings=CONTEXT)
@click.argument("model", type=MODEL)
@click.option("--stage", default="file", show_default=True, help="Print the graph after this step of a conversion.")
@verbose
def inspect_command(model: str, stage: str, verbose: bool) -> int:
    """Print the graph of MODEL in the text form."""
    from onnxtfl import inspect

    click.echo(inspect(model, stage), nl=False)
    return 0
