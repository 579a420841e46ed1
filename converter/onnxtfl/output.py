"""Write files so that they are there whole or not at all."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path
from types import TracebackType

from onnxtfl.errors import OutputError


class Output:
    """A place to write a model that appears under its name only when it is finished.

    A context manager: ``file`` is the path to write to, in a directory of its own beside the target (so that the
    writer may put more files next to it: the weights of an ONNX model past 2 GB). `commit` moves all of them to the
    target; what is not committed is removed. Without a target, `data` gives the bytes. What goes wrong is an
    `OutputError`.
    """

    def __init__(self, target: str | os.PathLike[str] | None, name: str) -> None:
        self.target = None if target is None else Path(os.path.realpath(target))
        self._name = name
        self._special = False
        self._directory: Path | None = None

    def __enter__(self) -> Output:
        self._directory = self._make_directory()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def file(self) -> Path:
        """The file to write, with the target's name."""
        assert self._directory is not None
        return self._directory / (self._name if self.target is None else self.target.name)

    def data(self) -> bytes:
        """Return what was written. Raises `OutputError` where the model does not fit into one file."""
        if any(path != self.file for path in self.file.parent.iterdir()):
            raise OutputError("the model is too large for one file", hint="give a path to write it to")
        return self.file.read_bytes()

    def size(self) -> int:
        """Return the bytes of all files written."""
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
            raise OutputError(f"cannot write {self.target}: {error.strerror or error}") from error

    def _make_directory(self) -> Path:
        try:
            if self.target is None:
                return Path(tempfile.mkdtemp(prefix="onnxtfl-"))
            if self.target.is_dir():
                raise OutputError(f"cannot write {self.target}: it is a directory")
            if self.target.exists() and not stat.S_ISREG(self.target.stat().st_mode):
                self._special = True  # a device or pipe is written into, never replaced
                return Path(tempfile.mkdtemp(prefix="onnxtfl-"))
            return Path(tempfile.mkdtemp(prefix=".onnxtfl-", dir=self.target.parent))
        except OSError as error:
            raise OutputError(f"cannot write {self.target or 'a file'}: {error.strerror or error}") from error
