"""Atomic writing of files: a model or report appears at its path when it is complete."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from onnxtfl import platform_calls
from onnxtfl.errors import OutputError, UsageError
from onnxtfl.temporary import Folder

_SLASHES = tuple({"/", os.sep})
PATIENCE = 5.0
"""Seconds until another process must have opened a pipe for reading."""


def placed(path: str | os.PathLike[str] | None, model: object, suffix: str) -> str | os.PathLike[str] | None:
    """The path of a result; a folder, which exists or ends with a slash, becomes a file in it named as the model."""
    if path is None or not (os.fspath(path).endswith(_SLASHES) or os.path.isdir(path)):
        return path
    name = os.path.basename(os.fspath(model)) if isinstance(model, str | os.PathLike) else "model"
    return os.path.join(path, beside(name, suffix))


def beside(model: str, suffix: str) -> str:
    """Return the path of a model with another suffix."""
    path = Path(model)
    known = path.suffix.lower() in (".onnx", ".tflite", ".lite", ".litertlm", ".pb")
    return os.fspath(path.with_suffix(suffix) if known else path.with_name(path.name + suffix))


class Output:
    """A temporary directory for a model and its further files (the weights of an ONNX model of more than 2 GB).

    A context manager: ``file`` is the path to write to, in a directory next to the target. `commit` moves all files to
    the target's directory, which is created; other files are removed. Without a target, `data` returns the bytes.
    `shown`: the path as it was given. Raises `OutputError`.
    """

    def __init__(self, target: str | os.PathLike[str] | None, name: str) -> None:
        self.target = None if target is None else Path(os.path.realpath(target))
        self.shown = "the result" if target is None else os.fspath(target)
        self._made = list[Path]()  # folders that did not exist
        self._name = name
        self._special = False
        self._folder: Folder | None = None

    def __enter__(self) -> Output:
        self._folder = self._make_folder()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._folder is not None:
            self._folder.close()
        for folder in self._made:
            with suppress(OSError):  # not empty
                folder.rmdir()

    @property
    def file(self) -> Path:
        """The path to write to; its name is the target's."""
        assert self._folder is not None
        return self._folder.path / (self._name if self.target is None else self.target.name)

    def data(self) -> bytes:
        """Return the bytes written. Raises `OutputError` if the model has several files."""
        self._must_be_one()
        return self.file.read_bytes()

    def size(self) -> int:
        """Return the number of bytes of all files written."""
        return sum(path.stat().st_size for path in self.file.parent.iterdir())

    def keep_apart(self, files: Iterable[str | os.PathLike[str]]) -> None:
        """Raise UsageError if one of `files`, which the source consists of, would be replaced."""
        if self.target is None or self._special:
            return
        for path in self.file.parent.iterdir():
            target = self.target.parent / path.name
            for source in files if target.exists() else ():
                if os.path.exists(source) and os.path.samefile(source, target):
                    message = f"{self.shown}: {target.name} is a file of the source"
                    raise UsageError(message, hint="write the result to another file", code="E-USE-006")

    def commit(self) -> None:
        """Move all files to the target, the model itself last."""
        assert self.target is not None
        try:
            if self._special:
                self._write_into()
                return
            for path in sorted(self.file.parent.iterdir(), key=lambda path: path == self.file):
                os.replace(path, self.target.parent / path.name)
        except OSError as error:
            raise OutputError(f"cannot write {self.shown}: {error.strerror or error}") from error

    def _write_into(self) -> None:
        """Write the file into a device or pipe."""
        self._must_be_one()
        with self.file.open("rb") as source, _opened(self.shown) as sink:
            shutil.copyfileobj(source, sink)

    def _must_be_one(self) -> None:
        if any(path != self.file for path in self.file.parent.iterdir()):
            raise OutputError("the model does not fit into one file", code="E-OUT-002")

    def _make_folder(self) -> Folder:
        try:
            if self.target is None:
                return Folder()
            if self.target.is_dir():
                raise OutputError(f"cannot write {self.shown}: it is a folder", hint="name a file")
            if _is_special(self.shown):
                self._special = True  # a device or pipe is written into, never replaced
                return Folder()
            parent = self.target.parent
            self._made = [folder for folder in (parent, *parent.parents) if not folder.exists()]
            parent.mkdir(parents=True, exist_ok=True)
            return Folder(parent)
        except OSError as error:
            raise OutputError(f"cannot write {self.shown}: {error.strerror or error}") from error


def _is_special(path: str) -> bool:
    """Whether `path` is a device, a pipe or an open file descriptor."""
    if os.path.abspath(path).startswith(platform_calls.OPEN_FILES):
        return True
    return os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode)


def _opened(path: str) -> BinaryIO:
    """A device or pipe, opened for writing; OSError where no process reads the pipe within `PATIENCE`."""
    if not stat.S_ISFIFO(os.stat(path).st_mode):
        return open(path, "wb")
    limit = time.monotonic() + PATIENCE
    while True:
        try:
            return os.fdopen(platform_calls.open_pipe(path), "wb")
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > limit:
                raise OSError(errno.ENXIO, "no process reads this pipe") from error
            time.sleep(0.05)


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Write arrays by name as an .npz file, as `write_text` writes text. Raises `OutputError`."""
    import numpy as np

    with Output(path, "") as output:
        try:
            with output.file.open("wb") as file:
                np.savez(file, **arrays)
        except OSError as error:
            raise OutputError(f"cannot write {os.fspath(path)}: {error.strerror or error}") from error
        output.commit()


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file, whose folder is created; on an error an existing file is unchanged. Raises `OutputError`."""
    with Output(path, "") as output:
        try:
            output.file.write_text(text, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise OutputError(f"cannot write {os.fspath(path)}: {error.strerror or error}") from error
        output.commit()
