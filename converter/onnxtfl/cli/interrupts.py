"""Ctrl-C, SIGTERM and SIGHUP: one line and exit code 130, also during imports; imports next to nothing itself.

The first signal raises KeyboardInterrupt, so that temporary files are removed; while that is done, the second one is
ignored, and the third one ends the process at once.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # what `signal` is made of, without its enums: 5 ms less
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

EXIT_CODE = 130
LINE = b"error: interrupted\n"
_seen: list[int] = []


def catch() -> None:
    """Handle these signals from now on. KeyboardInterrupts that Python cannot raise are not printed."""
    _set(_raise)
    sys.unraisablehook = _ignore_interrupts


def leave_at_once() -> None:
    """End the process on the next signal, without cleaning up: nothing is left to be cleaned up."""
    _set(_leave)


def was_interrupted() -> bool:
    """True once a signal came: what fails after it fails because of it (an import that was cut short, ...)."""
    return bool(_seen)


def _set(handler: Any) -> None:
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is None or (name == "SIGHUP" and signal.getsignal(number) == signal.SIG_IGN):  # nohup
            continue
        try:
            signal.signal(number, handler)
        except ValueError:  # not in the main thread
            return


def _raise(number: int, frame: FrameType | None) -> None:
    _seen.append(number)
    if len(_seen) == 1:
        raise KeyboardInterrupt
    if len(_seen) > 2:
        _leave(number, frame)


def _leave(number: int, frame: FrameType | None) -> None:
    try:
        os.write(2, LINE)
    finally:
        os._exit(EXIT_CODE)


def _ignore_interrupts(problem: Any) -> None:
    if problem.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(problem)
