"""Reshape, Transpose, BroadcastTo, Shape and Size: one tensor, its axes only.

ONNX: Reshape Flatten Squeeze Unsqueeze Transpose Expand Shape Size. TFLite: RESHAPE SQUEEZE EXPAND_DIMS TRANSPOSE
BROADCAST_TO BROADCAST_ARGS SHAPE RANK.
"""

from __future__ import annotations

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import product
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.shapes import known_dims, normalize_axes, static_ints
from onnxtfl.ir.types import DType
from onnxtfl.rules import (
    Form,
    append_operand,
    broadcast,
    decompose,
    decompose_late,
    dim_vector,
    int32,
    lift_onnx,
    lift_tfl,
    lower_onnx,
    lower_tfl,
    merged_shape,
    narrow,
    reshape,
    resized,
    unsqueezed,
    upgrade,
    with_int32,
)

# --- Reshape ---------------------------------------------------------------------------------------------------------


@upgrade("Reshape", since=(1,))
def _reshape_1(b: Builder, node: Node) -> None:
    append_operand(node, constant(np.asarray(node.attributes.pop("shape", ()), np.int64)))


@lift_onnx("Reshape", since=(5, 13, 14, 19, 21, 23, 24, 25))
def _reshape(b: Builder, node: Node) -> Value:
    """A 0 copies the operand's size (unless allowzero), -1 is what is left."""
    x, shape = node.operand(0), node.operand(1)
    copies = not node.attr("allowzero", 0)
    dims = known_dims(shape)
    if dims is None or _may_be_anything(shape):
        return b(ops.Reshape, x, _copied_at_run_time(b, x, shape) if copies else shape)
    if copies and 0 in dims:
        if x.tensor_type.shape is None:
            raise UnsupportedError("sizes cannot be copied from a tensor of unknown rank")
        dims = [x.shape[i] if d == 0 else d for i, d in enumerate(dims)]
    return resized(b, x, dims, shape)


def _may_be_anything(shape: Value) -> bool:
    """Whether the sizes come straight from an input of the graph, so that zeros may be among them."""
    if shape.is_constant:
        return False
    node = shape.producer
    if node is None:
        return True
    moving = (ops.Concatenate, ops.Reshape, ops.Slice, ops.Gather, ops.Convert)
    return node.op in moving and any(_may_be_anything(v) for v in node.operands[:1] if v is not None)


def _copied_at_run_time(b: Builder, x: Value, shape: Value) -> Value:
    """The vector with the operand's sizes in the place of zeros."""
    length = shape.tensor_type.shape
    if x.tensor_type.shape is not None and length is not None and isinstance(length[0], int):
        own = dim_vector(b, [*x.shape, *(1,) * length[0]][: length[0]], x)
    else:
        padded = b(ops.Concatenate, b(ops.Shape, x), [1] * 8, axis=0)
        own = b(ops.Slice, padded, [0], b(ops.Shape, shape), [1])
    is_zero = b(ops.Compare, shape, b.scalar(0, shape), comparison_direction="EQ")
    return b(ops.Select, is_zero, own, shape)


@lift_onnx("Flatten", since=(1, 9, 11, 13, 21, 23, 24, 25))
def _flatten(b: Builder, node: Node) -> Value:
    x, axis = node.operand(0), node.attr("axis", 1)
    if x.tensor_type.shape is None:
        if axis != 0:
            raise UnsupportedError("a tensor of unknown rank cannot be flattened", hint="give --input-shape")
        return b(ops.Reshape, x, [1, -1])
    axis = axis + x.rank if axis < 0 else axis
    return reshape(b, x, (product(x.shape[:axis]), product(x.shape[axis:])))


@upgrade("Squeeze", since=(1, 11))
@upgrade("Unsqueeze", since=(1, 11))
def _axes_to_operand(b: Builder, node: Node) -> None:
    if "axes" in node.attributes:
        append_operand(node, constant(np.asarray(node.attributes.pop("axes"), np.int64)))


