"""Differences between operating systems, each as a function with a fallback; no other module distinguishes systems.

If a system lacks a feature (locks, the parent process, the size of memory), less is cleaned up or reported; nothing
else changes. This is imported by scripts too, and before signals are handled: it imports next to nothing of the
standard library, and runs on Python 3.9.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # what `signal` is made of, without its enums: 5 ms less
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

STDIN = ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
STDOUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
OPEN_FILES = ("/dev/std", "/dev/fd/", "/proc/")
"""The prefixes of names of open files, which have to be written in place."""


def locked(folder: str | os.PathLike[str]) -> int | None:
    """Lock a folder of this user for this process while it lives (flock); returns the descriptor to close.

    None if another process has locked or removed it, it belongs to another user, or the system has no such locks.
    """
    try:
        import fcntl

        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (ImportError, AttributeError, OSError):
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        about = os.fstat(held)
        if about.st_uid == os.getuid() and os.path.samestat(os.lstat(folder), about):
            return held
    except (AttributeError, OSError):
        pass
    os.close(held)
    return None


def after_fork(function: Callable[[], object]) -> None:
    """Call `function` in each process that this one forks, where a system does that."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def parent() -> int | None:
    """The number of the parent process; None if it does not change when the parent ends (Windows)."""
    return os.getppid() if os.name == "posix" and hasattr(os, "getppid") else None


def ending_signals() -> list[int]:
    """Return the termination signals: SIGINT, SIGTERM, and SIGHUP if it exists and is not ignored."""
    hangup = getattr(signal, "SIGHUP", None)
    ignored = hangup is None or signal.getsignal(hangup) == signal.SIG_IGN  # nohup
    return [int(signal.SIGINT), int(signal.SIGTERM), *([] if hangup is None or ignored else [int(hangup)])]


def signal_pipe() -> int | None:
    """The descriptor from which a byte can be read once a signal came, before its handler is called; None without."""
    if os.name != "posix" or not hasattr(os, "set_blocking"):
        return None
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    return told


def open_pipe(path: str | os.PathLike[str]) -> int:
    """Open a named pipe for writing. OSError with ENXIO if no process reads it (where the system supports that)."""
    descriptor = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
    if hasattr(os, "set_blocking"):
        os.set_blocking(descriptor, True)
    return descriptor


def memory_available() -> int | None:
    """Bytes of memory that a process may still take on this machine, in its control group and by its limit of address
    space (Linux); None if unknown.
    """
    found = [_field("/proc/meminfo", "MemAvailable:"), _left_in_group(), _address_space()]
    return min((size for size in found if size is not None), default=None)


def _left_in_group(root: str = "/sys/fs/cgroup", groups: str = "/proc/self/cgroup") -> int | None:
    """The bytes that are left to the processes of this one's control group (version 2, else 1); None without a limit.

    Memory of files that are not in use is free.
    """
    try:
        with open(groups, encoding="ascii", errors="replace") as lines:
            names = dict(line.strip().split(":", 2)[1:] for line in lines)
        is_old = "memory" in names
        folder = f"{root}/memory{names['memory']}" if is_old else f"{root}{names['']}"
        limit, used = ["limit_in_bytes", "usage_in_bytes"] if is_old else ("max", "current")
        with open(f"{folder}/memory.stat", encoding="ascii") as lines:
            unused = dict(line.split() for line in lines)["total_inactive_file" if is_old else "inactive_file"]
        return max(0, _number(f"{folder}/memory.{limit}") - _number(f"{folder}/memory.{used}") + int(unused))
    except (OSError, KeyError, ValueError):  # ValueError: "max", no limit
        return None


def _number(path: str) -> int:
    with open(path, encoding="ascii") as file:
        return int(file.read())


def limit_memory(size: int) -> None:
    """Let this process, and those that it starts, take at most `size` bytes of address space (not on Windows)."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size, size))
    except (ImportError, ValueError, OSError):
        pass


def _address_space() -> int | None:
    """The limit of address space of this process and those that it starts; None without one."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def peak_memory() -> int | None:
    """The peak resident bytes of this process, None where the system does not report them."""
    if (found := _field("/proc/self/status", "VmHWM:")) is not None:
        return found
    try:
        import resource
    except ImportError:  # Windows
        return None
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024


def _field(path: str, name: str) -> int | None:
    """The bytes of a line "NAME 12 kB" of a file of Linux."""
    try:
        with open(path, encoding="ascii", errors="replace") as lines:
            return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), None)
    except OSError:
        return None
