"""The command `onnxtfl check`."""

from __future__ import annotations

from typing import Any

import click

from onnxtfl.cli.options import CONTEXT, MODEL, checking, verbose

EXIT_CODES = "Exit codes: 0 the models agree, 1 a file cannot be read, 2 usage, 3 they differ or do not run."


@click.command("check", context_settings=CONTEXT, epilog=EXIT_CODES)
@click.argument("a", type=MODEL)
@click.argument("b", type=MODEL)
@checking
@verbose
def check_command(a: str, b: str, verbose: bool, **options: Any) -> int:
    """Run the models A and B (.onnx or .tflite each) on the same inputs and compare; A is the reference."""
    from onnxtfl import check
    from onnxtfl.cli.progress import progress

    shapes = dict(options.pop("input_shapes"))
    with progress() as step:
        step("check")
        report = check(a, b, input_shapes=shapes, **options)
    from onnxtfl.cli.tables import show_check

    show_check(a, b, report, verbose)
    if not report.ok:
        from onnxtfl.errors import CheckFailedError

        raise CheckFailedError(f"the check of {b} {report}")
    return 0