@lift_onnx("Squeeze", since=(13, 21, 23, 24, 25))
def _squeeze(b: Builder, node: Node) -> Value:
    x, axes = node.operand(0), node.optional(1)
    if x.tensor_type.shape is None:
        raise UnsupportedError("a tensor of unknown rank cannot be squeezed", hint="give --input-shape")
    if axes is None:
        return reshape(b, x, [d for d in x.shape if d != 1])
    known = static_ints(axes)
    if known is None:
        return _squeeze_at_run_time(b, x, axes)
    gone = normalize_axes(known, x.rank)
    if any(isinstance(x.shape[a], int) and x.shape[a] != 1 for a in gone):
        raise ValueError(f"axes {known} of {x.shape} are not all 1")
    return reshape(b, x, [d for i, d in enumerate(x.shape) if i not in gone])


def _marks(b: Builder, axes: Value, rank: int) -> Value:
    """For each of `rank` axes, whether it is among those of the vector `axes` (which may be negative), as int64."""
    places = b(ops.FloorMod, axes, b.scalar(rank, axes))
    one, zero = b.scalar(1, DType.INT64), b.scalar(0, DType.INT64)
    rows = b(ops.OneHot, places, b.scalar(rank, DType.INT64), one, zero, axis=-1)
    return b(ops.Reduce, rows, [0], kind="max", keepdims=False)


def _count(vector: Value) -> int:
    shape = vector.tensor_type.shape
    if shape is None or len(shape) != 1 or not isinstance(shape[0], int):
        raise UnsupportedError("the number of axes has to be known before run time")
    return shape[0]


def _squeeze_at_run_time(b: Builder, x: Value, axes: Value) -> Value:
    kept = b(ops.Sub, b.scalar(1, DType.INT64), _marks(b, axes, x.rank))
    places = b(ops.Reshape, b(ops.NonZero, kept), [x.rank - _count(axes)])
    return b(ops.Reshape, x, b(ops.Gather, dim_vector(b, x.shape, x), places, axis=0))


@lift_onnx("Unsqueeze", since=(13, 21, 23, 24, 25))
def _unsqueeze(b: Builder, node: Node) -> Value:
    x, axes = node.operand(0), node.operand(1)
    if x.tensor_type.shape is None:
        raise UnsupportedError("a tensor of unknown rank cannot be unsqueezed", hint="give --input-shape")
    known = static_ints(axes)
    if known is None:
        return _unsqueeze_at_run_time(b, x, axes)
    return unsqueezed(b, x, known)


def _unsqueeze_at_run_time(b: Builder, x: Value, axes: Value) -> Value:
    rank = x.rank + _count(axes)
    marks = _marks(b, axes, rank)
    kept = b(ops.Sub, b.scalar(1, DType.INT64), marks)
    order = b(ops.CumSum, kept, b.scalar(0, DType.INT64), exclusive=True, reverse=False)
    sizes = b(ops.Gather, dim_vector(b, [*x.shape, 1], x), order, axis=0)
    is_new = b(ops.Compare, marks, b.scalar(1, marks), comparison_direction="EQ")
    return b(ops.Reshape, x, b(ops.Select, is_new, b.scalar(1, sizes), sizes))


@lower_tfl(ops.Reshape)
def _to_tfl_reshape(node: Node) -> Form:
    shape = node.result.tensor_type.shape
    target: object = narrow(node.operand(1))
    if shape is not None and all(isinstance(d, int) for d in shape):
        target = int32([d for d in shape if isinstance(d, int)])
    return Form("RESHAPE", (node.operand(0), target), {})  # type: ignore[arg-type]


@lower_onnx(ops.Reshape)
def _to_onnx_reshape(node: Node, opset: int) -> Form:
    target = node.operand(1)
    if target.is_constant:
        numbers = np.asarray(target.numpy(), np.int64)
        zero = bool((numbers == 0).any())
        if zero and opset < 14:
            return Form("Reshape", (node.operand(0), _without_zeros(node)))
        return Form("Reshape", (node.operand(0), numbers), {"allowzero": 1} if zero else {})
    sizes = known_dims(target) is not None and not _may_be_anything(target)
    return Form("Reshape", (node.operand(0), target), {} if sizes or opset < 14 else {"allowzero": 1})


