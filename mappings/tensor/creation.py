"""Tensors created from sizes and constants: Constant, ConstantOfShape, EyeLike, FILL, Range, DENSIFY."""

from __future__ import annotations

import numpy as np

from onnxtfl.build.dtypes import dtype_from
from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.build.rows import row
from onnxtfl.build.sizes import range_below
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import TensorData
from onnxtfl.ir.dims import is_nonnegative, is_static
from onnxtfl.ir.facts import facts_of
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.ops.complex_numbers import REAL_OF
from onnxtfl.ir.reshape import broadcast, reshape, unsqueezed
from onnxtfl.ir.shapes import known_dims
from onnxtfl.rewriting.registry import Computed, Form, lift_onnx, lift_tfl, lower_tfl

_MOST_WRITTEN_OUT = 1 << 14
"""The most elements of an EyeLike that becomes a constant."""
_PLAIN = {"value_float": np.float32, "value_int": np.int64, "value_string": np.object_}
"""The element types of a Constant's scalar and (with an s) vector attributes."""


@lift_onnx("Constant", since=(1, 9, 11, 12, 13, 19, 21, 23, 24, 25))
def _constant(b: Builder, node: Node) -> Value:
    for name, value in node.attributes.items():
        if (kind := name.removesuffix("s")) in _PLAIN:
            return constant(np.asarray(value, _PLAIN[kind]))
        if name in ("value", "sparse_value") and isinstance(value, TensorData):
            return constant(value)
    raise ValueError("has no value")


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


# --- Range, filled tensors -------------------------------------------------------------------------------------------


@lift_tfl("RANGE")
def _range(b: Builder, node: Node) -> Value:
    return b(ops.Range, *(reshape(b, node.operand(i), ()) for i in range(3)))


@lift_onnx("Range", since=(1,), domain=MICROSOFT)
@lift_onnx("Range", since=(11, 27))
def _onnx_range(b: Builder, node: Node) -> Value:
    start, limit = (reshape(b, node.operand(i), ()) for i in (0, 1))
    given = node.optional(2)
    return b(ops.Range, start, limit, b.scalar(1, start) if given is None else reshape(b, given, ()))


@lower_tfl(ops.Range)
def _range_in_its_direction(node: Node) -> Form:
    """An empty range has its start as its limit: LiteRT's RANGE refuses a limit in the other direction."""
    start, limit, step = (node.operand(i) for i in range(3))
    if step.is_constant and _reaches(start, limit, bool(step.numpy() > 0)):
        return Form("RANGE", (start, limit, step))
    return Form("RANGE", (start, Computed(limit.tensor_type, lambda b: _not_before(b, limit, start, step)), step))


def _not_before(b: Builder, limit: Value, start: Value, step: Value) -> Value:
    """The limit, or the start if that is after it in the direction of the step."""
    if step.is_constant:
        return b(ops.Max if step.numpy() > 0 else ops.Min, limit, start)
    rises = Term(b, step) > Term(b, b.scalar(0, step))
    return rises.choose(*(Term(b, b(op, limit, start)) for op in (ops.Max, ops.Min))).value


def _reaches(start: Value, limit: Value, rises: bool) -> bool:
    """Whether the limit is known to be in the direction of the step."""
    first, last = (start, limit) if rises else (limit, start)
    least, most = known_dims(first), known_dims(last)
    rest = most[0] - least[0] if least and most else None
    return (rest is not None and is_nonnegative(rest)) or facts_of(first).high <= facts_of(last).low


row(ops.Range, onnx="Range", lifts=False)


@lift_tfl("STABLEHLO_IOTA")
def _iota(b: Builder, node: Node) -> Value:
    """0, 1, ... along iota_dimension, in the shape and type of the result."""
    result, axis = node.result, int(node.attr("iota_dimension", 0))
    if not is_static(result.shape):
        raise UnsupportedError("the shape of the result is unknown", code="E-SHAPE-001")
    real = REAL_OF.get(result.dtype, result.dtype)
    made = b(ops.Iota, iota_dimension=axis, shape=result.shape, dtype=real)
    return made if real is result.dtype else b(ops.Complex, made, b.scalar(0, real))


@lift_tfl("FILL")
def _fill(b: Builder, node: Node) -> Value:
    return b(ops.BroadcastTo, reshape(b, node.operand(1), ()), node.operand(0))


@lift_onnx("EyeLike", since=(9, 22))
def _eye_like(b: Builder, node: Node) -> Value:
    """Ones on diagonal `k` above the main one: a constant, or Equal(column - row, k)."""
    x, k, number = node.operand(0), node.attributes.get("k", 0), node.attributes.get("dtype")
    dtype = x.dtype if number is None else dtype_from(number)
    rows, columns = x.shape
    row, column = (range_below(b, size, x) for size in (rows, columns))
    made = b.computed if is_static(x.shape) and rows * columns <= _MOST_WRITTEN_OUT else b
    diagonal = made(ops.Add, unsqueezed(b, row, [1]), np.asarray(k))
    return made(ops.Convert, made(ops.Compare, column, diagonal, comparison_direction="EQ"), dtype=dtype)
