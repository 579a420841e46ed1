"""Errors of runtimes in the child process, and the lines that native code prints to stderr, where some of them report
the reasons.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator


class FailedRunError(Exception):
    """A run that failed; ``kind``: see `RunError`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@contextlib.contextmanager
def stderr_lines(lines: list[str]) -> Iterator[None]:
    """Append the process's stderr to ``lines``, also after a crash."""
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            lines += [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
