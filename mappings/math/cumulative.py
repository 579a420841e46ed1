"""Cumulative sums and products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxtfl.build.rows import Spelled, row
from onnxtfl.build.sizes import int32_operands
from onnxtfl.build.uint64 import on_signed
from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static, known_size
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import Op
from onnxtfl.ir.reshape import broadcast, reshape
from onnxtfl.ir.shapes import normalize_axis, static_ints
from onnxtfl.rewriting.registry import decompose, lift_onnx

_FLAGS = {name: Spelled(name, default=False) for name in ("exclusive", "reverse")}
row(ops.CumSum, onnx="CumSum", since=(11, 14), attributes=_FLAGS, integers=(1,))
row(ops.CumSum, tfl="CUMSUM", attributes="exclusive reverse", integers=(1,))
decompose(ops.CumSum, "tfl", "operands")(int32_operands(1))
decompose(ops.CumSum, "onnx", "elements")(on_signed)


@lift_onnx("CumProd", since=(26,))
def _cumprod(b: Builder, node: Node) -> Value:
    """For a dynamic axis, compute along each axis and select."""
    x, where = node.operand(0), static_ints(node.operand(1))
    exclusive, reverse = bool(node.attributes.get("exclusive", 0)), bool(node.attributes.get("reverse", 0))
    if where is not None:
        return _products(b, x, normalize_axis(where[0], x.rank), exclusive, reverse)
    return _along_computed_axis(b, node, lambda axis: _products(b, x, axis, exclusive, reverse))


def _along_computed_axis(b: Builder, node: Node, along: Callable[[int], Value]) -> Value:
    """Compute along each axis, and select by the axis in operand 1."""
    rank = node.operand(0).rank
    axis = Term(b, reshape(b, node.operand(1), [])) % rank
    chosen = Term(b, along(0))
    for i in range(1, rank):
        chosen = axis.equals(i).choose(Term(b, along(i)), chosen)
    return chosen.value


@decompose(ops.CumSum, "gpu", when=lambda node: static_ints(node.operand(1)) is None)
def _sums_along_computed_axis(b: Builder, node: Node) -> Value:
    """The accelerator has no CUMSUM, and the sums by doubling are along a known axis."""
    x = node.operand(0)
    return _along_computed_axis(b, node, lambda axis: b(ops.CumSum, x, np.asarray(axis), **node.attributes))


def _has_known_length(node: Node) -> bool:
    where = static_ints(node.operand(1))
    return where is not None and not node.operand(0).is_quantized and is_static([node.operand(0).shape[where[0]]])


@decompose(ops.CumSum, "tfl", order="axes", when=lambda node: _has_known_length(node) and node.result.dtype.is_integer)
@decompose(ops.CumSum, "gpu", order="axes", when=_has_known_length)
def _sums_by_doubling(b: Builder, node: Node) -> Value:
    """Compute sums by doubling: TFLite Micro's CUMSUM has only floats, and the GPU accelerator has none."""
    x, where = node.operand(0), static_ints(node.operand(1)) or [0]
    axis = normalize_axis(where[0], x.rank)
    return _doubled(b, x, _Running(ops.Add, 0, axis, bool(node.attr("reverse"))), bool(node.attr("exclusive")))


def _products(b: Builder, x: Value, axis: int, exclusive: bool, reverse: bool) -> Value:
    return _doubled(b, x, _Running(ops.Mul, 1, axis, reverse), exclusive)


@dataclass(frozen=True)
class _Running:
    """A cumulative op with a neutral element along an axis, from its end if `reverse`."""

    op: type[Op]
    neutral: int
    axis: int
    reverse: bool


def _doubled(b: Builder, x: Value, running: _Running, exclusive: bool) -> Value:
    """Compute by doubling: step i combines each element with the one 2**i positions before."""
    step, size = 1, known_size(x.shape[running.axis], "the size of an axis with running products")
    result = _moved_along(b, x, running, 1) if exclusive else x
    while step < size:
        result = b(running.op, result, _moved_along(b, result, running, step))
        step *= 2
    return result


def _moved_along(b: Builder, x: Value, running: _Running, step: int) -> Value:
    """Shift `x` by `step` along the axis and fill with the neutral element."""
    axis, reverse, neutral = running.axis, running.reverse, b.scalar(running.neutral, x)
    size = x.size(axis)
    room = broadcast(b, neutral, [step if i == axis else d for i, d in enumerate(x.shape)], x)
    if step >= size:
        return broadcast(b, neutral, x.shape, x)
    parts = b.many(ops.Split, x, [step, size - step] if reverse else [size - step, step], axis=axis)
    return b(ops.Concatenate, *((parts[1], room) if reverse else (room, parts[0])), axis=axis)
