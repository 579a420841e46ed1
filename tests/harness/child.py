"""The child side of `tests.harness.workers`: reads jobs from standard input, writes results to standard output.

A job is a pickled ``(function, argument)``, the function as "module:name". The results are pickled: any number of
``("stage", text)`` for progress, then ``("done", value)`` or ``("raised", message, traceback)``. Standard output is
redirected to standard error first, so that output of native code does not mix with results.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

_MEMORY_LIMIT = 12 << 30
_results: list[BinaryIO] = []


def stage(text: str) -> None:
    """Send the name of the next stage to the parent, which reports it after a crash or a timeout."""
    _send(("stage", text))


def peak_memory() -> int:
    """Peak resident bytes of this process (VmHWM), 0 where the system does not report them."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return 0


def _send(message: tuple[Any, ...]) -> None:
    if _results:
        pickle.dump(message, _results[0], protocol=pickle.HIGHEST_PROTOCOL)
        _results[0].flush()


def _function(name: str) -> Callable[[Any], Any]:
    module, _, attribute = name.partition(":")
    found: Callable[[Any], Any] = getattr(importlib.import_module(module), attribute)
    return found


def _limit_memory() -> None:
    """Limit the address space of this process, where the system can."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_LIMIT, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _redirect_output() -> BinaryIO:
    """Redirect standard output to standard error; returns the original one."""
    sys.stdout.flush()
    original = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return original


def main() -> None:
    """Run jobs until standard input ends."""
    _limit_memory()
    _results.append(_redirect_output())
    while True:
        try:
            name, argument = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            _send(("done", _function(name)(argument)))
        except Exception as error:
            _send(("raised", f"{type(error).__name__}: {error}", traceback.format_exc()))