def _without_zeros(node: Node) -> Array:
    """Before opset 14 a size of 0 can only be copied, or come out of -1."""
    numbers = np.asarray(node.operand(1).numpy(), np.int64)
    shape = node.operand(0).shape
    copied = [i < len(shape) and n == 0 and shape[i] == 0 for i, n in enumerate(numbers)]
    return np.asarray([-1 if n == 0 and not c else n for n, c in zip(numbers, copied, strict=True)], np.int64)


@decompose(ops.Reshape, "tfl")
def _narrow_reshape(b: Builder, node: Node) -> list[Value] | None:
    return with_int32(b, node, 1)


@decompose(ops.BroadcastTo, "tfl")
def _narrow_broadcast(b: Builder, node: Node) -> list[Value] | None:
    return with_int32(b, node, 1)


@lift_tfl("RESHAPE")
def _from_tfl_reshape(b: Builder, node: Node) -> Value:
    x, shape = node.operand(0), node.optional(1)
    if shape is None:
        return resized(b, x, [int(d) for d in node.attr("new_shape", ())])
    dims = static_ints(shape)
    if dims is None:
        return b(ops.Reshape, x, shape)
    if shape.rank > 1:  # a shape of [1, 0] means a scalar in old files
        dims = []
    return resized(b, x, dims, shape)


@lift_tfl("SQUEEZE")
def _from_tfl_squeeze(b: Builder, node: Node) -> Value:
    x, axes = node.operand(0), tuple(node.attr("squeeze_dims", ()) or ())
    gone = normalize_axes(axes, x.rank) if axes else [i for i, d in enumerate(x.shape) if d == 1]
    return reshape(b, x, [d for i, d in enumerate(x.shape) if i not in gone])


@lift_tfl("EXPAND_DIMS")
def _from_tfl_expand_dims(b: Builder, node: Node) -> Value:
    axis = static_ints(node.operand(1))
    if axis is None:
        return _unsqueeze_at_run_time(b, node.operand(0), b(ops.Reshape, node.operand(1), [1]))
    return unsqueezed(b, node.operand(0), axis)


# --- Transpose -------------------------------------------------------------------------------------------------------


@lift_onnx("Transpose", since=(1, 13, 21, 23, 24, 25))
def _transpose(b: Builder, node: Node) -> Value:
    x, permutation = node.operand(0), node.attributes.get("perm")
    if permutation is None:
        if x.tensor_type.shape is None:
            raise UnsupportedError("the axes of a tensor of unknown rank cannot be reversed", hint="give --input-shape")
        permutation = tuple(reversed(range(x.rank)))
    return b(ops.Transpose, x, permutation=tuple(permutation))


@lift_tfl("TRANSPOSE")
def _from_tfl_transpose(b: Builder, node: Node) -> Value:
    x, permutation = node.operand(0), static_ints(node.operand(1))
    if permutation is None:
        raise UnsupportedError("a permutation known only at run time")
    return b(ops.Transpose, x, permutation=normalize_axes(permutation, len(permutation)))


@lower_tfl(ops.Transpose)
def _to_tfl_transpose(node: Node) -> Form:
    return Form("TRANSPOSE", (node.operand(0), int32(node.attr("permutation"))))


