"""The command `onnxtfl check`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onnxtfl.cli.help import Grouped
from onnxtfl.cli.options import CONTEXT, MODEL, command_options, keywords
from onnxtfl.cli.reports import requested, write
from onnxtfl.cli.streams import is_stdout
from onnxtfl.option_table import CHECK

if TYPE_CHECKING:
    from onnxtfl import CheckReport

_START = b'{\n  "version"'
"""The first characters of a report in JSON."""
EXIT_CODES = "Exit codes: 0 the models agree, 1 they cannot be compared, 2 usage, 3 they differ."


@click.command(
    "check",
    cls=Grouped,
    short_help="Run two models on the same inputs and compare.",
    context_settings=CONTEXT,
    epilog=EXIT_CODES,
)
@click.argument("a", type=MODEL)
@click.argument("b", type=MODEL)
@command_options(CHECK)
def check_command(a: str, b: str, quiet: bool, verbose: bool, json: str | None, **options: Any) -> int:
    """Run the models A and B (.onnx or .tflite each) on the same inputs and compare; A is the reference.

    One of them may be -, which is standard input.

    \b
    Examples:
      onnxtfl check model.onnx model.tflite
      onnxtfl check model.onnx model.tflite --per-layer
      onnxtfl check model.onnx model.tflite --data data.npz --report out.html
    """
    from onnxtfl import CheckReport, OnnxtflError

    pages = requested(options), requested(options, "--junit")
    _keep_other_files(json)
    try:
        report = _report(a, b, quiet, options)
    except OnnxtflError as error:
        if error.exit_code == 1:
            _write(json, pages, CheckReport("not checked", str(error)), a, b)
        raise
    _write(json, pages, report, a, b)
    if not quiet and (json is None or not is_stdout(json)):
        from onnxtfl.cli.tables import show_check

        show_check(a, b, report, verbose)
    return _exit_code(b, report)


def _report(a: str, b: str, quiet: bool, options: dict[str, Any]) -> CheckReport:
    from onnxtfl import check
    from onnxtfl.cli.progress import progress
    from onnxtfl.cli.streams import model_of

    with progress(quiet) as step:
        step("check")
        return check(model_of(a), model_of(b), **keywords(CHECK, options))


def _exit_code(b: str, report: CheckReport) -> int:
    """0 where the models agree; raises an error with the exit code otherwise."""
    from onnxtfl import CheckFailedError, RuntimeUnavailableError

    if report.status == "not checked":
        raise RuntimeUnavailableError(f"{b} was {report}", code="E-CHECK-002")
    if not report.ok:
        found = report.layers or report.first_difference
        hint = None if report.outputs and not found else ""  # how to find the op, where that can help
        raise CheckFailedError(f"the check of {b} {report}", hint=hint)
    return 0


def _keep_other_files(target: str | None) -> None:
    """Raise UsageError if a file would be replaced that is not such a report: a model, its data."""
    from onnxtfl import OutputError, UsageError

    if target is None or target.endswith(".json") or is_stdout(target) or not Path(target).is_file():
        return
    try:
        with open(target, "rb") as file:
            found = file.read(len(_START))
    except OSError as error:
        raise OutputError(f"cannot write {target}: {error.strerror}") from error
    if found not in (b"", _START):
        raise UsageError(f"{target} is not a report of the check", hint=f"name it {target}.json", code="E-USE-006")


def _write(json_: str | None, pages: Iterable[str | None], report: CheckReport, a: str, b: str) -> None:
    """Write the requested files."""
    if json_ is not None:
        _write_json(json_, report, a, b)
    for path in pages:
        write(path, report, a, b)


def _write_json(target: str, report: CheckReport, a: str, b: str) -> None:
    import json

    text = json.dumps(report.to_json(a, b), indent=2, ensure_ascii=False)
    if is_stdout(target):
        click.echo(text)
        return
    from onnxtfl.output import write_text

    write_text(target, text + "\n")
