"""Softmax, LogSoftmax and Hardmax, also their old versions, which flatten the operand to a matrix."""

from __future__ import annotations

from collections.abc import Callable

from onnxtfl.build.operands import finite_on_integers, formula, moved_last, on_permuted
from onnxtfl.build.rows import row
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import made_by
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.reshape import dim_value, reshape, reshape_inferred
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.ir.types import DType
from onnxtfl.kernels.softmax_int16 import int16_softmax
from onnxtfl.rewriting.registry import decompose, lift_onnx, lift_tfl

_Along = Callable[[Builder, Value, int], Value]


def _hardmax(b: Builder, x: Value, axis: int) -> Value:
    """Return 1 at the first maximum, 0 elsewhere."""
    if 0 in x.shape:
        return x
    largest = b(ops.ArgMax, x, axis=axis, keepdims=False)
    depth = reshape(b, dim_value(b, x.shape[axis], x), [])
    return b(ops.OneHot, largest, depth, b.scalar(1, x), b.scalar(0, x), axis=axis)


_OPS: dict[str, _Along] = {
    "onnx.Softmax": lambda b, x, axis: b(ops.Softmax, x, axis=axis),
    "onnx.LogSoftmax": lambda b, x, axis: b(ops.LogSoftmax, x, axis=axis),
    "onnx.Hardmax": _hardmax,
}


@lift_onnx("Softmax", since=(1, 11, 13))
@lift_onnx("LogSoftmax", since=(1, 11, 13))
@lift_onnx("Hardmax", since=(1, 11, 13))
def _lift(b: Builder, node: Node) -> Value:
    """Version 13 computes along one axis, versions 1 and 11 along all axes from `axis`, merged."""
    x, along = node.operand(0), _OPS[node.op.name]
    if node.op.version >= 13:
        axis = node.attributes.get("axis", -1)
        return along(b, x, axis if x.tensor_type.rank is None else normalize_axis(axis, x.rank))
    axis = node.attributes.get("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    if axis < x.rank and product(x.shape[axis + 1 :]) == 1:
        return along(b, x, axis)
    flat = reshape_inferred(b, x, [*x.shape[:axis], -1])
    return reshape(b, along(b, flat, axis), x.shape, x)


@lift_tfl("SOFTMAX")
def _softmax_tfl(b: Builder, node: Node) -> Value:
    """Reproduce the int16 kernel, whose result differs from the function by dozens of steps.

    ONNX Runtime's uint8 kernel returns 0 for the only element of an axis of size 1, so that kernel is avoided there.
    """
    beta, x = finite_on_integers(node, "beta"), Term(b, node.operand(0))
    stored = quantization_of(node.operand(0))
    if stored is not None and x.value.shape[-1] == 1:
        return (x * 0.0 + 1.0).value
    found = int16_softmax(b, node, beta) or (x * beta).apply(ops.Softmax).value
    if stored is None or stored.dtype is not DType.UINT8 or is_static(x.value.shape[-1:]):
        return found
    return Term(b, found).min(255 / 256).value


@lift_tfl("LOG_SOFTMAX")
def _log_softmax_tfl(b: Builder, node: Node) -> Value:
    """Compute along the last axis; a scalar is treated as one element."""
    x = node.operand(0)
    return reshape(b, b(ops.LogSoftmax, x if x.rank else reshape(b, x, (1,)), axis=-1), x.shape, x)


def _is_last(node: Node) -> bool:
    return node.attr("axis") in (-1, (node.operand(0).tensor_type.rank or 0) - 1)


row(ops.Softmax, onnx="Softmax", attributes="axis", lifts=False)
row(ops.LogSoftmax, onnx="LogSoftmax", attributes="axis", lifts=False)
row(ops.Softmax, tfl="SOFTMAX", fixed_tfl={"beta": 1.0}, when=_is_last, lifts=False)
row(ops.LogSoftmax, tfl="LOG_SOFTMAX", when=_is_last, lifts=False)


def _log_softmax(x: Term, *, axis: int) -> Term:
    """x - max - log(sum(exp(x - max))): neither the GPU accelerator nor XNNPACK has LOG_SOFTMAX."""
    shifted = x - x.reduce("max", [axis])
    return shifted - shifted.exp().reduce("sum", [axis]).log()


for _target in ("gpu", "xnnpack"):
    formula(ops.LogSoftmax, _target)(_log_softmax)


_LEAST = -65504.0
"""The lowest float16: its exponential is 0 beside that of any element that is not masked."""


@decompose(ops.Softmax, "gpu", order="operands", when=lambda node: made_by(node.operand(0), ops.Max) is None)
def _of_a_mask(b: Builder, node: Node) -> Value:
    """Softmax(Max(x, least)): the accelerator's sums begin with NaN where the first elements are -inf, as in masks."""
    return Term(b, node.operand(0)).max(_LEAST).apply(ops.Softmax, axis=node.attr("axis")).value


@decompose(ops.Softmax, "tfl")
@decompose(ops.LogSoftmax, "tfl")
def _on_last_axis(b: Builder, node: Node) -> Value | list[Value] | None:
    """Move the axis last, where the kernels compute; layout assignment may merge these transposes."""
    x = node.operand(0)
    if x.rank < 2:
        return reshape(b, b(node.op, reshape_inferred(b, x, [1, x.shape[0]]), axis=1), x.shape, x) if x.rank else None
    if not _is_last(node):
        return on_permuted(b, node, moved_last(normalize_axis(node.attr("axis"), x.rank), x.rank))
    return reshape(b, b(node.op, reshape_inferred(b, x, [-1, x.shape[-1]]), axis=1), x.shape, x) if x.rank > 2 else None
