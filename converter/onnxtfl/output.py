"""Atomic writing of a model file: it appears at its path when it is complete."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from onnxtfl.errors import OutputError
from onnxtfl.temporary import Folder


class Output:
    """A temporary directory for a model and its further files (the weights of an ONNX model of more than 2 GB).

    A context manager: ``file`` is the path to write to, in a directory next to the target. `commit` moves all files
    to the target's directory, which is created; what is not committed is removed. Without a target, `data` returns
    the bytes. Raises `OutputError`.
    """

    def __init__(self, target: str | os.PathLike[str] | None, name: str) -> None:
        self.target = None if target is None else Path(os.path.realpath(target))
        self._shown = "a file" if target is None else os.fspath(target)
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
        """Return the bytes written. Raises `OutputError` where the model has several files."""
        if any(path != self.file for path in self.file.parent.iterdir()):
            raise OutputError("the model does not fit into one file", code="E-OUT-002")
        return self.file.read_bytes()

    def size(self) -> int:
        """Return the number of bytes of all files written."""
        return sum(path.stat().st_size for path in self.file.parent.iterdir())

    def commit(self) -> None:
        """Move all files to the target, the model itself last."""
        assert self.target is not None
        try:
            if self._special:
                with self.file.open("rb") as source, self.target.open("wb") as sink:
                    shutil.copyfileobj(source, sink)
                return
            for path in sorted(self.file.parent.iterdir(), key=lambda path: path == self.file):
                os.replace(path, self.target.parent / path.name)
        except OSError as error:
            raise OutputError(f"cannot write {self._shown}: {error.strerror or error}") from error

    def _make_folder(self) -> Folder:
        try:
            if self.target is None:
                return Folder()
            if self.target.is_dir():
                raise OutputError(f"cannot write {self._shown}: it is a folder", hint="name a file")
            if self.target.exists() and not stat.S_ISREG(self.target.stat().st_mode):
                self._special = True  # a device or pipe is written into, never replaced
                return Folder()
            parent = self.target.parent
            self._made = [folder for folder in (parent, *parent.parents) if not folder.exists()]
            parent.mkdir(parents=True, exist_ok=True)
            return Folder(parent)
        except OSError as error:
            raise OutputError(f"cannot write {self._shown}: {error.strerror or error}") from error
