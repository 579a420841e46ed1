"""Temporary folders, which are removed also where the process that made them was killed.

A process locks its folders (flock) while it lives. `sweep` removes those in a directory that no process has locked:
each process does so before its first folder there, and a child process when its parent is gone (`end_with_parent`).
Where there are no locks (Windows, some network file systems) a folder has another name, and nothing sweeps it.

This is imported by scripts too: it imports the standard library only, and runs on Python 3.9.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PREFIX, UNLOCKED = "onnxtfl-tmp-", "onnxtfl-unlocked-"
_NAME = re.compile(r"\.?" + PREFIX + r"[a-z0-9_]{8}")  # what `tempfile.mkdtemp` adds
_POLL = 0.2
_lock = threading.RLock()  # a signal may come while it is held, and remove all folders
_open: set[Folder] = set()
_places: set[str] = set()


def _begin_anew() -> None:
    """Forget the folders of the process that was forked, whose other threads may have held the lock."""
    global _lock  # noqa: PLW0603 - threads of this process have the old one
    _lock = threading.RLock()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


class Folder:
    """A new folder at `path`, which `close` removes; a context manager. `place`: the directory that it is made in."""

    def __init__(self, place: str | os.PathLike[str] | None = None) -> None:
        inside = tempfile.gettempdir() if place is None else os.fspath(place)
        dot = "" if place is None else "."
        add_place(inside)
        self._locked: int | None = None
        self.path = Path(self._make(inside, dot))
        with _lock:
            _open.add(self)

    def _make(self, inside: str, dot: str) -> str:
        while True:
            path = tempfile.mkdtemp(prefix=dot + PREFIX, dir=inside)
            try:
                self._locked = _locked(path, wait=True)
            except OSError:
                with contextlib.suppress(OSError):
                    os.rmdir(path)
                return tempfile.mkdtemp(prefix=dot + UNLOCKED, dir=inside)
            if self._locked is not None:
                return path

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder with all that is in it; may be called again."""
        with _lock:
            _open.discard(self)
        shutil.rmtree(self.path, ignore_errors=True)
        if self._locked is not None:
            os.close(self._locked)
            self._locked = None


def add_place(place: str | os.PathLike[str]) -> None:
    """Sweep a directory in which this process will make folders, the first time; see `places`."""
    path = os.path.realpath(place)
    with _lock:
        if path in _places:
            return
        _places.add(path)
    sweep(path)


def places() -> list[str]:
    """The directories in which this process has made folders, and the system's own one for temporary files."""
    return sorted(_places | {os.path.realpath(tempfile.gettempdir())})


def sweep(place: str) -> None:
    """Remove the folders that processes which have ended left in a directory; those of other users stay."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for path in [entry.path for entry in entries if _NAME.fullmatch(entry.name)]:
            with contextlib.suppress(OSError):
                held = _locked(path, wait=False)
                if held is not None:
                    shutil.rmtree(path, ignore_errors=True)
                    os.close(held)


def _locked(path: str, wait: bool) -> int | None:
    """The descriptor of a folder of this user, with a lock; None for one that is removed meanwhile.

    Raises OSError where it is another user's, another process has locked it, or there are no locks.
    """
    if fcntl is None:
        raise OSError("no locks")
    try:
        held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        if os.fstat(held).st_uid != os.getuid():
            raise PermissionError(path)
        fcntl.flock(held, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _same(path, held):
            return held
    except BaseException:
        os.close(held)
        raise
    os.close(held)
    return None


def _same(path: str, held: int) -> bool:
    """Whether a path still is the open folder: another process may have removed it before it was locked."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(held))
    except FileNotFoundError:
        return False


def remove_all() -> None:
    """Remove the folders of this process, which is about to end."""
    for folder in list(_open):
        folder.close()


def end_with_parent(others: Iterable[str] = (), parent: int | None = None) -> threading.Thread | None:
    """End this process as soon as its parent is gone, with the folders of both; None where the system cannot tell.

    `others`: the `places` of the parent; `parent`: its number, by default that of the present one. The thread that is
    returned looks at who the parent is: the end of a pipe may be held by a third process.
    """
    if os.name != "posix":
        return None
    watched = os.getppid() if parent is None else parent
    thread = threading.Thread(target=_watch, args=(watched, tuple(others)), daemon=True)
    thread.start()
    return thread


def _watch(parent: int, others: tuple[str, ...]) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL)
    remove_all()
    for place in {*others, *places()}:
        sweep(place)
    os._exit(1)
