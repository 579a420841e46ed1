"""Axes in reverse order, whole or up to a length per batch entry."""

from __future__ import annotations

import numpy as np

from onnxtfl.rules import *

decompose(ops.Reverse, "tfl", "elements")(moved_as_signed)
decompose(ops.ReverseSequence, "tfl", "elements")(moved_as_signed)


# --- Reverse ---------------------------------------------------------------------------------------------------------


@lower_tfl(ops.Reverse)
def _to_tfl_reverse(node: Node) -> Form | None:
    dimensions = node.attr("dimensions")
    return Form("REVERSE_V2", (node.operand(0), int32(dimensions))) if len(dimensions) == 1 else None


@decompose(ops.Reverse, "tfl", "axes")
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
