"""The tables that the commands print: the report of a conversion and of a check."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxtfl.tables import WIDTH, Row, as_text

if TYPE_CHECKING:
    from onnxtfl import CheckReport, Conversion


def show_conversion(model: str, output: str, conversion: Conversion, verbose: bool) -> None:
    """Print the report of a conversion; ``output``: the requested path."""
    written = conversion.path is not None or conversion.data is not None
    title = Row("model", f"{model} -> {output}" if written else f"{model} (nothing written)")
    show([title, *conversion.rows(verbose)])


def show_check(a: str, b: str, report: CheckReport, verbose: bool) -> None:
    """Print the report of a check."""
    show([Row("models", f"{a} and {b}"), *report.rows(verbose)])


def show(rows: Sequence[Row]) -> None:
    """Print a table to stdout, in colour on a terminal."""
    width = max(shutil.get_terminal_size((WIDTH, 24)).columns, 40) if sys.stdout.isatty() else WIDTH
    sys.stdout.write(as_text(rows, width, color=sys.stdout.isatty(), interface="cli"))
