"""A progress line for conversions and checks that take more than a second: the step, and how long it has run."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

DELAY, INTERVAL = 1.0, 0.2
"""Seconds before the line is first shown, and between updates."""
_CLEAR = "\r\x1b[K"


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with the name of each step, which is shown after `DELAY` if stderr is a terminal.

    The function also removes the line until it is written again, so that other text can be printed.
    ``quiet``: nothing is shown.
    """
    if quiet or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
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
        self._text, self._since, self._shown = "start", time.monotonic(), False
        self._ended, self._lock = threading.Event(), threading.Lock()

    def run(self) -> None:
        """Write the step and its seconds, until `end`."""
        pause = DELAY
        while not self._ended.wait(pause):
            with self._lock:
                line = f"{self._text}  {time.monotonic() - self._since:.0f} s"
                self._write(_CLEAR + line[: shutil.get_terminal_size((80, 24)).columns - 1])
                self._shown, pause = True, INTERVAL

    def step(self, text: str) -> None:
        """Set the step, and remove the line. "write 3 MB" and "write 12 MB" are one step, whose time runs on."""
        with self._lock:
            same = text.startswith("write ") and self._text.startswith("write ")
            self._text = text
            if same:
                return
            self._since = time.monotonic()
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
