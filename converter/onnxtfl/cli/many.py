"""Several models and folders in one command: a progress line, a line for each model, and the worst exit code."""

from __future__ import annotations

import itertools
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxtfl.cli.progress import progress
from onnxtfl.cli.running import print_error
from onnxtfl.tables import WIDTH, byte_count, counted, printable

if TYPE_CHECKING:
    from onnxtfl import Outcome


CHECK = 32
"""The column with the result of the check."""


def is_several(models: Sequence[str]) -> bool:
    """Whether the arguments name more than one file."""
    return len(models) > 1 or (models[0] != "-" and Path(models[0]).is_dir())


def convert_all(models: Sequence[str], output: str | None, to: Any, arguments: dict[str, Any], quiet: bool) -> int:
    """Convert all models into the folder `output`, and return the worst exit code."""
    from onnxtfl import UsageError, convert_many

    if output is None or output == "-":
        what = f"{models[0]} is a folder, and is" if len(models) == 1 else "several models are"
        raise UsageError(f"{what} converted into a folder", hint="name it with -o DIR", code="E-USE-006")
    if "-" in models:
        raise UsageError("- is standard input, which is one model", hint="convert it alone", code="E-USE-006")
    with progress(quiet) as step:
        done = itertools.count(1)

        def show(outcome: Outcome, count: int) -> None:
            step(f"converting: {next(done)} of {count} models")
            _tell(outcome)

        outcomes = convert_many(models, output, to=to, on_outcome=show, **arguments)
    if not quiet:
        _show(outcomes)
    return max(outcome.exit_code for outcome in outcomes)


def _tell(outcome: Outcome) -> None:
    """Print the error of a model, if it has one, in the line of an error."""
    if outcome.error is not None:
        text = outcome.error.text("cli")
        name = os.fspath(outcome.source)
        print_error(text if name in text else f"{name}: {text}")


def _show(outcomes: Sequence[Outcome]) -> None:
    """Print a line for each model, the sizes at which a passed one differs, and the counts."""
    for outcome in outcomes:
        sys.stdout.write(_line(outcome) + "\n")
        if outcome.excluded:
            before, text = " " * CHECK, printable(f"except {outcome.excluded}")
            import textwrap

            sys.stdout.write(textwrap.fill(text, WIDTH, initial_indent=before, subsequent_indent=before) + "\n")
    counts = Counter(outcome.status for outcome in outcomes)
    found = ", ".join(
        f"{counts[status]} {status}" for status in ("converted", "up to date", "failed") if counts[status]
    )
    sys.stdout.write(f"{counted(len(outcomes), 'model')}: {found}\n")


def _line(outcome: Outcome) -> str:
    """One line of `WIDTH` columns; a long path loses its beginning."""
    size = byte_count(outcome.size) if outcome.size is not None else ""
    seconds = f"{outcome.seconds:.1f} s" if outcome.status != "up to date" else ""
    code = f" ({outcome.error.code})" if outcome.error is not None else ""
    check = outcome.check if outcome.check != "failed" else "differs"
    head = f"{outcome.status:10}  {size:>8}  {seconds:>8}  {check:11}  "
    name, room = printable(os.fspath(outcome.source)), WIDTH - len(head) - len(code)
    return head + (name if len(name) <= room else "..." + name[3 - room :]) + code
