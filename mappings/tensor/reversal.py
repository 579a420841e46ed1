"""Reversal of axes, entirely or up to a length per batch entry."""

from __future__ import annotations

import numpy as np

from onnxtfl.build.operands import on_permuted
from onnxtfl.build.rows import Entries, Spelled, row
from onnxtfl.build.runtime_axes import reversed_along
from onnxtfl.build.sizes import HUGE
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import as_int64
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Form, decompose, lift_tfl, lower_onnx


def _along_one(node: Node) -> bool:
    return len(node.attr("dimensions")) == 1


def _takes(node: Node) -> bool:
    lengths = node.operand(1)
    along = {node.attr("time_axis"), node.attr("batch_axis")}
    return along == {0, 1} and (lengths.is_constant or lengths.dtype is DType.INT64)


_REVERSED = {"dimensions": Entries("axes")}
row(
    ops.Reverse,
    tfl="REVERSE_V2",
    attributes=_REVERSED,
    when=_along_one,
    lifts=False,
)
_LAST = {"time_axis": Spelled("seq_dim", default=0), "batch_axis": Spelled("batch_dim", default=0)}
row(ops.ReverseSequence, tfl="REVERSE_SEQUENCE", attributes=_LAST, axes=tuple(_LAST), integers=(1,))
_FIRST = {"time_axis": Spelled("time_axis", default=0), "batch_axis": Spelled("batch_axis", default=1)}
row(ops.ReverseSequence, onnx="ReverseSequence", since=(10, 28), attributes=_FIRST, integers=(1,), when=_takes)


@lift_tfl("REVERSE_V2")
def _from_tfl_reverse(b: Builder, node: Node) -> Value:
    return reversed_along(b, node.operand(0), node.operand(1))


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


@decompose(ops.ReverseSequence, "onnx")
def _reverse_first_axes(b: Builder, node: Node) -> list[Value]:
    """Move the two axes to the front; convert the lengths to int64."""
    x, lengths = node.operand(0), node.operand(1)
    axes = [normalize_axis(node.attr(name), x.rank) for name in ("batch_axis", "time_axis")]
    if set(axes) != {0, 1}:
        return on_permuted(b, node, (*axes, *(i for i in range(x.rank) if i not in axes)))
    return b.many(node.op, x, as_int64(b, lengths), **node.attributes)
