"""The scales and zero points of the tensors of a model, to compare those before and after a conversion bit for bit.

Zero points are counted from the least integer of their type, so that int8 and uint8 tensors of the same real values are
the same. int32 and int64 (biases) are left out: their scales are products of others.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tests.harness.litert import Array

_SMALL = 1 << 10
"""The number of elements up to which a constant that is read in float is written in float."""

Parameters = tuple[tuple[str, int], ...]
"""The bits of each scale, and the zero point."""


def of_onnx(source: bytes) -> set[Parameters]:
    """The parameters of the Q, DQ and QLinear ops of an ONNX model: a constant scale followed by a zero point."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load_from_string(source)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant":
            constants[node.output[0]] = numpy_helper.to_array(onnx.helper.get_node_attr_value(node, "value"))
    return {p for node in model.graph.node for p in _of_node(node.input, constants)}


def _of_node(inputs: Sequence[str], constants: Mapping[str, Array]) -> Iterator[Parameters]:
    for first, second in itertools.pairwise(inputs):
        scale, zero = constants.get(first), constants.get(second)
        if scale is None or zero is None or scale.dtype != np.float32 or scale.shape != zero.shape:
            continue
        if zero.dtype.name in ("int8", "uint8", "int16", "uint16", "int4", "uint4") and scale.ndim <= 1:
            bits = 4 if zero.dtype.name.endswith("int4") else 8 * zero.dtype.itemsize
            yield _parameters(scale.reshape(-1), zero.reshape(-1), 0 if zero.dtype.name[0] == "u" else 1 << bits - 1)


def of_tflite(source: bytes, *, small_constants: bool = False) -> set[Parameters]:
    """The parameters of all tensors of a .tflite, or of its `small_constants`, which may become real values."""
    from onnxtfl.formats.tflite import reader

    found = set()
    for node in reader.read(source).main.walk():
        for value in (*node.operands, *node.results):
            quantization: Any = value.type.quantization if value is not None and value.is_quantized else None
            if small_constants and (value is None or value.data is None or value.data.size > _SMALL):
                continue
            if quantization is not None and quantization.dtype.bits <= 16:
                lowest = 1 << quantization.dtype.bits - 1 if quantization.dtype.is_signed else 0
                found.add(_parameters(quantization.scales, quantization.zero_points, lowest))
    return found


def _parameters(scales: Any, zeros: Any, offset: int) -> Parameters:
    return tuple((struct.pack("<f", s).hex(), int(z) + offset) for s, z in zip(scales, zeros, strict=True))
