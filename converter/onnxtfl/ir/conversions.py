"""Values in another quantization: the Convert that quantizes, dequantizes or requantizes them."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import ArrayData
from onnxtfl.ir.graph import Graph, Value, constant, take_name
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.types import DType


def convert_quantization(b: Builder, value: Value, quantization: Quantization | None) -> Value:
    """`value` in `quantization` (None: real); itself if it is in that."""
    if quantization_of(value) == quantization:
        return value
    return stored_as(b(ops.Convert, value, dtype=value.dtype), quantization)


def stored_as(value: Value, quantization: Quantization | None) -> Value:
    """`value`, which has no user yet, with a type in `quantization` (None: real)."""
    value.type = value.tensor_type.stored_as(quantization)
    return value


def quantization_read(graph: Graph, value: Value) -> Quantization | None:
    """The quantization in which all users read the real `value`; None if they differ, or it is an output of `graph`."""
    if graph.is_output(value):
        return None
    found = {quantization_of(user.result) if user.op is ops.Convert else None for user in value.users()}
    return found.pop() if len(found) == 1 else None


_LAZY = (DType.INT8, DType.UINT8, DType.INT16)


def dequantized_constant(value: Value) -> Value:
    """A quantized constant as a real one, whose elements are computed when they are written where that is exact."""
    quantization, data = value.tensor_type.quantization, value.data
    assert quantization is not None and data is not None
    zeros, type_ = set(quantization.zero_points), value.tensor_type.stored_as(None)
    if quantization.block or len(zeros) > 1 or quantization.dtype not in _LAZY or not data.shape:
        return constant(ArrayData(value.numpy().astype(np.float32)), type_=type_)
    axis = quantization.axis or 0
    factors = np.asarray(quantization.scales, np.float32)
    factors = np.repeat(factors, data.shape[axis]) if quantization.per_tensor else factors
    return constant(data.cast(DType.FLOAT32, -zeros.pop()).scale(factors, axis), type_=type_)


def output_instead(graph: Graph, old: Value, new: Value) -> None:
    """Replace the output `old` by `new`, which gets its name and origins; other uses of `old` are unchanged."""
    take_name(old, new)
    graph.outputs = [new if v is old else v for v in graph.outputs]
