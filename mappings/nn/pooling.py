"""Pooling.

==============  =============================================================================================
ONNX            MaxPool 1 8 10 11 12 22, AveragePool 1 7 10 11 19 22, GlobalMaxPool, GlobalAveragePool 1 22,
                LpPool 1 2 11 18 22, GlobalLpPool 1 2 22, com.microsoft NhwcMaxPool
TFLite          MAX_POOL_2D, AVERAGE_POOL_2D, L2_POOL_2D
==============  =============================================================================================

A window that covers the whole input is a Reduce (MEAN, REDUCE_MAX): such pools are what ONNX calls global.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnxtfl.mappings.nn.pool_indices import in_fortran_order, pool_with_indices

from onnxtfl.build.convolutions import first, window_attributes
from onnxtfl.build.open_windows import (
    Amounts,
    bare,
    cropped,
    ends_at_run_time,
    fitted,
    grown,
    padding_at_run_time,
    same_padding_at_run_time,
    spatial_ones,
    without_unread,
)
from onnxtfl.build.qlinear import MICROSOFT, QLinearRow, Quantized, channels_second, channels_trailing, lifted, qlinear
from onnxtfl.build.qoperator import qoperator
from onnxtfl.build.rows import activated
from onnxtfl.build.sizes import sliced
from onnxtfl.build.windows import (
    empty_counts,
    onnx_attributes,
    onnx_window,
    padded,
    padding_after,
    tfl_padding,
    tfl_strides,
    tfl_window,
    with_same_padding,
    without_negative_padding,
)
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import product, static
from onnxtfl.ir.facts import never_negative
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.numeric import lowest
from onnxtfl.ir.op import Op, attributes_of
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.reshape import broadcast, positions, reshape, with_unit_axis
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.rewriting.declared import as_declared
from onnxtfl.rewriting.registry import Computed, Form, decompose, lift_onnx, lift_tfl, lower_onnx, lower_tfl, upgrade


def pool_attributes(window: Window, dims: Sequence[int]) -> dict[str, Any]:
    """`window` over the axes `dims` in the attributes of the neutral pools."""
    return {
        "dims": tuple(dims),
        "kernel_shape": window.shape,
        "strides": window.strides,
        "padding": window.padding,
        "dilations": window.dilations,
        "auto_pad": window.auto_pad,
        "ceil_mode": window.ceil,
    }


def covers(window: Window, sizes: Sequence[Any]) -> bool:
    """Whether the only position of the window sees the whole input; with ceil_mode the window may be larger."""
    if window.auto_pad != "NOTSET" or any(window.padding):
        return False
    return all(
        k == n or (window.ceil and isinstance(n, int) and n < k < n + stride)
        for k, n, stride in zip(window.shape, sizes, window.strides, strict=True)
    ) and all(d == 1 or k == 1 for d, k in zip(window.dilations, window.shape, strict=True))


def pooled(b: Builder, op: type[Op], x: Value, window: Window, dims: Sequence[int], **attributes: Any) -> Value:
    """The pool `op`; a Reduce where the window covers the whole input."""
    if covers(window, [x.shape[d] for d in dims]):
        return b(ops.Reduce, x, list(dims), kind="max" if op is ops.MaxPool else "mean", keepdims=True)
    return b(op, x, **pool_attributes(window, dims), **attributes)


def _pool_of(b: Builder, node: Node, value: float = 0.0, x: Value | None = None) -> tuple[Value, Window, list[int]]:
    """The operand, or `x` of its shape instead, the window and the spatial axes of an ONNX pool.

    Padding of SAME that only a run can tell is in the operand already: zeros or `value`.
    """
    x, shape = x or node.operand(0), node.attr("kernel_shape")
    sizes, dims = x.shape[2:], list(range(2, x.rank))
    window = onnx_window(node, shape, sizes)
    if any(p >= k for p, k in zip(node.attr("pads", ()), (*shape, *shape), strict=False)):
        raise ValueError(f"padding {tuple(node.attr('pads'))} has to be smaller than the window {tuple(shape)}")
    amounts = _open_padding(b, node, window)
    if amounts is not None:
        return grown(b, cropped(b, x, dims, amounts), dims, amounts, value), bare(window), dims
    if (node.attr("auto_pad", "NOTSET") or "NOTSET").startswith("SAME"):
        window = with_same_padding(window, node.attr("auto_pad") == "SAME_LOWER", sizes)
        x, window = without_negative_padding(b, x, window)
    counts_all = node.op.version < 19 and bool(node.attr("count_include_pad", 0)) and not window.ceil
    return x, fitted(window, sizes, counts_all), dims  # as in ONNX Runtime


def _without_windows(b: Builder, node: Node) -> Value | None:
    """The result without elements of an ONNX pool whose window has no position; None where it has one.

    ONNX Runtime rounds (size - span) / stride toward 0 and adds 1; it refuses what is negative then, and inputs that
    are empty, unless the batch is: an axis of size 0 stays one then (pool_attributes.h).
    """
    x, shape = node.operand(0), node.attr("kernel_shape")
    window, sizes = onnx_window(node, shape, x.shape[2:]), [n for n in x.shape[2:] if isinstance(n, int)]
    if len(sizes) < x.rank - 2:
        return None
    if x.shape[0] == 0 and 0 in sizes:
        known = window.explicit([max(n, 1) for n in sizes])
        counts = [n and _positions(known, i, n) for i, n in enumerate(sizes)]
        return broadcast(b, b.scalar(0.0, x), [*x.shape[:2], *counts], x)
    if window.auto_pad != "NOTSET" or 0 in sizes:
        return None
    counts = [_positions(window, i, n) for i, n in enumerate(sizes)]
    if min(counts, default=1):
        return None
    return broadcast(b, b.scalar(0.0, x), [*x.shape[:2], *counts], x)


def _positions(window: Window, i: int, size: int) -> int:
    """The number of positions of a window with explicit padding along axis i, as ONNX Runtime computes it."""
    rest = (size + window.before[i] + window.after[i] - window.span[i]) / window.strides[i]
    return (math.ceil if window.ceil else int)(rest) + 1


def _is_cropped(node: Node) -> bool:
    """Whether ONNX Runtime's kernel crops by negative padding, as it does on integers; those of MLAS refuse it
    (pool.cc, qlinear_pool.cc).
    """
    source = node.operand(0).producer
    of_integers = source is not None and source.op is ops.DequantizeLinear
    if node.op.name == "onnx.LpPool" or (node.op.name == "onnx.AveragePool" and of_integers):
        return True
    exact = node.operand(0).dtype not in (DType.FLOAT32, DType.FLOAT16)
    return node.op.name == "onnx.MaxPool" and (exact or len(node.results) > 1)


def _open_padding(b: Builder, node: Node, window: Window) -> Amounts | None:
    """The padding of SAME that only a run can tell, where the window cannot."""
    auto_pad = node.attr("auto_pad", "NOTSET") or "NOTSET"
    return same_padding_at_run_time(b, node.operand(0), window, auto_pad, _is_cropped(node))


@lift_onnx("MaxPool", since=(1, 8, 10, 11, 12, 22))
def _max_pool(b: Builder, node: Node) -> list[Value]:
    if (nothing := _without_windows(b, node)) is not None:
        return [nothing, b(ops.Convert, nothing, dtype=DType.INT64)][: len(node.results)]
    x, window, dims = _pool_of(b, node, _padding_number(node.operand(0)))
    if len(node.results) == 1:
        return [pooled(b, ops.MaxPool, x, window, dims)]
    best, indices = b.many(ops.MaxPool, x, **pool_attributes(window, dims), return_indices=True)
    if x is not node.operand(0):
        indices = _in_operand(b, node, indices)
    return [best, in_fortran_order(b, indices, node.operand(0)) if node.attr("storage_order", 0) else indices]


def _in_operand(b: Builder, node: Node, indices: Value) -> Value:
    """Of indices into the cropped operand, those into the operand: its elements, numbered, are cropped the same way."""
    x = node.operand(0)
    count = Term(b, b(ops.Shape, x, dtype=DType.INT32)).reduce("prod", [0])
    numbers = reshape(b, positions(b, count.value), x.shape, x)
    kept = _pool_of(b, node, x=numbers)[0]
    flat = reshape(b, kept, [product(kept.shape)], kept)
    return b(ops.Convert, b(ops.Gather, flat, indices, axis=0), dtype=DType.INT64)


@lift_onnx("NhwcMaxPool", since=(1,), domain=MICROSOFT)
def _channels_last_max_pool(b: Builder, node: Node) -> Value:
    """MaxPool-12 on [n, spatial..., c]."""
    return channels_trailing(b, lifted(b, "MaxPool", 12, [channels_second(b, node.operand(0))], node.attributes))


@lift_onnx("AveragePool", since=(1, 7, 10, 11, 19, 22))
def _average_pool(b: Builder, node: Node) -> Value:
    if (nothing := _without_windows(b, node)) is not None:
        return nothing
    include = bool(node.attr("count_include_pad", 0))
    x, window, dims = _pool_of(b, node)
    mean = pooled(b, ops.AveragePool, x, window, dims, count_include_pad=include)
    given = onnx_window(node, node.attr("kernel_shape"), node.operand(0).shape[2:])
    amounts = None if include else _open_padding(b, node, given)
    if amounts is None:
        return mean
    ones = grown(b, cropped(b, spatial_ones(b, node.operand(0), dims), dims, amounts), dims, amounts)
    return b(ops.Div, mean, pooled(b, ops.AveragePool, ones, window, dims))


@lift_onnx("GlobalAveragePool", since=(1, 22))
@lift_onnx("GlobalMaxPool", since=(1, 22))
def _global_pool(b: Builder, node: Node) -> Value:
    kind = "max" if node.op.name == "onnx.GlobalMaxPool" else "mean"
    return Term(b, node.operand(0)).reduce(kind, range(2, node.operand(0).rank)).value


@upgrade("LpPool", since=(1,))
@upgrade("GlobalLpPool", since=(1,))
def _lp_1(b: Builder, node: Node) -> None:
    """p was a float."""
    node.attributes["p"] = int(node.attr("p", 2.0))


@lift_onnx("GlobalLpPool", since=(2, 22))
def _global_lp_pool(b: Builder, node: Node) -> Value:
    x, p = Term(b, node.operand(0)), int(node.attr("p", 2))
    return _root(_powered(x, p).reduce("sum", range(2, x.rank)), p).value


@lift_onnx("LpPool", since=(2, 11, 18, 22))
def _lp_pool(b: Builder, node: Node) -> Value:
    """(sum over the window of |x|^p)^(1/p), as an average times the window's volume; padding is zero."""
    if (nothing := _without_windows(b, node)) is not None:
        return nothing
    p, (x, window, dims) = int(node.attr("p", 2)), _pool_of(b, node)
    if window.ceil and ends_at_run_time(window, x.shape[2:]):
        x, window = grown(b, x, dims, padding_at_run_time(b, x, dims, window)), bare(window)
    elif window.ceil:
        window = _without_ceil(window, x.shape[2:])
    attributes = pool_attributes(window, dims)
    mean = _powered(Term(b, x), p).apply(ops.AveragePool, **attributes, count_include_pad=True)
    return _root(mean.apply(ops.Mul, float(np.prod(window.shape))), p).value


