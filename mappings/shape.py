"""Sizes as values: Shape, Size and rank."""

from __future__ import annotations

import numpy as np

from onnxtfl.rules import *

# --- Shape, Size, rank -----------------------------------------------------------------------------------------------


@lift_onnx("Shape", since=(1, 13, 15, 19, 21, 23, 24, 25))
def _shape(b: Builder, node: Node) -> Value:
    x, start, end = node.operand(0), node.attr("start", 0), node.attr("end")
    if x.tensor_type.shape is None:
        if start == 0 and end is None:
            return b(ops.Shape, x)
        return b(ops.Slice, b(ops.Shape, x), [start], [(1 << 62) if end is None else end], [1])
    axes = tuple(range(x.rank)[slice(start, end)])
    return b(ops.Shape, x) if len(axes) == x.rank else b(ops.Shape, x, axes=axes)


@lift_onnx("Size", since=(1, 13, 19, 21, 23, 24, 25))
def _size(b: Builder, node: Node) -> Value:
    return b(ops.Reduce, b(ops.Shape, node.operand(0)), [0], kind="prod", keepdims=False)


@lower_tfl(ops.Shape)
def _to_tfl_shape(node: Node) -> Form | None:
    if node.attr("axes") is not None and tuple(node.attr("axes")) != tuple(range(node.operand(0).rank)):
        return None
    return Form("SHAPE", (node.operand(0),), {"out_type": node.attr("dtype").name})


@lower_onnx(ops.Shape)
def _to_onnx_shape(node: Node, opset: int) -> Form | None:
    axes, rank = node.attr("axes"), node.operand(0).tensor_type.rank
    if node.attr("dtype") is not DType.INT64:
        return None
    if axes is None or (rank is not None and tuple(axes) == tuple(range(rank))):
        return Form("Shape", (node.operand(0),))
    if opset >= 15 and axes and tuple(axes) == tuple(range(axes[0], axes[-1] + 1)):
        return Form("Shape", (node.operand(0),), {"start": axes[0], "end": axes[-1] + 1})
    return None


@decompose(ops.Shape)
def _shape_of_other_width(b: Builder, node: Node) -> Value | None:
    if node.attr("axes") is not None or node.attr("dtype") is DType.INT64:
        return None
    return b(ops.Convert, b(ops.Shape, node.operand(0)), dtype=node.attr("dtype"))


@decompose_late(ops.Shape, "tfl", when=lambda node: node.attr("axes") is not None)
@decompose_late(ops.Shape, "onnx", when=lambda node: node.attr("axes") is not None)
def _shape_of_axes(b: Builder, node: Node) -> Value:
    """Some axes, or all in another order: gathered from the whole shape, once it is known how the operand lies."""
    whole = b(ops.Shape, node.operand(0), dtype=node.attr("dtype"))
    return b(ops.Gather, whole, np.asarray(node.attr("axes"), np.int32), axis=0)


@lift_tfl("SHAPE")
def _from_tfl_shape(b: Builder, node: Node) -> Value:
    return b(ops.Shape, node.operand(0), dtype=node.results[0].dtype)


@lift_tfl("RANK")
def _rank(b: Builder, node: Node) -> Value:
    return constant(np.asarray(node.operand(0).rank, np.int32))
