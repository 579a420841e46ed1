"""The commands `onnx2tfl` and `tfl2onnx`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from onnxtfl.cli.help import Grouped
from onnxtfl.cli.options import CONTEXT, converting, names, quantizing, sequences, setting
from onnxtfl.cli.reports import requested, write

EXIT_CODES = "Exit codes: 0 success, 1 cannot convert, 2 usage, 3 converted but the check failed."
_DYNAMIC, _LSTM = click.Choice(["exact", "hybrid"]), click.Choice(["exact", "fused"])
_C_HELP = "Write the result also as C++ source for TFLite Micro, with its op resolver and arena size."
_TARGET = click.Choice(["tflite", "micro"])
_FLOAT16 = click.Choice(["float32", "native"])
_IO_DTYPE = click.Choice(["source", "float32", "bits"])
_QUANTIZED, _STATE = click.Choice(["qdq", "qoperator", "float"]), click.Choice(["io", "reset"])


@click.command(
    "onnx2tfl", cls=Grouped, short_help="Convert ONNX models to TFLite.", context_settings=CONTEXT, epilog=EXIT_CODES
)
@converting
@setting("--dynamic-quant", "exact", "Dynamic quantization as it is, or with hybrid kernels.", _DYNAMIC)
@setting("--io-dtype", "source", "bfloat16, float8, int4, ... as values or as bits; float16 as float32.", _IO_DTYPE)
@setting("--float16", "float32", "Compute float16 in float32, or in float16 where kernels can.", _FLOAT16)
@setting("--lstm", "exact", "LSTM and RNN layers begin each run anew, or (one kernel) where the last run ended.", _LSTM)
@setting("--target", "tflite", "What runs the result: TFLite runtimes, or TFLite Micro as well.", _TARGET)
@click.option("--emit-c", metavar="DIR|FILE.cc", type=click.Path(), help=_C_HELP)
@sequences
@quantizing
@click.version_option(package_name="onnxtfl")
def onnx2tfl(**options: Any) -> int:
    """Convert ONNX models to TFLite, run both on the same inputs, and fail where they differ.

    MODEL is a file, or - for standard input. Several files, and all .onnx files of folders, are converted with -o DIR.

    \b
    Examples:
      onnx2tfl model.onnx                            writes model.tflite
      onnx2tfl model.onnx --input-shape x:?,3,64,64
      onnx2tfl models other.onnx -o converted --jobs 4
      onnx2tfl - -o - < model.onnx > model.tflite
    """
    from onnxtfl import onnx_to_tflite

    options["elements"] = dict(options["elements"])
    return _run(onnx_to_tflite, "tflite", options)


@click.command(
    "tfl2onnx", cls=Grouped, short_help="Convert TFLite models to ONNX.", context_settings=CONTEXT, epilog=EXIT_CODES
)
@converting
@click.option(
    "--opset",
    type=click.IntRange(13, 24),
    help="ONNX opset to write, by default 21, or the lowest newer one that has all ops that are needed.",
)
@setting("--quantized", "qdq", "How quantized ops are written.", _QUANTIZED)
@setting("--state", "io", "States become inputs and outputs, or begin each run with their initial value.", _STATE)
@click.option("--signature", metavar="KEY", help="Entry point to convert; 'all': each to a file in the directory OUT.")
@click.version_option(package_name="onnxtfl")
def tfl2onnx(**options: Any) -> int:
    """Convert TFLite models to ONNX, run both on the same inputs, and fail where they differ.

    MODEL is a file, or - for standard input. Several files, and all .tflite files of folders, are converted with
    -o DIR.

    \b
    Examples:
      tfl2onnx model.tflite                          writes model.onnx
      tfl2onnx model.tflite --opset 17 -o out/model.onnx
      tfl2onnx models -o converted --jobs 4
    """
    from onnxtfl import tflite_to_onnx

    return _run(tflite_to_onnx, "onnx", options)


def _run(convert: Any, to: str, options: dict[str, Any]) -> int:
    """Convert one model or several, show what was done, and return the exit code."""
    from onnxtfl.cli.many import SCHEDULING, convert_all, is_several
    from onnxtfl.errors import UsageError

    models, output, quiet = options.pop("models"), options.pop("output"), options.pop("quiet")
    if _lists(options):
        return _list_unsupported(models, options)
    scheduling = {name: options.pop(name) for name in SCHEDULING}
    if not is_several(models):
        if options.get("signature") == "all":
            return _convert_signatures(models[0], output, quiet, options)
        return _convert(convert, to, models[0], output, quiet, options)
    if options.get("signature") == "all":
        raise UsageError("--signature all is for one model", hint="convert them one by one", code="E-USE-006")
    for name, flag in (("report", "--report"), ("emit_c", "--emit-c")):
        if options.pop(name, None) is not None:
            raise UsageError(f"{flag} is of one model", hint="convert them one by one", code="E-USE-006")
    options.pop("verbose")
    return convert_all(models, output, to, {**scheduling, **_arguments(options)}, quiet)


def _lists(options: dict[str, Any]) -> bool:
    """Whether ops are to be listed; removes the options for that."""
    from onnxtfl.errors import UsageError

    options["as_json"] = options["as_json"] if options["list_unsupported"] or not options["as_json"] else None
    if options["as_json"] is None:
        raise UsageError("--json is for --list-unsupported", hint="leave it out", code="E-USE-006")
    if not options.pop("list_unsupported"):
        options.pop("as_json")
        return False
    return True


def _list_unsupported(models: tuple[str, ...], options: dict[str, Any]) -> int:
    """Print the ops of one model that have no conversion; the exit code is 1 if there are any."""
    import json
    from dataclasses import asdict

    from onnxtfl import unsupported
    from onnxtfl.cli.streams import model_of
    from onnxtfl.errors import UsageError

    if len(models) > 1:
        raise UsageError("--list-unsupported is for one model", hint="list them one by one", code="E-USE-006")
    part = {name: names(options[name]) for name in ("inputs", "outputs")}
    shapes, elements = dict(options["input_shapes"]), dict(options.get("elements") or {})
    found = unsupported(model_of(models[0]), input_shapes=shapes, elements=elements, **part)
    if options["as_json"]:
        click.echo(json.dumps([asdict(row) for row in found], indent=2, ensure_ascii=False))
    else:
        click.echo("\n".join(map(str, found)) or "all ops have a conversion")
    return 1 if found else 0


def _convert_signatures(model: str, output: str | None, quiet: bool, options: dict[str, Any]) -> int:
    """Convert each signature to a file in the folder `output`, and return the exit code."""
    from onnxtfl import signatures_to_onnx
    from onnxtfl.cli.progress import progress
    from onnxtfl.cli.streams import model_of
    from onnxtfl.errors import CheckFailedError, UsageError

    if output is None or output == "-":
        raise UsageError("--signature all writes several files", hint="name a folder with -o", code="E-USE-006")
    if options.pop("report") is not None:
        raise UsageError("--report is of one model, not of all signatures", hint="convert them one by one")
    failure: CheckFailedError | None = None
    found: list[tuple[str, Path, Any]] = []
    verbose = options.pop("verbose")
    del options["signature"]
    with progress(quiet) as step:
        try:
            signatures_to_onnx(
                model_of(model),
                output,
                on_progress=step,
                on_conversion=lambda *one: found.append(one),
                **_arguments(options),
            )
        except CheckFailedError as error:
            failure = error
    if not quiet:
        from onnxtfl.cli.tables import show_conversion

        for _, path, conversion in found:
            show_conversion(model, os.fspath(path), conversion, verbose)
    if failure is not None:
        raise failure
    return 0


def _convert(convert: Any, to: str, model: str, output: str | None, quiet: bool, options: dict[str, Any]) -> int:
    """Convert one model, show what was done, and return the exit code."""
    from onnxtfl.c_source import split_path
    from onnxtfl.cli.progress import progress
    from onnxtfl.cli.streams import STREAM, is_stdout, model_of, tables_to_stderr, write_to_stdout
    from onnxtfl.errors import CheckFailedError

    verbose, page, source = options.pop("verbose"), requested(options), options.pop("emit_c", None)
    if source is not None:
        split_path(source, "model")  # a path that is not possible is refused first
    output = output or (STREAM if model == STREAM else _beside(model, f".{to}"))
    output = STREAM if is_stdout(output) else output
    if output != STREAM and Path(output).is_dir():
        output = os.path.join(output, os.path.basename(_beside("model" if model == STREAM else model, f".{to}")))
    failure: CheckFailedError | None = None
    with progress(quiet) as step:
        try:
            target = None if output == STREAM else output
            conversion = convert(model_of(model), target, on_progress=step, **_arguments(options))
        except CheckFailedError as error:
            failure, conversion = error, error.conversion
    if output == STREAM and conversion.data is not None:
        write_to_stdout(conversion.data)
    if not quiet:
        from onnxtfl.cli.tables import show_conversion

        with tables_to_stderr(output == STREAM):
            show_conversion(model, output, conversion, verbose)
    write(page, conversion, model, output)
    if failure is not None:
        raise failure
    if source is not None:
        folder, name, suffix = split_path(source, "model" if output == STREAM else Path(output).stem)
        conversion.c_source(name).write(folder, suffix)
    return 0


def _arguments(options: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments of the public function for the options of a command."""
    found = dict(options)
    found["check"] = {None: "auto", True: "require", False: False}[found.pop("check_")]
    found["plugins"] = list(found["plugins"])
    found["io_layout"] = _layouts(found["io_layout"])
    found |= {name: dict(found[name]) for name in ("input_shapes", "input_ranges", "metadata")}
    return found | {name: names(found[name]) for name in ("inputs", "outputs")}


def _layouts(given: tuple[tuple[str, str], ...]) -> str | dict[str, str]:
    """One layout where no input or output is named."""
    layouts = dict(given)
    return layouts if layouts.keys() - {"*"} else layouts.get("*", "source")


def _beside(model: str, suffix: str) -> str:
    """Return the default output path: the model's path with `suffix`."""
    path = Path(model)
    known = path.suffix.lower() in (".onnx", ".tflite", ".lite", ".pb")
    return os.fspath(path.with_suffix(suffix) if known else path.with_name(path.name + suffix))
