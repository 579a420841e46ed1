"""Temporary folders, which are removed also where the process that made them was killed.

A process locks its folders (flock) while it lives. `sweep` removes those in a directory that no process has locked:
each process does so before its first folder there, and a child process when its parent is gone (`end_with_parent`).
Where there are no locks (Windows, some network file systems) a folder has another name, and nothing sweeps it.

This is imported by scripts too, without the package on their path: it imports the standard library and the file
`platform_calls` only, and runs on Python 3.9.
"""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace, TracebackType

if __package__:
    from onnxtfl import platform_calls
else:
    _FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "platform_calls.py")
    platform_calls = SimpleNamespace(**runpy.run_path(_FILE))  # type: ignore[assignment]

PREFIX, UNLOCKED = "onnxtfl-tmp-", "onnxtfl-unlocked-"
_NAME = re.compile(r"\.?" + PREFIX + r"[a-z0-9_]{8}")  # what `tempfile.mkdtemp` adds
TRIES = 100
"""A new folder that another process sweeps before it is locked is made again, at most so often."""
_POLL = 0.2
_open: set[Folder] = set()
_places: set[str] = set()

platform_calls.after_fork(_open.clear)  # the folders of a process are not those of one that it forks


class Folder:
    """A new folder at `path`, which `close` removes; a context manager. `place`: the directory that it is made in."""

    def __init__(self, place: str | os.PathLike[str] | None = None) -> None:
        inside, dot = (tempfile.gettempdir(), "") if place is None else (os.fspath(place), ".")
        add_place(inside)
        self._lock: int | None = None
        for _ in range(TRIES):
            self.path = Path(tempfile.mkdtemp(prefix=dot + PREFIX, dir=inside))
            _open.add(self)  # before it is locked: a signal may come at any time, and `sweep` leaves what is locked
            self._lock = platform_calls.locked(self.path)
            if self._lock is not None:
                break
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            self.path = Path(tempfile.mkdtemp(prefix=dot + UNLOCKED, dir=inside))

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder with all that is in it; may be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        held, self._lock = self._lock, None
        if held is not None:
            os.close(held)
        _open.discard(self)  # last: a signal may come at any time


def add_place(place: str | os.PathLike[str]) -> None:
    """Sweep a directory in which this process will make folders, the first time; see `places`."""
    path = os.path.realpath(place)
    if path not in _places:
        _places.add(path)
        sweep(path)


def places() -> list[str]:
    """The directories in which this process has made folders, and the system's own one for temporary files."""
    return sorted(_places | {os.path.realpath(tempfile.gettempdir())})


def sweep(place: str) -> None:
    """Remove the folders that processes which have ended left in a directory; those of other users stay."""
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for path in [Path(entry.path) for entry in entries if _NAME.fullmatch(entry.name)]:
            held = platform_calls.locked(path)
            if held is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(held)


def remove_all(others: Iterable[str] = ()) -> None:
    """Remove the folders of this process, which is about to end, and those in its directories that no process has
    locked.

    `others`: more directories to sweep.
    """
    for folder in list(_open):
        folder.close()
    for place in {*others, *_places}:
        sweep(place)


def end_with_parent(others: Iterable[str], parent: int | None = None) -> threading.Thread | None:
    """End this process as soon as its parent is gone, with the folders of both; None if the system cannot tell.

    `others`: the `places` of the parent; `parent`: its number, by default that of the present one. The returned thread
    checks the number of the parent, since a third process may hold the end of a pipe.
    """
    watched = platform_calls.parent() if parent is None else parent
    if watched is None:
        return None
    thread = threading.Thread(target=_watch, args=(watched, tuple(others)), daemon=True)
    thread.start()
    return thread


def _watch(parent: int, others: tuple[str, ...]) -> None:
    while platform_calls.parent() == parent:
        time.sleep(_POLL)
    remove_all({*others, *places()})
    os._exit(1)
