"""The commands: `onnx2tfl`, `tfl2onnx`, and `onnxtfl` with its subcommands."""

from __future__ import annotations

from typing import Any

import click

from onnxtfl.cli.build import build_command, run_command
from onnxtfl.cli.check import check_command
from onnxtfl.cli.convert import onnx2tfl, tfl2onnx
from onnxtfl.cli.inspect import inspect_command
from onnxtfl.cli.options import CONTEXT, command_options
from onnxtfl.option_table import OPS

__all__ = ["onnx2tfl", "onnxtfl", "tfl2onnx"]


@click.group("onnxtfl", context_settings=CONTEXT, no_args_is_help=False)
@click.version_option(package_name="onnxtfl")
def onnxtfl() -> None:
    """Convert, check and inspect ONNX and TFLite models.

    \b
    Examples:
      onnxtfl onnx2tfl model.onnx               (or: onnx2tfl model.onnx)
      onnxtfl check model.onnx model.tflite
      onnxtfl inspect model.tflite
      onnxtfl explain E-SHAPE-001

    \b
    Completion of commands and options, in bash (zsh_source, fish_source):
      eval "$(_ONNXTFL_COMPLETE=bash_source onnxtfl)"
      eval "$(_ONNX2TFL_COMPLETE=bash_source onnx2tfl)"
      eval "$(_TFL2ONNX_COMPLETE=bash_source tfl2onnx)"
    """


@onnxtfl.command("ops")
@command_options(OPS)
def _ops(**options: Any) -> int:
    """Print which operators convert, by version."""
    from onnxtfl import coverage

    click.echo(coverage(**options))
    return 0


@onnxtfl.command("explain", short_help="Say what an error code means, and what to do.")
@click.argument("code", required=False)
def _explain(code: str | None) -> int:
    """Say what an error CODE means, like E-OP-001, and what to do; without CODE, list all."""
    from onnxtfl import explain

    click.echo(explain(code), nl=False)
    return 0


for _command in (onnx2tfl, tfl2onnx, check_command, build_command, run_command):
    onnxtfl.add_command(_command)
onnxtfl.add_command(inspect_command)
