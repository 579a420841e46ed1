"""Reverse and ReverseSequence; Range and the triangles and diagonals made with them.

ONNX: ReverseSequence Range Trilu. TFLite: REVERSE_V2 REVERSE_SEQUENCE RANGE FILL ZEROS_LIKE MATRIX_DIAG
MATRIX_SET_DIAG.
"""

from __future__ import annotations

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.shapes import normalize_axes, normalize_axis, static_ints
from onnxtfl.ir.types import DType
from onnxtfl.rules import (
    HUGE,
    Form,
    as_int64,
    decompose,
    dim_value,
    dim_vector,
    int32,
    lift_onnx,
    lift_tfl,
    lower_onnx,
    lower_tfl,
    narrow,
    reshape,
    unsqueezed,
)

# --- Reverse ---------------------------------------------------------------------------------------------------------


@lower_tfl(ops.Reverse)
def _to_tfl_reverse(node: Node) -> Form | None:
    dimensions = node.attr("dimensions")
    return Form("REVERSE_V2", (node.operand(0), int32(dimensions))) if len(dimensions) == 1 else None


@decompose(ops.Reverse, "tfl")
def _reverse_one_by_one(b: Builder, node: Node) -> Value | None:
    x, dimensions = node.operand(0), node.attr("dimensions")
    if len(dimensions) == 1:
        return None
    for axis in dimensions:
        x = b(ops.Reverse, x, dimensions=(axis,))
    return x


@lower_onnx(ops.Reverse)
def _to_onnx_reverse(node: Node, opset: int) -> Form:
    axes = np.asarray(node.attr("dimensions"), np.int64)
    steps = np.full_like(axes, -1)
    return Form("Slice", (node.operand(0), steps, np.full_like(axes, -HUGE), axes, steps))


@lift_tfl("REVERSE_V2")
def _from_tfl_reverse(b: Builder, node: Node) -> Value:
    x, axes = node.operand(0), static_ints(node.operand(1))
    if axes is None:
        raise UnsupportedError("axes known only at run time")
    return b(ops.Reverse, x, dimensions=normalize_axes(axes, x.rank))


# --- ReverseSequence -------------------------------------------------------------------------------------------------


@lift_onnx("ReverseSequence", since=(10, 28))
def _reverse_sequence(b: Builder, node: Node) -> Value:
    axes = {"seq_axis": node.attr("time_axis", 0), "batch_axis": node.attr("batch_axis", 1)}
    return b(ops.ReverseSequence, node.operand(0), node.operand(1), **axes)


@lower_tfl(ops.ReverseSequence)
def _to_tfl_reverse_sequence(node: Node) -> Form:
    options = {"seq_dim": node.attr("seq_axis"), "batch_dim": node.attr("batch_axis")}
    return Form("REVERSE_SEQUENCE", (node.operand(0), narrow(node.operand(1))), options)


@lower_onnx(ops.ReverseSequence)
def _to_onnx_reverse_sequence(node: Node, opset: int) -> Form | None:
    seq, batch, lengths = node.attr("seq_axis"), node.attr("batch_axis"), node.operand(1)
    if {seq, batch} != {0, 1} or not (lengths.is_constant or lengths.dtype is DType.INT64):
        return None
    wide = np.asarray(lengths.numpy(), np.int64) if lengths.is_constant else lengths
    return Form("ReverseSequence", (node.operand(0), wide), {"time_axis": seq, "batch_axis": batch})


@decompose(ops.ReverseSequence, "onnx")
def _reverse_first_axes(b: Builder, node: Node) -> Value | None:
    """The two axes brought to the front, lengths to int64."""
    x, lengths = node.operand(0), node.operand(1)
    seq, batch = (normalize_axis(node.attr(name), x.rank) for name in ("seq_axis", "batch_axis"))
    wide = lengths if lengths.is_constant else as_int64(b, lengths)
    if {seq, batch} == {0, 1}:
        return None if wide is lengths else b(ops.ReverseSequence, x, wide, seq_axis=seq, batch_axis=batch)
    order = (batch, seq, *(i for i in range(x.rank) if i not in (seq, batch)))
    turned = b(ops.ReverseSequence, b(ops.Transpose, x, permutation=order), wide, seq_axis=1, batch_axis=0)
    return b(ops.Transpose, turned, permutation=tuple(int(i) for i in np.argsort(order)))


