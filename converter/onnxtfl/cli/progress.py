"""A progress line for conversions and checks that take more than a second: the step, and how long it has run."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

DELAY = 1.0  # seconds before anything is shown
INTERVAL = 0.2  # seconds between two lines
_SIGNS = "|/-\\"


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with the name of each step, which is shown after `DELAY` if stderr is a terminal.

    ``quiet``: nothing is shown.
    """
    if quiet or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda step: None
        return
    line = _Line()
    thread = threading.Thread(target=line.run, daemon=True)
    thread.start()
    try:
        yield line.step
    finally:
        line.done.set()
        thread.join()


class _Line:
    """A line that is written again and again by a thread, in `run`, until `done` is set."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self._step, self._since = "start", time.monotonic()

    def step(self, text: str) -> None:
        """Show `text` from now on; "write 12 MB" is later in the step that "write 3 MB" is in."""
        if text.partition(" ")[0] != "write" or not self._step.startswith("write"):
            self._since = time.monotonic()
        self._step = text

    def run(self) -> None:
        """Write the line, and erase it at the end."""
        if self.done.wait(DELAY):
            return
        count = 0
        while not self.done.wait(INTERVAL if count else 0):
            _write(f"{_SIGNS[count % len(_SIGNS)]} {self._step}  {time.monotonic() - self._since:.0f} s")
            count += 1
        _write("")


def _write(text: str) -> None:
    """Replace the line on the terminal, which it does not wrap."""
    width = shutil.get_terminal_size((80, 24)).columns - 1
    with suppress(OSError, ValueError):
        sys.stderr.write(f"\r\x1b[2K{text[:width]}")
        sys.stderr.flush()