@decompose(ops.Transpose, "tfl")
def _transpose_fewer_axes(b: Builder, node: Node) -> Value | None:
    """Axes that stay together merged; where that is not enough, two that end up together are brought so first."""
    x, axes = node.operand(0), tuple(node.attr("permutation"))
    if x.tensor_type.shape is None:
        return None
    together: list[list[int]] = []
    for axis in axes:
        if together and together[-1][-1] + 1 == axis:
            together[-1].append(axis)
        else:
            together.append([axis])
    if len(together) == len(axes):
        return _transpose_in_two(b, x, axes) if len(axes) > 4 else None
    sources = sorted(together)
    merged = reshape(b, x, merged_shape(x.shape, sources))
    moved = b(ops.Transpose, merged, permutation=tuple(sources.index(g) for g in together))
    return reshape(b, moved, node.result.shape, x)


def _transpose_in_two(b: Builder, x: Value, axes: tuple[int, ...]) -> Value:
    """The axis that comes second in the end moved behind the one that comes first; then these are one."""
    order = [a for a in range(len(axes)) if a != axes[1]]
    order.insert(order.index(axes[0]) + 1, axes[1])
    near = b(ops.Transpose, x, permutation=tuple(order))
    return b(ops.Transpose, near, permutation=tuple(order.index(a) for a in axes))


@lower_onnx(ops.Transpose)
def _to_onnx_transpose(node: Node, opset: int) -> Form:
    return Form("Transpose", (node.operand(0),), {"perm": tuple(node.attr("permutation"))})


# --- BroadcastTo -----------------------------------------------------------------------------------------------------


@lift_onnx("Expand", since=(8, 13))
def _expand(b: Builder, node: Node) -> Value:
    x, shape = node.operand(0), node.operand(1)
    known = known_dims(shape)
    if known is not None and not _may_be_anything(shape) and x.tensor_type.shape is not None:
        return broadcast(b, x, known, shape)
    return b(ops.BroadcastTo, x, _joint_shape(b, x, shape))


def _joint_shape(b: Builder, x: Value, asked: Value) -> Value:
    """What the operand's shape and a vector of sizes broadcast to, at run time: the larger ones."""
    own = x.tensor_type.shape
    if own is not None and all(d == 1 for d in own) and len(own) <= _count(asked):
        return asked
    if own is None:
        raise UnsupportedError("a tensor of unknown rank cannot be expanded", hint="give --input-shape")
    rank = max(len(own), _count(asked))
    if rank > _count(asked):
        asked = b(ops.Concatenate, [1] * (rank - _count(asked)), asked, axis=0)
    return b(ops.Max, dim_vector(b, (1,) * (rank - len(own)) + own, x), asked)


@lower_tfl(ops.BroadcastTo)
def _to_tfl_broadcast(node: Node) -> Form:
    return Form("BROADCAST_TO", (node.operand(0), narrow(node.operand(1))))


@lower_onnx(ops.BroadcastTo)
def _to_onnx_expand(node: Node, opset: int) -> Form:
    target = node.operand(1)
    return Form("Expand", (node.operand(0), np.asarray(target.numpy(), np.int64) if target.is_constant else target))


@lift_tfl("BROADCAST_TO")
def _from_tfl_broadcast(b: Builder, node: Node) -> Value:
    return b(ops.BroadcastTo, node.operand(0), node.operand(1))


@lift_tfl("BROADCAST_ARGS")
def _broadcast_args(b: Builder, node: Node) -> Value:
    """The shape that two shapes broadcast to."""
    first, second = node.operand(0), node.operand(1)
    rank = max(_count(first), _count(second))
    padded = [b(ops.Pad, v, np.asarray([[rank - _count(v), 0]]), b.scalar(1, v)) for v in (first, second)]
    is_one = b(ops.Compare, padded[0], b.scalar(1, padded[0]), comparison_direction="EQ")
    return b(ops.Select, is_one, padded[1], padded[0])


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
    return size(b, node.operand(0), DType.INT64)


def size(b: Builder, x: Value, dtype: DType) -> Value:
    """The number of elements, of rank 0."""
    return b(ops.Reduce, b(ops.Shape, x, dtype=dtype), [0], kind="prod", keepdims=False)


@decompose(ops.Size)
def _size_of(b: Builder, node: Node) -> Value:
    return size(b, node.operand(0), node.attr("dtype"))


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
