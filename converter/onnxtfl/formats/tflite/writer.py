"""Writes graphs of `tfl` ops as a .tflite file: the tables first, then each weight streamed behind them.

A weight lies behind the tables as the vector that its Buffer's `data` refers to, so the file is an ordinary one; where
that would reach past 2 GB, each Buffer gives position and size in the file instead (schema version 3c).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from onnxtfl.errors import InvalidModelError
from onnxtfl.formats.tflite import schema
from onnxtfl.formats.tflite.encode import Encoder, Later, Values
from onnxtfl.formats.tflite.model_tables import Content, model_tables
from onnxtfl.ir.data import TensorData
from onnxtfl.ir.graph import Value
from onnxtfl.ir.model import Model

IDENTIFIER = b"TFL3"
ALIGN = 16
FLATBUFFER_LIMIT = (1 << 31) - 1
"""Readers take FlatBuffers of less than 2 GB."""


def write(model: Model, out: BinaryIO, limit: int = FLATBUFFER_LIMIT) -> dict[Value, str]:
    """Write `model`, whose nodes are `tfl` ops, to a binary file; returns the names of the tensors.

    Attributes of a node are the fields of its op's options table (enums by name, vectors as tuples, Graphs where the
    format has the number of a subgraph); those of an op "custom:NAME" are `custom_options`. InvalidModelError where the
    format cannot hold what stands in the graph. Weights are read and written in chunks; equal graphs give equal bytes.
    The signatures are the model's; one that has none gets `serving_default` for its main graph.
    """
    values, contents, names = model_tables(model)
    encoder = _encode(values, [{"data": Later(c)} if c is not None else {} for c in contents])
    ends = list(_places(len(encoder.out), (c for _, c in encoder.later), ahead=4))
    if not ends or ends[-1] + _size(encoder.later[-1][1]) <= limit:
        for (place, _), start in zip(encoder.later, ends, strict=True):
            encoder.refer(place, start - 4)
        _stream(encoder.out, [c for _, c in encoder.later], out, count=True)
    else:
        _write_large(values, contents, out)
    return names


def _write_large(values: Values, contents: list[Content | None], out: BinaryIO) -> None:
    """Constants outside of the FlatBuffer; its size does not depend on the numbers in it, so a first try gives it."""
    kept = [c for c in contents if c is not None and _size(c)]
    size = len(_encode(values, _located(contents, iter([2] * len(kept)))).out)
    encoder = _encode(values, _located(contents, _places(size, kept)))
    _stream(encoder.out, kept, out, count=False)


def _located(contents: list[Content | None], places: Iterator[int]) -> list[Values]:
    return [{"offset": next(places), "size": _size(c)} if c is not None and _size(c) else {} for c in contents]


def _encode(values: Values, buffers: list[Values]) -> Encoder:
    encoder = Encoder()
    encoder.root(schema.table("Model"), {**values, "buffers": buffers}, IDENTIFIER)
    return encoder


def _places(position: int, contents: Iterable[Content], ahead: int = 0) -> Iterator[int]:
    """Where the bytes of each content begin, aligned, `ahead` bytes being left before them."""
    for content in contents:
        position += ahead
        position += -position % ALIGN
        yield position
        position += _size(content)


def _stream(tables: bytearray, contents: list[Content], out: BinaryIO, count: bool) -> None:
    """Write the tables and behind them the contents, each behind the word that counts its bytes where `count`."""
    out.write(tables)
    position = len(tables)
    for content, start in zip(contents, _places(position, contents, 4 * count), strict=True):
        size = _size(content)
        head = struct.pack("<I", size) if count else b""
        out.write(bytes(start - position - len(head)) + head)
        position = start + _copy(content, out)
        if position != start + size:
            raise InvalidModelError(f"a constant gave {position - start} bytes where {size} were announced")


def _copy(content: Content, out: BinaryIO) -> int:
    if isinstance(content, bytes):
        return out.write(content)
    return sum(out.write(chunk.data) for chunk in content.chunks())


def _size(content: Content) -> int:
    return content.nbytes if isinstance(content, TensorData) else len(content)
