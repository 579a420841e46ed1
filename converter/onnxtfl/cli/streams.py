"""Standard input and output as models: ``-``."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator

from onnxtfl import platform_calls

STREAM = "-"


def accept_any_text() -> None:
    """Write characters that the encoding of standard output or error lacks (cp1252, ASCII) as Python's escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def model_of(path: str) -> str | bytes:
    """Return the path of a model, or for ``-`` the bytes of standard input."""
    from onnxtfl.errors import InvalidModelError, UsageError

    if path != STREAM:
        return path
    if sys.stdin.isatty():
        raise UsageError("standard input is a terminal", hint="redirect a file to it: < model.onnx", code="E-USE-006")
    data = sys.stdin.buffer.read()
    if not data:
        raise InvalidModelError("standard input is empty", hint="pipe or redirect a model to it", code="E-FILE-003")
    return data


def is_stdout(path: str) -> bool:
    """Whether a path means standard output."""
    return path in (STREAM, *platform_calls.STDOUT)


def write_to_stdout(data: bytes) -> None:
    """Write a model to standard output."""
    from onnxtfl.errors import UsageError

    if sys.stdout.isatty():
        raise UsageError(
            "standard output is a terminal", hint="redirect it to a file: > model.tflite", code="E-USE-006"
        )
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


@contextlib.contextmanager
def tables_to_stderr(wanted: bool) -> Iterator[None]:
    """Redirect printed output to standard error if standard output is a model."""
    with contextlib.redirect_stdout(sys.stderr) if wanted else contextlib.nullcontext():
        yield