def _without_ceil(window: Window, sizes: Sequence[Any]) -> Window:
    """The same positions with more padding after each axis."""
    after = [max(a, n) for a, n in zip(window.after, padding_after(window, sizes), strict=True)]
    return replace(window, padding=(*window.before, *after), ceil=False)


def _powered(x: Term, p: int) -> Term:
    """|x|^p."""
    return x.abs() if p == 1 else x * x if p == 2 else x.abs().power(float(p))


def _root(x: Term, p: int) -> Term:
    """x^(1/p) of what is not negative."""
    return x if p == 1 else x.sqrt() if p == 2 else x.power(1.0 / p)


@lift_tfl("MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D")
def _tfl_pool(b: Builder, node: Node) -> Value:
    x, name = node.operand(0), node.op.name.removeprefix("tfl.")
    shape = (int(node.attr("filter_height")), int(node.attr("filter_width")))
    window = tfl_window(node, shape, x.shape[1:3])
    if (counts := empty_counts(node, window, x.shape[1:3])) is not None:
        return broadcast(b, b.scalar(0.0, x), [x.shape[0], *counts, x.shape[3]], x)
    x = without_unread(b, x, (1, 2), window)
    if name == "L2_POOL_2D":
        mean = b(ops.AveragePool, b(ops.Mul, x, x), **pool_attributes(window, (1, 2)))
        return activated(b, b(ops.Sqrt, mean), node)
    op = ops.MaxPool if name == "MAX_POOL_2D" else ops.AveragePool
    if x.dtype is DType.INT16 and op is ops.MaxPool:  # ONNX has no such pool
        largest = pooled(b, op, b(ops.Convert, x, dtype=DType.FLOAT32), window, (1, 2))
        return activated(b, b(ops.Convert, largest, dtype=x.dtype), node)
    return activated(b, pooled(b, op, x, window, (1, 2)), node)


