"""The commands `onnx2tfl` and `tfl2onnx`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from onnxtfl.cli.help import Grouped
from onnxtfl.cli.options import CONTEXT, MODEL, command_options, keywords
from onnxtfl.cli.reports import requested, write
from onnxtfl.option_table import INSPECT, LLM, MANY, TO_ONNX, TO_TFLITE

EXIT_CODES = "Exit codes: 0 success, 1 cannot convert, 2 usage, 3 converted but the check failed."
_MODELS = click.argument("models", type=MODEL, metavar="MODEL...", nargs=-1, required=True)


@click.command(
    "onnx2tfl", cls=Grouped, short_help="Convert ONNX models to TFLite.", context_settings=CONTEXT, epilog=EXIT_CODES
)
@_MODELS
@command_options(TO_TFLITE, LLM, MANY)
@click.version_option(package_name="onnxtfl")
def onnx2tfl(**options: Any) -> int:
    """Convert ONNX models to TFLite, run both on the same inputs, and fail where they differ.

    MODEL is a file, or - for standard input. Several files, and all .onnx files of folders, are converted with -o DIR.

    \b
    Examples:
      onnx2tfl model.onnx                            writes model.tflite
      onnx2tfl model.onnx --input-shape x:?,3,64,64
      onnx2tfl models other.onnx -o converted --jobs 4
      onnx2tfl decoder.onnx --llm                    writes decoder.litertlm
      onnx2tfl - -o - < model.onnx > model.tflite
    """
    return _run(TO_TFLITE, options)


@click.command(
    "tfl2onnx", cls=Grouped, short_help="Convert TFLite models to ONNX.", context_settings=CONTEXT, epilog=EXIT_CODES
)
@_MODELS
@command_options(TO_ONNX, MANY)
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
    return _run(TO_ONNX, options)


def _run(command: str, options: dict[str, Any]) -> int:
    """Convert one model or several, show what was done, and return the exit code."""
    from onnxtfl.cli.many import convert_all, is_several
    from onnxtfl.errors import UsageError

    models, output, quiet = options.pop("models"), options.pop("output"), options.pop("quiet")
    if command == TO_TFLITE:
        from onnxtfl.cli.llm import convert_decoder, refuse_unused

        refuse_unused(options, options["llm"])
        if options.pop("llm"):
            return convert_decoder(models, output, quiet, options)
    if _lists(options):
        return _list_unsupported(models, options)
    if not is_several(models):
        if options.get("signature") == "all":
            return _convert_signatures(models[0], output, quiet, options)
        return _convert(command, models[0], output, quiet, options)
    if options.get("signature") == "all":
        raise UsageError("--signature all is for one model", hint="convert them one by one", code="E-USE-006")
    for name, flag in (("report", "--report"), ("emit_c", "--emit-c"), ("compile", "--compile")):
        if options.get(name):
            raise UsageError(f"{flag} is of one model", hint="convert them one by one", code="E-USE-006")
    arguments = keywords(MANY, options) | keywords(command, options)
    return convert_all(models, output, "tflite" if command == TO_TFLITE else "onnx", arguments, quiet)


def _lists(options: dict[str, Any]) -> bool:
    """Whether ops are to be listed."""
    from onnxtfl.errors import UsageError

    if options["as_json"] and not options["list_unsupported"]:
        raise UsageError("--json is for --list-unsupported", hint="leave it out", code="E-USE-006")
    return bool(options["list_unsupported"])


def _list_unsupported(models: tuple[str, ...], options: dict[str, Any]) -> int:
    """Print the ops of one model that have no conversion; the exit code is 1 if there are any."""
    import json
    from dataclasses import asdict

    from onnxtfl import unsupported
    from onnxtfl.cli.streams import model_of
    from onnxtfl.errors import UsageError

    if len(models) > 1:
        raise UsageError("--list-unsupported is for one model", hint="list them one by one", code="E-USE-006")
    found = unsupported(model_of(models[0]), **keywords(INSPECT, options))
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
    if options["report"] is not None:
        raise UsageError("--report is of one model, not of all signatures", hint="convert them one by one")
    failure: CheckFailedError | None = None
    found: list[tuple[str, Path, Any]] = []
    arguments = keywords(TO_ONNX, options)
    del arguments["signature"]
    with progress(quiet) as step:
        try:
            signatures_to_onnx(
                model_of(model),
                output,
                on_progress=step,
                on_conversion=lambda *one: found.append(one),
                **arguments,
            )
        except CheckFailedError as error:
            failure = error
    if not quiet:
        from onnxtfl.cli.tables import show_conversion

        for _, path, conversion in found:
            show_conversion(model, os.fspath(path), conversion, options["verbose"])
    if failure is not None:
        raise failure
    return 0


def _convert(command: str, model: str, output: str | None, quiet: bool, options: dict[str, Any]) -> int:
    """Convert one model, show what was done, and return the exit code."""
    from onnxtfl import onnx_to_tflite, tflite_to_onnx
    from onnxtfl.cli.compiled import uncompiled, write_compiled
    from onnxtfl.cli.progress import progress
    from onnxtfl.cli.streams import STREAM, is_stdout, model_of, tables_to_stderr, write_to_stdout
    from onnxtfl.errors import CheckFailedError
    from onnxtfl.output import beside, placed

    convert, suffix = (onnx_to_tflite, ".tflite") if command == TO_TFLITE else (tflite_to_onnx, ".onnx")
    page, source, compiled = requested(options), options.get("emit_c"), options.pop("compile", False)
    if source is not None:
        from onnxtfl.c_source import split_path

        split_path(source, "model")  # a path that is not possible is refused first
    output = output or (STREAM if model == STREAM else beside(model, suffix))
    output = (
        STREAM if is_stdout(output) else os.fspath(placed(output, None if model == STREAM else model, suffix) or "")
    )
    if compiled:
        output = uncompiled(output, options["target"])
    failure: CheckFailedError | None = None
    with progress(quiet) as step:
        try:
            target = None if output == STREAM else output
            conversion = convert(model_of(model), target, on_progress=step, **keywords(command, options))
        except CheckFailedError as error:
            failure, conversion = error, error.conversion
    if output == STREAM and conversion.data is not None:
        write_to_stdout(conversion.data)
    if not quiet:
        from onnxtfl.cli.tables import show_conversion

        with tables_to_stderr(output == STREAM):
            show_conversion(model, output, conversion, options["verbose"])
    write(page, conversion, model, output)
    if compiled and failure is None:
        write_compiled(conversion, output)
    if failure is not None:
        raise failure
    if source is not None:
        folder, name, ending = split_path(source, "model" if output == STREAM else Path(output).stem)
        conversion.c_source(name).write(folder, ending)
    return 0
