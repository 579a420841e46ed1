"""Ctrl-C and other termination signals: one line and exit code 130, also during imports (this module has few).

The first signal raises KeyboardInterrupt, so that temporary files are removed. Meanwhile, a second signal is ignored,
and the third one ends the process at once. A long computation in NumPy delays the exception: after `PATIENCE` the
process ends without it.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # what `signal` is made of, without its enums: 5 ms less
import os
import sys

from onnxtfl import platform_calls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

EXIT_CODE, PATIENCE = 130, 2.0
LINE = b"error: interrupted\n"
_seen: list[int] = []


def catch() -> None:
    """Handle termination signals from now on. A KeyboardInterrupt that Python cannot raise is not printed."""
    _set(_raise)
    sys.unraisablehook = _ignore_interrupts
    _watch()


def leave_at_once() -> None:
    """Exit on the next signal without cleanup, when there is nothing left to clean up."""
    _set(_leave)


def was_interrupted() -> bool:
    """Whether a signal came: later errors are consequences of it (an incomplete import, ...)."""
    return bool(_seen)


def _set(handler: Any) -> None:
    for number in platform_calls.ending_signals():
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


def _watch() -> None:
    """Wait for signals in a thread."""
    import threading

    if threading.current_thread() is not threading.main_thread():
        return
    if (told := platform_calls.signal_pipe()) is not None:
        threading.Thread(target=_leave_late, args=(told,), daemon=True).start()


def _leave_late(told: int) -> None:
    """Wait for a signal, then for its handler; if Python does not call it, remove the temporary folders and exit."""
    import time

    os.read(told, 1)
    time.sleep(PATIENCE)
    if not _seen:
        from onnxtfl.temporary import remove_all

        remove_all()
        _leave(signal.SIGINT, None)


def _leave(number: int, frame: FrameType | None) -> None:
    try:
        os.write(2, LINE)
    finally:
        os._exit(EXIT_CODE)


def _ignore_interrupts(problem: Any) -> None:
    if problem.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(problem)
