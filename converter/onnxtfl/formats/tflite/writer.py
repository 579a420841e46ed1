"""Writes Models of `tfl` ops as .tflite files: the tables first, then the weights, which are streamed.

A weight is a vector after the tables, to which the `data` of its Buffer refers: the file is an ordinary FlatBuffer.
For files of 2 GB and more each Buffer has offset and size in the file instead (schema version 3c).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from onnxtfl.formats.archive import write_archive
from onnxtfl.formats.source import copy_data
from onnxtfl.formats.tflite import schema
from onnxtfl.formats.tflite.encode import Deferred, Encoder, Tables, Values
from onnxtfl.formats.tflite.model_tables import Content, model_tables
from onnxtfl.formats.write_ahead import writing_ahead
from onnxtfl.ir.data import TensorData
from onnxtfl.ir.graph import Value
from onnxtfl.ir.metadata import Late
from onnxtfl.ir.model import Model

IDENTIFIER = b"TFL3"
ALIGN = 16
FLATBUFFER_LIMIT = (1 << 31) - 1
"""Bytes of the largest FlatBuffer that readers accept."""


def write(
    model: Model, out: BinaryIO, limit: int = FLATBUFFER_LIMIT, *, late: Late | None = None, by_content: bool = False
) -> dict[Value, str]:
    """Write `model`, whose nodes are `tfl` ops, to a binary file; returns the name of each tensor.

    Attributes of a node are the fields of its op's options table (enums by name, vectors as tuples, Graphs for indices
    of subgraphs); an op "custom:NAME" has `custom_options`. Weights are read and written in chunks; equal models have
    equal bytes. A model without signatures gets `serving_default` for its main graph. `late`: properties that depend on
    names. `by_content`: constants of several files are stored once if their bytes are equal. An archive of associated
    files comes last. Raises InvalidModelError for a model that the format cannot express.
    """
    values, contents, names = model_tables(model, late, by_content)
    encoder = _encode(values, Tables(contents, lambda c: {"data": Deferred(c)} if c is not None else {}))
    starts = list(_starts(len(encoder.out), (c for _, c in encoder.deferred), header=4))
    if not starts or starts[-1] + _size(encoder.deferred[-1][1]) <= limit:
        for (reference, _), start in zip(encoder.deferred, starts, strict=True):
            encoder.refer(reference, start - 4)
        size = _stream(encoder.out, [c for _, c in encoder.deferred], out, count=True)
    else:
        size = _write_large(values, contents, out)
    if model.metadata.files is not None:
        write_archive(model.metadata.files, out, size)
    return names


def _write_large(values: Values, contents: list[Content | None], out: BinaryIO) -> int:
    """Write the constants after the FlatBuffer. A first encoding determines its size, which does not depend on the
    offsets.
    """
    kept = [c for c in contents if c is not None and _size(c)]
    size = len(_encode(values, _located(contents, iter([2] * len(kept)))).out)
    encoder = _encode(values, _located(contents, _starts(size, kept)))
    return _stream(encoder.out, kept, out, count=False)


def _located(contents: list[Content | None], starts: Iterator[int]) -> list[Values]:
    return [{"offset": next(starts), "size": _size(c)} if c is not None and _size(c) else {} for c in contents]


def _encode(values: Values, buffers: list[Values] | Tables) -> Encoder:
    encoder = Encoder()
    encoder.root(schema.table("Model"), {**values, "buffers": buffers}, IDENTIFIER)
    return encoder


def _starts(position: int, contents: Iterable[Content], header: int = 0) -> Iterator[int]:
    """The aligned start of each content from `position` on, at least `header` bytes after the one before."""
    for content in contents:
        position += header
        position += -position % ALIGN
        yield position
        position += _size(content)


def _stream(tables: bytearray, contents: list[Content], out: BinaryIO, count: bool) -> int:
    """Write the tables, then the contents, with `count` each after a word with its size. Returns the total size."""
    out.write(tables)
    position = len(tables)
    with writing_ahead(out) as ahead:
        for content, start in zip(contents, _starts(position, contents, 4 * count), strict=True):
            size = _size(content)
            head = struct.pack("<I", size) if count else b""
            ahead.write(bytes(start - position - len(head)) + head)
            if isinstance(content, bytes):
                ahead.write(content)
            else:
                copy_data(content, ahead)
            position = start + size
    return position


def _size(content: Content) -> int:
    return content.nbytes if isinstance(content, TensorData) else len(content)
