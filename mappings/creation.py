"""Tensors made of sizes and constants: Constant, ConstantOfShape, FILL, Range, DENSIFY."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxtfl.rules import *


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


@lift_tfl("ZEROS_LIKE")
def _zeros_like(b: Builder, node: Node) -> Value:
    x = node.operand(0)
    zero = b.scalar(0, x)
    if x.tensor_type.shape is None:
        return b(ops.BroadcastTo, zero, b(ops.Shape, x))
    return broadcast(b, zero, x.shape, x)


@lift_tfl("DENSIFY", quantized=True)
def _densify(b: Builder, node: Node) -> Value:
    """Sparse constants are read dense."""
    return node.operand(0)


# --- Range, filled tensors -------------------------------------------------------------------------------------------


@lift_onnx("Range", since=(11, 27))
def _range(b: Builder, node: Node) -> Value:
    return b(ops.Range, *(reshape(b, v, ()) if v is not None and v.rank else v for v in node.operands))


@lower_tfl(ops.Range)
def _to_tfl_range(node: Node) -> Form:
    return Form("RANGE", tuple(node.operands))


@lower_onnx(ops.Range)
def _to_onnx_range(node: Node, opset: int) -> Form:
    return Form("Range", tuple(node.operands))


@lift_tfl("RANGE")
def _from_tfl_range(b: Builder, node: Node) -> Value:
    return b(ops.Range, *(reshape(b, v, ()) if v is not None and v.rank else v for v in node.operands))


@lift_tfl("FILL")
def _fill(b: Builder, node: Node) -> Value:
    value = node.operand(1)
    return b(ops.BroadcastTo, reshape(b, value, ()) if value.rank else value, node.operand(0))