@lift_tfl("REVERSE_SEQUENCE")
def _from_tfl_reverse_sequence(b: Builder, node: Node) -> Value:
    x = node.operand(0)
    axes = {"seq_axis": node.attr("seq_dim", 0), "batch_axis": node.attr("batch_dim", 0)}
    return b(ops.ReverseSequence, x, node.operand(1), **{k: normalize_axis(v, x.rank) for k, v in axes.items()})


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


@lift_tfl("ZEROS_LIKE")
def _zeros_like(b: Builder, node: Node) -> Value:
    x = node.operand(0)
    return b(ops.BroadcastTo, b.scalar(0, x), dim_vector(b, x.shape, x))


# --- triangles and diagonals -----------------------------------------------------------------------------------------


@lift_onnx("Trilu", since=(14,))
def _trilu(b: Builder, node: Node) -> Value:
    return b(ops.Trilu, node.operand(0), node.optional(1), upper=bool(node.attr("upper", 1)))


@lower_onnx(ops.Trilu)
def _to_onnx_trilu(node: Node, opset: int) -> Form | None:
    if opset < 14:
        return None
    k = node.optional(1)
    wide = np.asarray(k.numpy(), np.int64).reshape(()) if k is not None and k.is_constant else k
    return Form("Trilu", (node.operand(0), *(() if wide is None else (wide,))), {"upper": int(node.attr("upper"))})


@decompose(ops.Trilu)
def _trilu_by_mask(b: Builder, node: Node) -> Value:
    """Select, where column minus row is on the right side of `k`."""
    x, k = node.operand(0), node.optional(1)
    rows, columns = x.shape[-2:]
    known = [0] if k is None else static_ints(k)
    if isinstance(rows, int) and isinstance(columns, int) and known is not None:
        distance = np.arange(columns)[None, :] - np.arange(rows)[:, None]
        keep = constant(distance >= known[0] if node.attr("upper") else distance <= known[0])
    else:
        down, right = (_counted(b, d, x) for d in (rows, columns))
        diagonal = b.scalar(0, DType.INT64) if k is None else as_int64(b, reshape(b, k, ()))
        distance_ = b(ops.Sub, unsqueezed(b, right, [0]), unsqueezed(b, down, [1]))
        keep = b(ops.Compare, distance_, diagonal, comparison_direction="GE" if node.attr("upper") else "LE")
    return b(ops.Select, keep, x, b.scalar(0, x))


def _counted(b: Builder, size: Dim, source: Value) -> Value:
    """0, 1, ... up to a size."""
    if isinstance(size, int):
        return constant(np.arange(size))
    limit = b(ops.Reshape, dim_value(b, size, source), np.zeros(0, np.int64))
    return b(ops.Range, b.scalar(0, limit), limit, b.scalar(1, limit))


def _on_diagonal(b: Builder, rows: Dim, columns: Dim, source: Value) -> Value:
    if isinstance(rows, int) and isinstance(columns, int):
        return constant(np.eye(rows, columns, dtype=bool))
    down, right = (_counted(b, d, source) for d in (rows, columns))
    return b(ops.Compare, unsqueezed(b, right, [0]), unsqueezed(b, down, [1]), comparison_direction="EQ")


@lift_tfl("MATRIX_DIAG")
def _matrix_diag(b: Builder, node: Node) -> Value:
    """The last axis laid on the diagonals of square matrices."""
    diagonal = node.operand(0)
    size = diagonal.shape[-1]
    return b(ops.Select, _on_diagonal(b, size, size, diagonal), unsqueezed(b, diagonal, [-1]), b.scalar(0, diagonal))


@lift_tfl("MATRIX_SET_DIAG")
def _matrix_set_diag(b: Builder, node: Node) -> Value:
    """Matrices with another diagonal."""
    x, diagonal = node.operand(0), node.operand(1)
    rows, columns = x.shape[-2:]
    laid = unsqueezed(b, diagonal, [-1])
    if isinstance(rows, int) and isinstance(columns, int) and rows > columns:
        laid = b(ops.Pad, laid, np.asarray([[0, 0]] * (x.rank - 2) + [[0, rows - columns], [0, 0]]))
    return b(ops.Select, _on_diagonal(b, rows, columns, x), laid, x)