def _pool_2d(node: Node, name: str) -> Form | None:
    """The form of a pool over two of four axes, none dilated."""
    x, window = node.operand(0), ops.pool_window(attributes_of(node))
    if x.tensor_type.rank != 4 or window.rank != 2 or window.span != window.shape:
        return None
    padding = tfl_padding(window, tuple(x.shape[d] for d in node.attr("dims")))
    if padding is None:
        return None
    sizes = {"filter_height": window.shape[0], "filter_width": window.shape[1]}
    return Form(name, (x,), {"padding": padding, **tfl_strides(window), **sizes, "fused_activation_function": "NONE"})


@lower_tfl(ops.MaxPool)
def _max_pool_2d(node: Node) -> Form | None:
    return None if node.attr("return_indices") else _pool_2d(node, "MAX_POOL_2D")


@lower_tfl(ops.MaxPool, rank=-1)
def _largest_of_blocks(node: Node) -> Form | None:
    """Adjacent windows [k, l] of int16: the largest along axes 1 and 3 of [n h/k, k, w/l, l, c].

    Before MAX_POOL_2D, whose int16 kernel has no vector code: REDUCE_MAX is ten times faster (LiteRT 2.3).
    """
    x, window = node.operand(0), ops.pool_window(attributes_of(node))
    quantization = quantization_of(x)
    if quantization is None or quantization.storage != "int16" or not x.tensor_type.is_static:
        return None
    if _max_pool_2d(node) is None or tuple(node.attr("dims")) != (1, 2) or window.strides != window.shape:
        return None
    (n, h, w, c), (size_h, size_w) = x.shape, window.shape
    if h % size_h or w % size_w or node.result.shape != (n, h // size_h, w // size_w, c):
        return None
    blocks = (n * h // size_h, size_h, w // size_w, size_w, c)
    rows = replace(x.tensor_type, shape=blocks)
    largest = replace(node.result.tensor_type, shape=(n * h // size_h, w // size_w, c))
    return Form(
        "REDUCE_MAX",
        (Computed(rows, lambda b: reshape(b, x, blocks)), np.asarray([1, 3], np.int32)),
        {"keep_dims": False},
        types=(largest,),
        finish=lambda b, found: [reshape(b, found[0], node.result.shape)],
    )


@lower_tfl(ops.AveragePool)
def _average_pool_2d(node: Node) -> Form | None:
    """TFLite leaves padding out of the count."""
    counted = node.attr("count_include_pad") and (any(node.attr("padding")) or node.attr("auto_pad") != "NOTSET")
    return None if counted else _pool_2d(node, "AVERAGE_POOL_2D")


@lower_onnx(ops.MaxPool)
@lower_onnx(ops.AveragePool)
def _onnx_pool(node: Node, opset: int) -> Form | None:
    """Spatial axes last (the layout pass sees to it), dilated averages from opset 19 on."""
    x, attributes = node.operand(0), attributes_of(node)
    window = ops.pool_window(attributes)
    if x.tensor_type.rank != window.rank + 2:
        return None
    if attributes.get("return_indices") and tuple(attributes["dims"]) != (*range(2, x.rank),):
        return None  # the layout pass does not move the axes that indices count along
    if window.auto_pad != "NOTSET" and any(s > k for s, k in zip(window.strides, window.shape, strict=True)):
        return None  # SAME would be negative padding there
    average = node.op is ops.AveragePool
    options = {**onnx_attributes(window), "ceil_mode": int(window.ceil)}
    if average and opset < 19 and window.span != window.shape:
        return None
    if average:
        if window.span == window.shape:  # ONNX Runtime copies it to its quantized pool, which has no such attribute
            del options["dilations"]
        return Form("AveragePool", (x,), {**options, "count_include_pad": int(attributes["count_include_pad"])})
    return Form("MaxPool", (x,), {**options, "storage_order": 0})


@decompose(ops.MaxPool, "onnx")
@decompose(ops.AveragePool, "onnx")
def _pool_of_every_nth(b: Builder, node: Node) -> Value | None:
    """SAME over open sizes where strides skip elements: by a Slice where the window has one, else padded separately."""
    x, window, dims = node.operand(0), ops.pool_window(attributes_of(node)), node.attr("dims")
    sides = list(zip(dims, window.shape, window.strides, strict=True))
    if window.auto_pad == "NOTSET" or node.attr("return_indices", False) or all(k >= s for _, k, s in sides):
        return None
    steps = {a: slice(0, None, s) for a, k, s in sides if k == 1 < s}
    if not steps and node.op is ops.AveragePool:
        return _sum_over_count(b, node, window, [x.shape[a] for a in dims])
    if not steps:
        return _pad_apart(b, node, window, _padding_number(x))
    attributes = {**attributes_of(node), "strides": tuple(1 if k == 1 else s for _, k, s in sides)}
    return as_declared(b, b(node.op, sliced(b, x, steps), **attributes), node.result.type)


@decompose(ops.MaxPool, "tfl")
def _max_pool_for_tfl(b: Builder, node: Node) -> Value | Sequence[Value] | None:
    """Indices separately; a unit axis for one spatial axis; padding with the lowest value; maxima of shifted slices."""
    x, attributes = node.operand(0), attributes_of(node)
    window, sizes = ops.pool_window(attributes), tuple(x.shape[d] for d in node.attr("dims"))
    if node.attr("return_indices"):
        return pool_with_indices(b, node, _padding_number(x))
    if x.dtype.is_integer and x.dtype.bits <= 16:
        wide = b(ops.MaxPool, b(ops.Convert, x, dtype=DType.FLOAT32), **attributes)
        return b(ops.Convert, wide, dtype=x.dtype)
    if window.rank == 1 and x.rank == 3 and window.span == window.shape:
        return _as_2d(b, node)
    separate = static(sizes) and tfl_padding(window, sizes) is None
    if separate or any(window.padding) or window.ceil or window.auto_pad != "NOTSET":
        return _pad_apart(b, node, window, _padding_number(x))
    return _pairwise(b, node, window) or _by_slices(b, node, window, "max")


def _padding_number(x: Value) -> float:
    """What is never larger than an element of `x`: 0 where that will do, since delegates pad by nothing else."""
    if (quantization := x.tensor_type.quantization) is not None and quantization.per_tensor and not never_negative(x):
        return quantization.bounds[0]
    return 0.0 if never_negative(x) else float(lowest(x.dtype.numpy))


def _as_2d(b: Builder, node: Node) -> Value:
    """One spatial axis as two, the first a unit axis."""
    attributes = attributes_of(node)
    (axis,) = attributes["dims"]
    low, high = attributes["padding"]
    wide = {name: (1, *attributes[name]) for name in ("kernel_shape", "strides", "dilations")}
    x = with_unit_axis(b, node.operand(0), axis)
    result = b(node.op, x, **{**attributes, **wide, "padding": (0, low, 0, high), "dims": (axis, axis + 1)})
    return reshape(b, result, node.result.shape)


def _pad_apart(b: Builder, node: Node, window: Window, value: float | None = None) -> Value:
    """The padding that the windows see as a Pad of its own."""
    x, dims = node.operand(0), node.attr("dims")
    sizes = [x.shape[d] for d in dims]
    if window.auto_pad != "NOTSET" or ends_at_run_time(window, sizes):
        return _bare(b, node, grown(b, x, dims, padding_at_run_time(b, x, dims, window), value), window)
    return _bare(b, node, padded(b, x, dims, (*window.before, *padding_after(window, sizes)), value), window)


def _bare(b: Builder, node: Node, x: Value, window: Window) -> Value:
    """The pool over an operand that has the padding already."""
    return b(node.op, x, **{**attributes_of(node), **pool_attributes(bare(window), node.attr("dims"))})


def _by_slices(b: Builder, node: Node, window: Window, kind: str) -> Value | None:
    """The reduction over the windows, which is made of strided slices."""
    if window.auto_pad != "NOTSET" or window.ceil or any(window.padding):
        return None
    x, sides = node.operand(0), (window.shape, window.strides, window.dilations)
    full = [dict(zip(node.attr("dims"), side, strict=True)) for side in sides]
    dimensions, strides, dilations = (tuple(side.get(a, 1) for a in range(x.rank)) for side in full)
    sizes = {"window_dimensions": dimensions, "window_strides": strides, "window_dilations": dilations}
    return b(ops.ReduceWindow, x, None, kind=kind, **sizes)


@decompose(ops.AveragePool, "tfl")
def _average_pool_for_tfl(b: Builder, node: Node) -> Value | None:
    """A unit axis for one spatial axis; zeros for the padding, the mean set right where these do not count."""
    x, attributes = node.operand(0), attributes_of(node)
    window, dims = ops.pool_window(attributes), attributes["dims"]
    sizes = [x.shape[d] for d in dims]
    if window.rank == 1 and x.rank == 3 and window.span == window.shape:
        return _as_2d(b, node)
    if x.is_quantized:
        return None if window.auto_pad != "NOTSET" else _weighted_sum(b, node, window)
    if any(window.padding) or window.ceil or window.auto_pad != "NOTSET":
        return _sum_over_count(b, node, window, sizes)
    pairwise = _pairwise(b, node, window)
    if pairwise is not None:
        return pairwise
    total = _by_slices(b, node, window, "sum")
    return None if total is None else b(ops.Mul, total, b.scalar(1.0 / float(np.prod(window.shape)), x))


def _weighted_sum(b: Builder, node: Node, window: Window) -> Value | None:
    """On quantized values: a convolution of each feature by itself, with the same weights of 8 bits everywhere.

    So that results in smaller steps than the operand's are rounded once; the pool's kernel has one quantization.
    """
    x = node.operand(0)
    all_count = node.attr("count_include_pad") or not any(window.padding)
    features = x.shape[1]
    if window.ceil or not all_count or node.attr("dims") != tuple(range(2, x.rank)) or not isinstance(features, int):
        return None
    shape = (features, 1, *window.shape)
    check_elements(math.prod(shape), "the kernel of a mean")
    quantization = Quantization("int8", (float(np.float32(1 / (127 * math.prod(window.shape)))),), (0,))
    kernel = constant(np.full(shape, 127, np.int8), type_=TensorType(DType.FLOAT32, shape, quantization))
    spatial = first(window.rank)
    return b(ops.Conv, x, kernel, None, **spatial, **window_attributes(window), feature_group_count=features)


def _pairwise(b: Builder, node: Node, window: Window) -> Value | None:
    """Three or more spatial axes, the last of the tensor: over the last two first, all between them and the batch
    merged, then over the others one by one.
    """
    x, dims = node.operand(0), tuple(node.attr("dims"))
    bare = window.auto_pad == "NOTSET" and not window.ceil and not any(window.padding) and window.span == window.shape
    if not bare or window.rank < 3 or dims != tuple(range(2, x.rank)):
        return None
    x = _over(b, node, x, window, (x.rank - 2, x.rank - 1))
    for axis in range(2, x.rank - 2):
        x = _over(b, node, x, window, (axis,))
    return x


def _over(b: Builder, node: Node, x: Value, window: Window, axes: Sequence[int]) -> Value:
    """The pool over some spatial axes only, on a tensor of four axes."""
    first, trailing = axes[0], x.shape[axes[-1] + 1 :]
    rest = [product(trailing)] if trailing else []
    fours = (x.shape[0], product(x.shape[1:first]), *(x.shape[a] for a in axes), *rest)
    shape, strides = ([values[a - 2] for a in axes] + [1] * bool(trailing) for values in (window.shape, window.strides))
    single = Window(tuple(shape), tuple(strides), (1, 1), (0, 0, 0, 0))
    pooled = b(node.op, reshape(b, x, fours), **{**attributes_of(node), **pool_attributes(single, (2, 3))})
    sizes = list(x.shape)
    for i, axis in enumerate(axes):
        sizes[axis] = pooled.shape[2 + i]
    return reshape(b, pooled, sizes, pooled, x)


def _sum_over_count(b: Builder, node: Node, window: Window, sizes: Sequence[Any]) -> Value:
    """Over zeros for padding the mean is the sum by the window's volume; times volume by count it is what was asked."""
    x, dims = node.operand(0), node.attr("dims")
    include = bool(node.attr("count_include_pad"))
    mean = _pad_apart(b, node, window)
    if not static(tuple(sizes)):
        return mean if include and not window.ceil else b(ops.Div, mean, _shares(b, node, window, sizes))
    places = math.prod(window.static_counts(sizes))
    check_elements(places * math.prod(window.shape), "the number of elements in each window")
    counts = ops.window_counts(window, sizes, include)
    volume = float(np.prod(window.shape))
    if (counts == volume).all():
        return mean
    factors = np.ones([counts.shape[list(dims).index(a)] if a in dims else 1 for a in range(x.rank)])
    factors = (factors * volume / counts.reshape(factors.shape)).astype(x.dtype.numpy)
    return b(ops.Mul, mean, factors)


def _shares(b: Builder, node: Node, window: Window, sizes: Sequence[Any]) -> Value:
    """The share of each window's elements that count, over sizes that are not known: the average of ones."""
    x, dims = node.operand(0), node.attr("dims")
    ones = spatial_ones(b, x, dims)
    if window.auto_pad != "NOTSET":
        return _bare(b, node, grown(b, ones, dims, padding_at_run_time(b, x, dims, window)), window)
    counted = padded(b, ones, dims, window.padding, 1.0 if node.attr("count_include_pad") else 0.0)
    if ends_at_run_time(window, sizes):
        amounts = padding_at_run_time(b, x, dims, window)
        given = (Term(b, constant(np.asarray(side, np.int64))) for side in (window.before, window.after))
        more = Amounts(*(side - own for side, own in zip((amounts.before, amounts.after), given, strict=True)))
        return _bare(b, node, grown(b, counted, dims, more), window)
    more_after = [max(0, n - a) for n, a in zip(padding_after(window, sizes), window.after, strict=True)]
    return _bare(b, node, padded(b, counted, dims, (*[0] * window.rank, *more_after)), window)


# --- on quantized operands --------------------------------------------------------------------------------------------

for _name in ("AveragePool", "GlobalAveragePool"):
    _pool = QLinearRow(_name, 22, (Quantized(0, 1, 2),), result=(3, 4))
    qlinear(f"QLinear{_name}", (1,), _pool, MICROSOFT)
    qoperator(f"QLinear{_name}", _pool, MICROSOFT)
