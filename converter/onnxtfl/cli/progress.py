"""A progress line for what takes more than a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

DELAY = 1.0
"""Seconds before the line is shown, and between two times that it is written."""
_CLEAR = "\r\x1b[K"


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with the name of each step, which is shown after `DELAY` if stderr is a terminal.

    The function also removes the line until it is written again, so that other text can be printed.
    ``quiet``: nothing is shown.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda step: None
        return
    line = _Line()
    line.start()
    try:
        yield line.step
    finally:
        line.end()


class _Line(threading.Thread):
    """The thread that writes the line."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._text, self._shown = "start", False
        self._ended, self._lock = threading.Event(), threading.Lock()

    def run(self) -> None:
        """Write the step and the seconds since the start, until `end`."""
        started = time.monotonic()
        while not self._ended.wait(DELAY):
            with self._lock:
                self._write(f"{_CLEAR}{self._text} ... {time.monotonic() - started:.0f} s")
                self._shown = True

    def step(self, text: str) -> None:
        """Set the step."""
        with self._lock:
            self._text = text
            if self._shown:
                self._write(_CLEAR)
                self._shown = False

    def end(self) -> None:
        """Remove the line."""
        self._ended.set()
        self.join()
        self.step("")

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # the terminal was closed
            sys.stderr.write(text)
            sys.stderr.flush()
