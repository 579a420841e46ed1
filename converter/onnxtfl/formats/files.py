"""Model files of either format: detection of the format, reading and writing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from onnxtfl.errors import InvalidModelError
from onnxtfl.formats.source import Content, format_of, open_source
from onnxtfl.formats.source import is_container as has_sections
from onnxtfl.ir.data import FileData, PathLike, SourceBytes
from onnxtfl.ir.model import FormatName, Model

if TYPE_CHECKING:
    from onnx import ModelProto


def sniff(source: PathLike | Content) -> FormatName:
    """The format of a model file, or of its bytes: TFLite if it has the identifier, a neutral graph if it begins like
    one, else ONNX.

    Raises InvalidModelError if the file cannot be read, is empty, or is a .tflite file without the identifier.
    """
    with open_source(source) as opened:
        if (found := format_of(opened)) in ("tflite", "ir"):
            return found
    if isinstance(source, str | os.PathLike) and os.fspath(source).lower().endswith(".tflite"):
        raise InvalidModelError(
            f"{os.fspath(source)} is not a TFLite file: the identifier TFL3 is missing", code="E-FILE-004"
        )
    return "onnx"


def is_container(source: PathLike | Content) -> bool:
    """Whether a file is a .litertlm, which has its models in sections. Raises InvalidModelError if it is unreadable."""
    with open_source(source) as opened:
        return has_sections(opened)


def read(source: PathLike | Content | ModelProto) -> Model:
    """The model in `source`; its weights stay in the file. See the readers of both formats."""
    format_ = sniff(source) if isinstance(source, str | os.PathLike | Content) else "onnx"
    if isinstance(source, str | os.PathLike | Content) and format_ == "tflite":
        from onnxtfl.formats.tflite import reader as tflite_reader

        return tflite_reader.read(source)
    if isinstance(source, str | os.PathLike | Content) and format_ == "ir":
        from onnxtfl.formats import neutral

        return neutral.read(source)
    from onnxtfl.formats.onnx import reader as onnx_reader

    return onnx_reader.read(source)


def bytes_on_disk(model: Model, path: PathLike) -> int:
    """The size in bytes of the file of `model`, together with its files of external data."""
    operands = (v for graph in model.graphs() for node in graph.walk() for v in node.present_operands)
    files = {id(v.data.file): v.data.file for v in operands if isinstance(v.data, FileData)}
    sizes = {os.path.realpath(f.path): f.size for f in files.values() if not isinstance(f, SourceBytes)}
    return sum((sizes | {os.path.realpath(path): os.path.getsize(path)}).values())


def write(model: Model, path: Path) -> Path:
    """Write a model in the format that it was read from; returns `path`.

    The weights of an ONNX model of more than 2 GB are written to `path` + ".data".
    """
    with path.open("wb") as out:
        if model.format == "tflite":
            from onnxtfl.formats.tflite import writer as tflite_writer

            tflite_writer.write(model, out)
        elif model.format == "ir":
            from onnxtfl.formats import neutral

            neutral.write(model, out)
        else:
            from onnxtfl.formats.onnx import writer as onnx_writer

            onnx_writer.write(model, out, external=path.with_name(path.name + ".data"))
    return path
