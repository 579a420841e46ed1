"""Numbers out of nothing: Constant, ConstantOfShape, EyeLike."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array, TensorData
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.types import DType
from onnxtfl.rules import Term, dim_value, dtype_from, lift_onnx, reshape, unsqueezed


def _strings(values: object) -> Array:
    return np.asarray(values, object)


_PLAIN: dict[str, Callable[[object], Array]] = {
    "value_float": lambda v: np.asarray(v, np.float32),
    "value_floats": lambda v: np.asarray(v, np.float32),
    "value_int": lambda v: np.asarray(v, np.int64),
    "value_ints": lambda v: np.asarray(v, np.int64),
    "value_string": _strings,
    "value_strings": _strings,
}


@lift_onnx("Constant", since=(1, 9, 11, 12, 13, 19, 21, 23, 24, 25))
def _constant(b: Builder, node: Node) -> Value:
    for name, value in node.attributes.items():
        if name in _PLAIN:
            return constant(_PLAIN[name](value))
        if name in ("value", "sparse_value") and isinstance(value, TensorData):
            return constant(value)
    raise InvalidModelError("has no value")


@lift_onnx("ConstantOfShape", since=(9, 20, 21, 23, 24, 25))
def _constant_of_shape(b: Builder, node: Node) -> Value:
    value = node.attributes.get("value")
    fill = value.numpy().reshape(()) if isinstance(value, TensorData) else np.asarray(0, np.float32)
    return b(ops.BroadcastTo, constant(fill), node.operand(0))


_MOST_WRITTEN_OUT = 1 << 14


@lift_onnx("EyeLike", since=(9, 22))
def _eye_like(b: Builder, node: Node) -> Value:
    """Ones on the diagonal `k` above the main one: a constant, or where column - row is k."""
    x, k, number = node.operand(0), node.attributes.get("k", 0), node.attributes.get("dtype")
    dtype = x.dtype if number is None else dtype_from(number)
    rows, columns = x.shape
    if isinstance(rows, int) and isinstance(columns, int) and rows * columns <= _MOST_WRITTEN_OUT:
        return constant(np.eye(rows, columns, k).astype(dtype.numpy))
    row, column = (_counted(b, x, axis) for axis in (0, 1))
    diagonal = Term(b, unsqueezed(b, row, [1])) + k
    return Term(b, column).equals(diagonal).to(dtype).value


def _counted(b: Builder, x: Value, axis: int) -> Value:
    size = reshape(b, dim_value(b, x.shape[axis], x), [])
    return b(ops.Range, b.scalar(0, DType.INT64), size, b.scalar(1, DType.INT64))
