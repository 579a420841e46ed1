"""External data: files beside the model that hold weights.

Source: onnx.proto, TensorProto.external_data. A location is a relative path that stays in the model's directory. Hub
caches lay a model out as symlinks into one directory of blobs, so a symlink is followed where it ends beside the file
that the model's own path resolves to; any other symlink could lead anywhere and is refused.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath

from onnx import TensorProto

from onnxtfl.errors import InvalidModelError
from onnxtfl.formats.onnx.strings import text_of
from onnxtfl.ir.data import FileData, SourceFile
from onnxtfl.ir.types import DType


class ExternalFiles:
    """The data files of the model at `model` (None: a model in memory, which can have none); each is opened once."""

    def __init__(self, model: Path | None) -> None:
        self.model = model
        self._open: dict[Path, SourceFile] = {}

    def data(self, tensor: TensorProto, dtype: DType, shape: tuple[int, ...]) -> FileData:
        """The numbers of `tensor`; InvalidModelError where the file lacks, is too short, or lies where it may not."""
        entries = {text_of(e.key): text_of(e.value) for e in tensor.external_data}
        name = tensor.name
        file = self._file(entries.get("location", ""), name)
        offset = _number(entries.get("offset", "0"), "offset", name)
        data = FileData(file, offset, dtype, shape)
        length = _number(entries.get("length", str(data.nbytes)), "length", name)
        if length != data.nbytes:
            raise InvalidModelError(
                f"tensor {name!r} has {length} bytes of external data, its shape {list(shape)} takes {data.nbytes}"
            )
        if offset + length > file.size:
            raise InvalidModelError(
                f"external data of tensor {name!r} is cut off: {file.path} has {file.size} bytes, "
                f"{offset + length} are needed"
            )
        return data

    def _file(self, location: str, name: str) -> SourceFile:
        if self.model is None:
            raise InvalidModelError(
                f"tensor {name!r} has its data in the file {location!r}", hint="give the model as a path, not as bytes"
            )
        path = self._path(self.model, location, name)
        if path not in self._open:
            self._open[path] = SourceFile(path)
        return self._open[path]

    def _path(self, model: Path, location: str, name: str) -> Path:
        """Where `location` is; refuses what leads out of the model's directory."""
        posix, windows = PurePosixPath(location), PureWindowsPath(location)
        if not location or "\0" in location or posix.is_absolute() or windows.drive or windows.root:
            raise InvalidModelError(f"tensor {name!r}: external data at {location!r}: only relative paths are read")
        if ".." in posix.parts or ".." in windows.parts:
            raise InvalidModelError(f"tensor {name!r}: external data at {location!r}: '..' is not followed")
        resolved = model.resolve()
        for directory in dict.fromkeys((model.parent.resolve(), resolved.parent)):
            candidate = directory / posix
            target = candidate.resolve()
            if not target.is_file():
                continue
            if target != candidate and target.parent != resolved.parent:
                raise InvalidModelError(
                    f"tensor {name!r}: external data at {location!r} is a symlink that leads away from the model"
                )
            return target
        raise InvalidModelError(f"tensor {name!r}: external data is missing: no file {model.parent / posix}")


def _number(text: str, what: str, name: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise InvalidModelError(f"tensor {name!r}: external data with the {what} {text!r}")
    return int(text)
