"""Model files of either format: which one it is, reading and writing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir.model import FormatName, Model

if TYPE_CHECKING:
    from onnx import ModelProto

PathLike = str | os.PathLike[str]
_TFLITE = b"TFL3"


def sniff(source: PathLike | bytes | bytearray | memoryview) -> FormatName:
    """The format of a model file or of its bytes, by its content, then by its name.

    Raises InvalidModelError where the file cannot be read, is empty, or is neither by content nor by name.
    """
    if not isinstance(source, str | os.PathLike):
        return "tflite" if bytes(source[4:8]) == _TFLITE else "onnx"
    name = os.fspath(source)
    try:
        with open(source, "rb") as file:
            head = file.read(8)
    except OSError as error:
        raise InvalidModelError(f"cannot read {name}: {error.strerror or error}") from error
    if not head:
        raise InvalidModelError(f"{name} is empty")
    if head[4:8] == _TFLITE:
        return "tflite"
    if name.lower().endswith(".tflite"):
        raise InvalidModelError(f"{name} is not a TFLite file: the mark 'TFL3' is missing")
    return "onnx"


def read(source: PathLike | bytes | bytearray | memoryview | ModelProto) -> Model:
    """The model in `source`, its weights left where they are; see the readers of both formats."""
    if isinstance(source, str | os.PathLike | bytes | bytearray | memoryview) and sniff(source) == "tflite":
        from onnxtfl.formats.tflite import reader as tflite_reader

        return tflite_reader.read(source)
    from onnxtfl.formats.onnx import reader as onnx_reader

    return onnx_reader.read(source)


def write(model: Model, path: Path) -> Path:
    """Write a model that was read from a file, in that file's format; returns `path`.

    Weights of an ONNX model past 2 GB are in a file beside it.
    """
    with path.open("wb") as out:
        if model.format == "tflite":
            from onnxtfl.formats.tflite import writer as tflite_writer

            tflite_writer.write(model, out)
        else:
            from onnxtfl.formats.onnx import writer as onnx_writer

            onnx_writer.write(model, out, external=path.with_name(path.name + ".data"))
    return path
