"""Sizes as values: Shape, Size and rank."""

from __future__ import annotations

from functools import partial

import numpy as np

from onnxtfl.build.rows import ResultType, row
from onnxtfl.build.sizes import HUGE, with_dtype
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Form, decompose, decompose_late, lift_onnx, lift_tfl, lower_onnx

# --- Shape, Size, rank -----------------------------------------------------------------------------------------------


@lift_onnx("Shape", since=(1, 13, 15, 19, 21, 23, 24, 25))
def _shape(b: Builder, node: Node) -> Value:
    x, start, end = node.operand(0), node.attr("start", 0), node.attr("end")
    if x.tensor_type.shape is None:
        whole = b(ops.Shape, x)
        limit = HUGE if end is None else end
        return whole if (start, end) == (0, None) else b(ops.Slice, whole, [start], [limit], [1])
    axes = tuple(range(x.rank)[start:end])
    return b(ops.Shape, x, axes=None if len(axes) == x.rank else axes)


@lift_onnx("Size", since=(1, 13, 19, 21, 23, 24, 25))
def _size(b: Builder, node: Node) -> Value:
    return b(ops.Reduce, b(ops.Shape, node.operand(0)), [0], kind="prod", keepdims=False)


def _is_whole(node: Node) -> bool:
    axes, rank = node.attr("axes"), node.operand(0).tensor_type.rank
    return axes is None or (rank is not None and tuple(axes) == tuple(range(rank)))


row(ops.Shape, tfl="SHAPE", attributes={"dtype": ResultType("out_type")}, when=_is_whole)
row(ops.Shape, onnx="Shape", fixed={"dtype": DType.INT64}, when=_is_whole, lifts=False)
decompose(ops.Shape)(partial(with_dtype, dtype=DType.INT64))


@lower_onnx(ops.Shape)
def _to_onnx_shape_of_axes(node: Node, opset: int) -> Form | None:
    """Shape-15 of a range of axes."""
    axes = tuple(node.attr("axes") or ())
    if _is_whole(node) or not axes or node.attr("dtype") is not DType.INT64:
        return None
    consecutive = axes == tuple(range(axes[0], axes[-1] + 1))
    return Form("Shape", (node.operand(0),), {"start": axes[0], "end": axes[-1] + 1}) if consecutive else None


@decompose_late(ops.Shape, "tfl", when=lambda node: node.attr("axes") is not None)
@decompose_late(ops.Shape, "onnx", when=lambda node: node.attr("axes") is not None)
def _shape_of_axes(b: Builder, node: Node) -> Value:
    """Gather the sizes of some axes from the whole shape, after layout assignment."""
    whole = b(ops.Shape, node.operand(0), dtype=node.attr("dtype"))
    return b(ops.Gather, whole, np.asarray(node.attr("axes"), np.int32), axis=0)


@lift_tfl("RANK")
def _rank(b: Builder, node: Node) -> Value:
    return constant(np.asarray(node.operand(0).rank, np.int32))
