"""Softmax, LogSoftmax and Hardmax, with their old forms that read the operand as a matrix."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from onnxtfl.rules import *

_Along = Callable[[Builder, Value, int], Value]


def _softmax(b: Builder, x: Value, axis: int, op: type[Op]) -> Value:
    return b(op, x, axis=axis)


def _hardmax(b: Builder, x: Value, axis: int) -> Value:
    """One at the first of the largest, zero elsewhere."""
    largest = b(ops.ArgMax, x, axis=axis)
    depth = reshape(b, dim_value(b, x.shape[axis], x), [])
    return b(ops.OneHot, largest, depth, b.scalar(1, x), b.scalar(0, x), axis=axis)


def _lift(b: Builder, node: Node, along: _Along) -> Value:
    """Version 13 runs along one axis, 1 and 11 along all from `axis` on."""
    x = node.operand(0)
    if node.op.version >= 13:
        axis = node.attributes.get("axis", -1)
        return along(b, x, axis if x.tensor_type.rank is None else normalize_axis(axis, x.rank))
    axis = node.attributes.get("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    if axis < x.rank and product(x.shape[axis + 1 :]) == 1:
        return along(b, x, axis)
    if axis == x.rank - 1:
        return along(b, x, axis)
    return _along_all_from(b, x, axis, along)


def _along_all_from(b: Builder, x: Value, axis: int, along: _Along) -> Value:
    """The axes from `axis` on as one, which is restored afterwards."""
    flat = resized(b, x, [*x.shape[:axis], -1])
    return reshape(b, along(b, flat, axis), x.shape, x)


_OPS: tuple[tuple[str, _Along], ...] = (
    ("Softmax", partial(_softmax, op=ops.Softmax)),
    ("LogSoftmax", partial(_softmax, op=ops.LogSoftmax)),
    ("Hardmax", _hardmax),
)
for _name, _along in _OPS:
    lift_onnx(_name, since=(1, 11, 13))(partial(_lift, along=_along))


@lift_tfl("SOFTMAX")
def _softmax_tfl(b: Builder, node: Node) -> Value:
    x, beta = Term(b, node.operand(0)), float(node.attr("beta", 0.0))
    return (x if beta == 1.0 else x * beta).apply(ops.Softmax, axis=-1).value


@lift_tfl("LOG_SOFTMAX")
def _log_softmax_tfl(b: Builder, node: Node) -> Value:
    return b(ops.LogSoftmax, node.operand(0), axis=-1)


def _is_last(node: Node) -> bool:
    rank = node.operand(0).tensor_type.rank
    return node.attr("axis") == -1 or (rank is not None and node.attr("axis") == rank - 1)


@lower_tfl(ops.Softmax)
def _softmax_form(node: Node) -> Form | None:
    return Form("SOFTMAX", (node.operand(0),), {"beta": 1.0}) if _is_last(node) else None


@lower_tfl(ops.LogSoftmax)
def _log_softmax_form(node: Node) -> Form | None:
    return Form("LOG_SOFTMAX", (node.operand(0),)) if _is_last(node) else None


@lower_onnx(ops.Softmax)
def _softmax_onnx(node: Node, opset: int) -> Form:
    return Form("Softmax", (node.operand(0),), {"axis": node.attr("axis")})


@lower_onnx(ops.LogSoftmax)
def _log_softmax_onnx(node: Node, opset: int) -> Form:
    return Form("LogSoftmax", (node.operand(0),), {"axis": node.attr("axis")})


def _on_last_axis(b: Builder, node: Node) -> Value | None:
    """The kernels run along the last axis; layout takes part in these transposes. A scalar is a vector of one."""
    x = node.operand(0)
    rank = x.rank
    if rank < 2:
        return None
    if _is_last(node):
        rows = b(node.op, resized(b, x, [-1, x.shape[-1]]), axis=1) if rank > 2 else None
        return None if rows is None else reshape(b, rows, x.shape, x)
    axis = normalize_axis(node.attr("axis"), rank)
    swap = [i for i in range(rank) if i != axis] + [axis]
    back = tuple(int(i) for i in np.argsort(swap))
    last = b(node.op, b(ops.Transpose, x, permutation=tuple(swap)), axis=rank - 1)
    return b(ops.Transpose, last, permutation=back)


decompose(ops.Softmax, "tfl")(_on_last_axis)
decompose(ops.LogSoftmax, "tfl")(_on_last_axis)
