"""The commands `onnxtfl build` and `onnxtfl run`: neutral graphs as files, and evaluation without a runtime."""

from __future__ import annotations

import os
from typing import Any

import click

from onnxtfl.cli.convert import EXIT_CODES
from onnxtfl.cli.help import Grouped
from onnxtfl.cli.options import CONTEXT, MODEL, command_options, keywords
from onnxtfl.option_table import BUILD
from onnxtfl.tables import counted

_SHORT = "Convert a graph of neutral ops (.ir)."


@click.command("build", cls=Grouped, short_help=_SHORT, context_settings=CONTEXT, epilog=EXIT_CODES)
@click.argument("graph", type=MODEL)
@command_options(BUILD)
def build_command(graph: str, output: str | None, quiet: bool, verbose: bool, **options: Any) -> int:
    """Convert GRAPH, neutral ops as text, to TFLite or ONNX, and compare the result with the meaning of the ops.

    \b
    Examples:
      onnxtfl inspect model.onnx --stage lifted -o graph.ir
      onnxtfl build graph.ir -o model.tflite
      onnxtfl build graph.ir -o model.onnx --opset 17
    """
    from onnxtfl import build_model
    from onnxtfl.cli.progress import progress
    from onnxtfl.cli.streams import model_of
    from onnxtfl.cli.tables import show_conversion
    from onnxtfl.errors import CheckFailedError
    from onnxtfl.output import beside

    output = output or beside(graph, ".tflite")
    failure: CheckFailedError | None = None
    with progress(quiet) as step:
        try:
            conversion = build_model(model_of(graph), output, on_progress=step, **keywords(BUILD, options))
        except CheckFailedError as error:
            failure, conversion = error, error.conversion
    if not quiet:
        show_conversion(graph, output, conversion, verbose)
    if failure is not None:
        raise failure
    return 0


@click.command("run", short_help="Evaluate a model by the meaning of its ops.", context_settings=CONTEXT)
@click.argument("model", type=MODEL)
@click.option("--inputs", "data", required=True, metavar="DATA.npz", help="Arrays by input name.")
@click.option("-o", "--output", required=True, metavar="OUT.npz", help="File to write, with an array for each output.")
@click.option(
    "--precision",
    type=click.Choice(["float16", "float16-sums"]),
    help="Simulate float16: store each value in it, and (-sums) accumulate sums in it.",
)
def run_command(model: str, data: str, output: str, precision: Any) -> int:
    """Evaluate MODEL (.onnx, .tflite or .ir) in NumPy by the neutral ops alone, without a runtime.

    With --precision, the values that leave float16's range are listed.

    \b
    Example:
      onnxtfl run model.onnx --inputs x.npz -o y.npz
    """
    from onnxtfl import run
    from onnxtfl.cli.streams import model_of
    from onnxtfl.output import write_arrays

    found = run(model_of(model), data, precision, lambda excess: click.echo(str(excess)))
    write_arrays(output, found)
    click.echo(f"{counted(len(found), 'output')} written to {os.fspath(output)}")
    return 0
