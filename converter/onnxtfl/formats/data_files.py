"""Files with weights next to a model, of either format.

A location is a relative path within the model's directory. Download caches store a model as symlinks into one directory
of blobs, so a symlink is followed if its target is in the directory of the model's own resolved path; any other symlink
is refused, as it could refer to any file. A file is also refused if it has more names (hard links) than the folders of
the file and of the model contain.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath, PureWindowsPath

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir.data import FileData, SourceFile
from onnxtfl.ir.types import DType


class DataFiles:
    """The data files of the model at the path `model` (None: in memory, without files); each is opened once."""

    def __init__(self, model: Path | None) -> None:
        self.model = model
        self._open: dict[Path, SourceFile] = {}
        self._at: dict[str, SourceFile] = {}  # by location, which is resolved once

    def paths(self) -> tuple[Path, ...]:
        """The paths of the opened files."""
        return tuple(self._open)

    def part(
        self, location: str, offset: int, length: int | None, dtype: DType, shape: tuple[int, ...], name: str
    ) -> FileData:
        """The values of the tensor `name`, of `length` bytes (None: not declared).

        Raises InvalidModelError if the file is missing, truncated or not allowed, or the values do not fit the shape.
        """
        return part_of(self._file(location, name), offset, length, dtype, shape, name)

    def _file(self, location: str, name: str) -> SourceFile:
        if self.model is None:
            raise InvalidModelError(
                f"tensor {name!r} has its data in the file {location!r}",
                hint="pass the model as a path, not as bytes",
                code="E-FILE-006",
            )
        if location not in self._at:
            path = self._path(self.model, location, name)
            if path not in self._open:
                self._open[path] = SourceFile(path)
            self._at[location] = self._open[path]
        return self._at[location]

    def _path(self, model: Path, location: str, name: str) -> Path:
        """The path of `location`. Raises InvalidModelError if it is outside of the model's directory or missing."""
        posix, windows = PurePosixPath(location), PureWindowsPath(location)
        if not location or "\0" in location or posix.is_absolute() or windows.drive or windows.root:
            raise InvalidModelError(
                f"tensor {name!r}: external data at {location!r}: only relative paths are allowed", code="E-FILE-007"
            )
        if ".." in posix.parts or ".." in windows.parts:
            raise InvalidModelError(
                f"tensor {name!r}: external data at {location!r}: '..' is not allowed", code="E-FILE-007"
            )
        resolved = model.resolve()
        for directory in dict.fromkeys((model.parent.resolve(), resolved.parent)):
            candidate = directory / posix
            target = Path(os.path.realpath(candidate))
            if not os.path.isfile(target):
                continue
            if target != candidate and target.parent != resolved.parent:
                raise InvalidModelError(
                    f"tensor {name!r}: external data at {location!r} is a symlink out of the model's directory",
                    code="E-FILE-007",
                )
            if _has_other_names(target, {target.parent, directory, resolved.parent}):
                raise InvalidModelError(
                    f"tensor {name!r}: external data at {location!r} is a hard link out of the model's directory",
                    hint="copy the file",
                    code="E-FILE-007",
                )
            return target
        raise InvalidModelError(
            f"tensor {name!r}: external data is missing: no file {model.parent / posix}", code="E-FILE-006"
        )


def part_of(
    file: SourceFile, offset: int, length: int | None, dtype: DType, shape: tuple[int, ...], name: str
) -> FileData:
    """The values of the tensor `name` in a file; errors as for `DataFiles.part`."""
    data = FileData(file, offset, dtype, shape)
    if length not in (None, data.nbytes):
        raise InvalidModelError(
            f"tensor {name!r} has {length} bytes of external data, its shape {list(shape)} needs {data.nbytes}",
            code="E-FILE-006",
        )
    if offset + data.nbytes > file.size:
        raise InvalidModelError(
            f"external data of tensor {name!r} is truncated: {file.path} has {file.size} bytes, "
            f"{offset + data.nbytes} are needed",
            code="E-FILE-006",
        )
    return data


def _has_other_names(file: Path, folders: set[Path]) -> bool:
    """Whether a file has hard links that are not in `folders`."""
    about = file.stat()
    if about.st_nlink < 2:
        return False
    entries = (entry for folder in folders for entry in os.scandir(folder))
    return (
        sum(entry.inode() == about.st_ino and entry.is_file(follow_symlinks=False) for entry in entries)
        < about.st_nlink
    )
