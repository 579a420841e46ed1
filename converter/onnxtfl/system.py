"""What not every operating system has, each as a function with a fallback; nothing else names it.

Scripts load this file too: it imports the standard library only, and runs on Python 3.9.
"""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

STDIN = ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
STDOUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
_DESCRIPTORS = ("/dev/std", "/dev/fd/", "/proc/")


def locked(path: Path) -> int | None:
    """The descriptor of a folder, which this process has locked (flock) until it closes it.

    None where another process has locked or removed it, it is another user's, or there are no locks (Windows, some
    network file systems).
    """
    try:
        import fcntl

        held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (ImportError, AttributeError, OSError):
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(held).st_uid == os.getuid() and os.path.samestat(path.lstat(), os.fstat(held)):
            return held
    except OSError:
        pass
    os.close(held)
    return None


def parent() -> int | None:
    """The number of the process that started this one, another one once that has ended; None where it stays."""
    return os.getppid() if os.name == "posix" and hasattr(os, "getppid") else None


def after_fork(call: Callable[[], object]) -> None:
    """Call a function in each process that this one forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)


def ending_signals(*names: str) -> list[int]:
    """Those of some signals that there are and that are not ignored, as ``nohup`` ignores SIGHUP."""
    numbers = [getattr(signal, name, None) for name in names]
    return [n for n in numbers if n is not None and signal.getsignal(n) != signal.SIG_IGN]


def can_watch_signals() -> bool:
    """Whether a thread learns of a signal through a pipe."""
    return os.name == "posix"


def peak_memory() -> int | None:
    """The peak resident bytes of this process; None where they are not known."""
    found = _kilobytes("/proc/self/status", "VmHWM:")
    if found is not None:
        return found
    try:
        import resource
        import sys
    except ImportError:
        return None
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024


def free_memory() -> int | None:
    """The bytes of memory that processes may still take; None where they are not known."""
    return _kilobytes("/proc/meminfo", "MemAvailable:")


def _kilobytes(path: str, name: str) -> int | None:
    """The number in a line of a file of the system, in bytes."""
    try:
        with open(path, encoding="ascii", errors="replace") as lines:
            return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), None)
    except OSError:
        return None


def is_descriptor(path: str) -> bool:
    """Whether a path names an open file, which is written into: another file of that name would not be the open one."""
    return os.path.abspath(path).startswith(_DESCRIPTORS)


def is_pipe(path: str) -> bool:
    """Whether a path is a named pipe."""
    return stat.S_ISFIFO(os.stat(path).st_mode)


def opened_pipe(path: str) -> int:
    """The descriptor of a named pipe for writing; OSError (ENXIO) where no process reads it."""
    return os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
