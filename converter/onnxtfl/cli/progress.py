"""A progress line for conversions that take more than a second."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

DELAY = 1.0  # seconds before anything is shown


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with the name of each step, which is shown after `DELAY` if stderr is a terminal.

    ``quiet``: nothing is shown.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda step: None
        return
    shown = _Shown()
    timer = threading.Timer(DELAY, shown.start)
    timer.daemon = True
    timer.start()
    try:
        yield shown.step
    finally:
        timer.cancel()
        shown.stop()


class _Shown:
    """A line with a spinner; `start` runs in the timer's thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._text = "start"
        self._status: Any = None
        self._done = False

    def start(self) -> None:
        from rich.console import Console

        with self._lock:
            if not self._done:
                self._status = Console(stderr=True).status(self._text)
                self._status.start()

    def step(self, text: str) -> None:
        with self._lock:
            self._text = text
            if self._status is not None:
                self._status.update(text)

    def stop(self) -> None:
        with self._lock:
            self._done = True
            if self._status is not None:
                self._status.stop()
