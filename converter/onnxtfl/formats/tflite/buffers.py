"""The constants of a TFLite file: buffers in the FlatBuffer, or after it, by offset and size, or in other files.

Source: schema.fbs (Buffer; since version 3d ExternalBuffer and ExternalBufferGroup), LiteRT's external_weight_loader.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.formats.data_files import DataFiles, part_of
from onnxtfl.formats.source import Source
from onnxtfl.formats.tflite.decode import Span
from onnxtfl.formats.tflite.sparsity import SparseData
from onnxtfl.formats.tflite.types import decode_strings
from onnxtfl.ir.data import ArrayData, FileData, SourceBytes, SourceFile, TensorData
from onnxtfl.ir.types import DType

_SMALL = 1024
"""Constants of up to this many bytes are read immediately, which is cheaper than a separate access."""


class Buffers:
    """The buffers of a model and the tensors in them. `weights`: the section of a .litertlm in place of other files."""

    def __init__(self, source: Source, model: Mapping[str, Any], weights: SourceFile | None = None) -> None:
        self._source = source
        self._spans = [self._span(table) for table in model["buffers"] or ()]
        self._external = {table["id"]: table for table in model["external_buffers"] or ()}
        self._groups: Sequence[Mapping[str, Any]] = model["external_buffer_groups"] or ()
        self._weights = weights
        self.files = DataFiles(None if isinstance(source.file, SourceBytes) else source.file.path)

    def span(self, number: int) -> Span | None:
        """The bytes of buffer `number`; None if it is empty."""
        if not 0 <= number < len(self._spans):
            self._source.fail(f"malformed: there is no buffer {number}")
        return self._spans[number]

    def raw(self, number: int) -> TensorData:
        """All bytes of a buffer as a uint8 tensor."""
        span = self.span(number) or Span(0, 0)
        return self._data(span, DType.UINT8, (span.length,))

    def constant(self, tensor: Mapping[str, Any], dtype: DType, shape: tuple[int, ...], name: str) -> TensorData | None:
        """The values of a constant, None for other tensors. Raises InvalidModelError if they do not fit `shape`."""
        span = self.span(tensor["buffer"])
        if tensor["external_buffer"]:
            if span is not None or tensor["sparsity"] or dtype is DType.STRING:
                message = "a constant in another file that has a buffer too, is sparse, or has strings"
                raise InvalidModelError(message, node=name, code="E-FILE-010")
            return self._in_file(tensor["external_buffer"], dtype, shape, name)
        if span is None and not tensor["sparsity"]:  # a sparse constant may store no elements
            return None
        if tensor["sparsity"]:
            return SparseData(self.raw(tensor["buffer"]), dtype, shape, tensor["sparsity"], name)
        assert span is not None
        if dtype is DType.STRING:
            return self._strings(span, shape, name)
        if (math.prod(shape) * dtype.bits + 7) // 8 != span.length:
            raise InvalidModelError(
                f"{span.length} bytes for {dtype.value} elements of shape {list(shape)}", node=name, code="E-FILE-010"
            )
        return self._data(span, dtype, shape)

    def _in_file(self, number: int, dtype: DType, shape: tuple[int, ...], name: str) -> TensorData:
        """Return the values in another file: the group of an external buffer is the name of its file."""
        table = self._external.get(number)
        if table is None or table["group"] >= len(self._groups):
            raise InvalidModelError(f"there is no external buffer {number}", node=name, code="E-FILE-010")
        if (table["packing"] or "unpacked") != "unpacked":
            raise UnsupportedError(f"values in another file, packed as {table['packing']!r}", node=name)
        if self._weights is not None:
            return part_of(self._weights, table["offset"], table["length"], dtype, shape, name)
        file = self._groups[table["group"]]["name"] or ""
        return self.files.part(file, table["offset"], table["length"], dtype, shape, name)

    def _data(self, span: Span, dtype: DType, shape: tuple[int, ...]) -> TensorData:
        data = FileData(self._source.file, span.offset, dtype, shape)
        return ArrayData(data.numpy(), dtype) if span.length <= _SMALL else data

    def _strings(self, span: Span, shape: tuple[int, ...], name: str) -> TensorData:
        strings = decode_strings(self._source.read(span.offset, span.length), name)
        if len(strings) != math.prod(shape):
            raise InvalidModelError(f"{len(strings)} strings for shape {list(shape)}", node=name, code="E-FILE-010")
        return ArrayData(np.asarray(strings, object).reshape(shape), DType.STRING)

    def _span(self, table: Mapping[str, Any]) -> Span | None:
        span: Span | None = table["data"]
        if table["offset"] > 1:
            span = Span(table["offset"], table["size"])
            self._source.check(span.offset, span.length)
        return span if span is not None and span.length else None
