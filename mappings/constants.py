"""Constant and Identity: what is there already.

=====================  ==========================================================================================
ONNX                   Constant 1 9 11 12 13 19 21 23 24 25, Identity 1 13 14 16 19 21 23 24 25
=====================  ==========================================================================================
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import ArrayData, TensorData
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_onnx

_PLAIN = {
    "value_float": DType.FLOAT32,
    "value_floats": DType.FLOAT32,
    "value_int": DType.INT64,
    "value_ints": DType.INT64,
    "value_string": DType.STRING,
    "value_strings": DType.STRING,
}


@lift_onnx("Constant", since=(1, 9, 11, 12, 13, 19, 21, 23, 24, 25))
def _constant(b: Builder, node: Node) -> Value:
    """The tensor or the numbers among the attributes."""
    given = [name for name in ("value", "sparse_value", *_PLAIN) if name in node.attributes]
    if len(given) != 1:
        raise ValueError(f"one of the value attributes expected, not {given or 'none'}")
    value = node.attributes[given[0]]
    if isinstance(value, TensorData):
        return constant(value)
    dtype = _PLAIN[given[0]]
    return constant(ArrayData(np.asarray(value, dtype.numpy), dtype))


@lift_onnx("Identity", since=(1, 13, 14, 16, 19, 21, 23, 24, 25))
def _identity(b: Builder, node: Node) -> Value:
    """The operand itself."""
    return node.operand(0)
