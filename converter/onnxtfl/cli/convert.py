"""The commands `onnx2tfl` and `tfl2onnx`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from onnxtfl.cli.options import CONTEXT, converting, quantizing, sequences, setting
from onnxtfl.cli.reports import requested, write

EXIT_CODES = "Exit codes: 0 success, 1 cannot convert, 2 usage, 3 converted but the check failed."
_DYNAMIC, _LSTM = click.Choice(["exact", "hybrid"]), click.Choice(["exact", "fused"])
_QUANTIZED, _STATE = click.Choice(["qdq", "qoperator", "float"]), click.Choice(["io", "reset"])


@click.command("onnx2tfl", context_settings=CONTEXT, epilog=EXIT_CODES)
@converting
@setting("--dynamic-quant", "exact", "Dynamic quantization as it is, or with hybrid kernels.", _DYNAMIC)
@setting("--lstm", "exact", "LSTM and RNN layers begin each run anew, or (one kernel) where the last run ended.", _LSTM)
@sequences
@quantizing
@click.version_option(package_name="onnxtfl")
def onnx2tfl(**options: Any) -> int:
    """Convert the ONNX file MODEL to TFLite, run both on the same inputs, and fail where they differ."""
    from onnxtfl import onnx_to_tflite

    return _convert(onnx_to_tflite, ".tflite", elements=dict(options.pop("elements")), **options)


@click.command("tfl2onnx", context_settings=CONTEXT, epilog=EXIT_CODES)
@converting
@click.option("--opset", type=click.IntRange(13, 24), default=21, show_default=True, help="ONNX opset to write.")
@setting("--quantized", "qdq", "How quantized ops are written.", _QUANTIZED)
@setting("--state", "io", "States become inputs and outputs, or begin each run with their initial value.", _STATE)
@click.option("--signature", metavar="KEY", help="Entry point to convert; 'all': each to a file in the directory OUT.")
@click.version_option(package_name="onnxtfl")
def tfl2onnx(**options: Any) -> int:
    """Convert the TFLite file MODEL to ONNX, run both on the same inputs, and fail where they differ."""
    from onnxtfl import tflite_to_onnx

    if options["signature"] == "all":
        return _convert_all(**options)
    return _convert(tflite_to_onnx, ".onnx", **options)


def _convert_all(model: str, verbose: bool, output: str | None, **options: Any) -> int:
    """Convert each signature to a file in the directory `output`, and return the exit code."""
    from onnxtfl import signatures_to_onnx
    from onnxtfl.cli.progress import progress
    from onnxtfl.errors import CheckFailedError, UsageError

    if output is None:
        raise UsageError("--signature all writes several files", hint="name a directory with -o", code="E-USE-006")
    if options.pop("report") is not None:
        raise UsageError("--report is of one model, not of all signatures", hint="convert them one by one")
    failure: CheckFailedError | None = None
    found: list[tuple[str, Path, Any]] = []
    del options["signature"]
    with progress() as step:
        try:
            signatures_to_onnx(
                model, output, on_progress=step, on_conversion=lambda *one: found.append(one), **_arguments(options)
            )
        except CheckFailedError as error:
            failure = error
    from onnxtfl.cli.tables import show_conversion

    for _, path, conversion in found:
        show_conversion(os.fspath(model), os.fspath(path), conversion, verbose)
    if failure is not None:
        raise failure
    return 0


def _convert(convert: Any, suffix: str, **options: Any) -> int:
    """Run a conversion, show what it did, and return the exit code."""
    from onnxtfl.cli.progress import progress
    from onnxtfl.errors import CheckFailedError

    model, verbose, page = options.pop("model"), options.pop("verbose"), requested(options)
    output = options.pop("output") or _beside(model, suffix)
    failure: CheckFailedError | None = None
    with progress() as step:
        try:
            conversion = convert(model, output, on_progress=step, **_arguments(options))
        except CheckFailedError as error:
            failure, conversion = error, error.conversion
    from onnxtfl.cli.tables import show_conversion

    show_conversion(os.fspath(model), os.fspath(output), conversion, verbose)
    write(page, conversion, model, output)
    if failure is not None:
        raise failure
    return 0


def _arguments(options: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments of the public function for the options of a command."""
    found = dict(options)
    found["check"] = {None: "auto", True: "require", False: False}[found.pop("check_")]
    found |= {name: dict(found[name]) for name in ("input_shapes", "input_ranges", "metadata")}
    return found | {name: names(found[name]) for name in ("inputs", "outputs")}


def names(words: Sequence[str]) -> list[str] | None:
    """Return the names in ``a b`` or ``a,b``; a comma in a name is written ``\\,``."""
    found = [name for word in words for name in re.split(r"(?<!\\),", word)]
    return [name.replace("\\,", ",").strip() for name in found if name] or None


def _beside(model: str, suffix: str) -> str:
    """Return the default output path: the model's path with `suffix`."""
    path = Path(model)
    known = path.suffix.lower() in (".onnx", ".tflite", ".lite", ".pb")
    return os.fspath(path.with_suffix(suffix) if known else path.with_name(path.name + suffix))
