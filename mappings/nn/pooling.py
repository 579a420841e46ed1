"""Pooling.

==============  =============================================================================================
ONNX            MaxPool 1 8 10 11 12 22, AveragePool 1 7 10 11 19 22, GlobalMaxPool, GlobalAveragePool 1 22,
                LpPool 1 2 11 18 22, GlobalLpPool 1 2 22, com.microsoft NhwcMaxPool
TFLite          MAX_POOL_2D, AVERAGE_POOL_2D, L2_POOL_2D, custom MaxPool3D, AvgPool3D
==============  =============================================================================================

A window over the whole input (ONNX: a global pool) is a Reduce (MEAN, REDUCE_MAX). :mod:`onnxtfl.build.windows`
resolves which elements a window reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnxtfl.mappings.nn.pool_indices import numbered, pool_with_indices
from onnxtfl.mappings.tensor.padding import has_constant_padding, joined_padding

from onnxtfl.build.custom_options import custom_options
from onnxtfl.build.qlinear import MICROSOFT, channels_second, channels_trailing, lift_op
from onnxtfl.build.rows import apply_activation
from onnxtfl.build.windows import (
    onnx_attributes,
    onnx_window,
    realize_window,
    resolve_window,
    rounds_up,
    same_unlike_onnx,
    tfl_options,
    tfl_window,
)
from onnxtfl.ir import ops
from onnxtfl.ir.attributes import SAME
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static, known_size, product
from onnxtfl.ir.facts import never_negative
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import made_by
from onnxtfl.ir.numeric import lowest
from onnxtfl.ir.op import Op, attributes_of
from onnxtfl.ir.ops.convolution import channels_first_attributes
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.reshape import reshape, split_and_transpose, transpose_and_merge
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.ir.window_padding import PaddedWindow, pad_axes
from onnxtfl.rewriting.registry import (
    Computed,
    Form,
    decompose,
    lift_onnx,
    lift_tfl,
    lower_onnx,
    lower_tfl,
    upgrade,
)


def _window(node: Node) -> Window:
    return ops.pool_window(attributes_of(node))


def pooled(b: Builder, op: type[Op], x: Value, window: Window, dims: Sequence[int], **attributes: Any) -> Value:
    """Return the pool `op` of `x`, or a Reduce if the window covers the whole input."""
    if window.shape == tuple(x.shape[d] for d in dims) and not window.is_dilated and not window.is_padded:
        return b(ops.Reduce, x, list(dims), kind="max" if op is ops.MaxPool else "mean", keepdims=True)
    return b(op, x, **ops.pool_attributes(window, dims), **attributes)


# --- ONNX -------------------------------------------------------------------------------------------------------------


def _resolved(b: Builder, node: Node) -> tuple[Value, PaddedWindow]:
    """Return the operand [n, c, spatial...] of an ONNX pool and its resolved window."""
    x, is_mean = node.operand(0), node.op.name == "onnx.AveragePool"
    return x, resolve_window(b, node, x, node.attr("kernel_shape"), is_pool=True, is_mean=is_mean)


@lift_onnx("MaxPool", since=(1, 8, 10, 11, 12, 22))
def _max_pool(b: Builder, node: Node) -> list[Value]:
    x, found = _resolved(b, node)
    read = found.operand(b, x, _padding_number(x))
    if len(node.results) == 1:
        return [pooled(b, ops.MaxPool, read, found.window, found.dims)]
    best, indices = b.many(ops.MaxPool, read, **ops.pool_attributes(found.window, found.dims), return_indices=True)
    if found.amounts is not None:  # positions in `x`, padded and cropped like `x`
        places = found.operand(b, numbered(b, x))
        flat = reshape(b, places, [product(places.shape)], places)
        indices = b(ops.Convert, b(ops.Gather, flat, indices, axis=0), dtype=DType.INT64)
    return [best, ops.by_column(b, indices, x, found.dims) if node.attr("storage_order", 0) else indices]


@lift_onnx("NhwcMaxPool", since=(1,), domain=MICROSOFT)
def _channels_last_max_pool(b: Builder, node: Node) -> Value:
    """MaxPool-12 on [n, spatial..., c]."""
    return channels_trailing(b, lift_op(b, "MaxPool", 12, [channels_second(b, node.operand(0))], node.attributes))


@lift_onnx("AveragePool", since=(1, 7, 10, 11, 19, 22))
def _average_pool(b: Builder, node: Node) -> Value:
    """Padding of ceil_mode is never counted in the mean; explicit padding that is counted becomes a Pad."""
    (x, found), counts = _resolved(b, node), bool(node.attr("count_include_pad", 0))
    if counts and rounds_up(node):
        given = onnx_window(node, node.attr("kernel_shape")).explicit_padding
        x, found, counts = pad_axes(b, x, found.dims, given), found.after_padding(b, given), False
    mean = pooled(b, ops.AveragePool, found.operand(b, x), found.window, found.dims, count_include_pad=counts)
    return mean if counts else found.mean_of_elements(b, mean, x)


@lift_onnx("GlobalAveragePool", since=(1, 22))
@lift_onnx("GlobalMaxPool", since=(1, 22))
def _global_pool(b: Builder, node: Node) -> Value:
    kind = "max" if node.op.name == "onnx.GlobalMaxPool" else "mean"
    return Term(b, node.operand(0)).reduce(kind, range(2, node.operand(0).rank)).value


@upgrade("LpPool", since=(1,))
@upgrade("GlobalLpPool", since=(1,))
def _lp_1(b: Builder, node: Node) -> None:
    """Version 1 has p as a float."""
    node.attributes["p"] = int(node.attr("p", 2.0))


@lift_onnx("GlobalLpPool", since=(2, 22))
def _global_lp_pool(b: Builder, node: Node) -> Value:
    x, p = Term(b, node.operand(0)), int(node.attr("p", 2))
    return _root(_powered(x, p).reduce("sum", range(2, x.rank)), p).value


@lift_onnx("LpPool", since=(2, 11, 18, 22))
def _lp_pool(b: Builder, node: Node) -> Value:
    """Return sum(|x| ** p over the window) ** (1 / p), from an average pool; the padding is 0."""
    (x, found), p = _resolved(b, node), int(node.attr("p", 2))
    powers, window = _powered(Term(b, found.operand(b, x)), p), found.window
    mean = powers.apply(ops.AveragePool, **ops.pool_attributes(window, found.dims), count_include_pad=True)
    return _root(mean.apply(ops.Mul, float(np.prod(window.shape))), p).value


def _powered(x: Term, p: int) -> Term:
    """Return |x| ** p."""
    return x.abs() if p == 1 else x * x if p == 2 else x.abs().power(float(p))


def _root(x: Term, p: int) -> Term:
    """Return x ** (1 / p) for x >= 0."""
    return x if p == 1 else x.sqrt() if p == 2 else x.power(1.0 / p)


@lower_onnx(ops.MaxPool)
def _onnx_max_pool(node: Node, opset: int) -> Form | None:
    """The layout pass puts spatial axes last; not for indices, whose values depend on the axis order."""
    x, dims = node.operand(0), tuple(node.attr("dims"))
    moves = x.rank != len(dims) + 2 or (_has_indices(node) and dims != tuple(range(2, x.rank)))
    options = {**onnx_attributes(_window(node)), "ceil_mode": 0, "storage_order": 0}
    return None if moves or _pads_too_much(node) else Form("MaxPool", (x,), options)


@lower_onnx(ops.AveragePool)
def _onnx_average_pool(node: Node, opset: int) -> Form | None:
    """The layout pass puts spatial axes last; dilations need opset 19."""
    x, window = node.operand(0), _window(node)
    if x.rank != window.rank + 2 or _pads_too_much(node) or (window.is_dilated and opset < 19):
        return None
    options = {**onnx_attributes(window), "ceil_mode": 0, "count_include_pad": int(node.attr("count_include_pad"))}
    if not window.is_dilated:  # ONNX Runtime copies attributes to its quantized pool, which has no dilations
        del options["dilations"]
    return Form("AveragePool", (x,), options)


def _pads_too_much(node: Node) -> bool:
    """Whether ONNX has no such padding: explicit padding as large as the window, or such a SAME."""
    window = _window(node)
    return same_unlike_onnx(window) if window.is_same else window.may_miss_the_input


# --- TFLite -----------------------------------------------------------------------------------------------------------


@lift_tfl("MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D")
def _tfl_pool(b: Builder, node: Node) -> Value:
    x, name = node.operand(0), node.op.name_in_file
    window = tfl_window(node, (int(node.attr("filter_height")), int(node.attr("filter_width"))), x.shape[1:3])
    if name == "L2_POOL_2D":
        mean = b(ops.AveragePool, b(ops.Mul, x, x), **ops.pool_attributes(window, (1, 2)))
        return apply_activation(b, b(ops.Sqrt, mean), node)
    op = ops.AveragePool if name == "AVERAGE_POOL_2D" else ops.MaxPool
    return apply_activation(b, pooled(b, op, x, window, (1, 2)), node)


@lift_tfl("custom:MaxPool3D", "custom:AvgPool3D", "custom:AveragePool3D")
def _tfl_pool_3d(b: Builder, node: Node) -> Value:
    """A pool of [n, d, h, w, c], which TensorFlow writes as a custom op with the options of its own op.

    Source: LiteRT kernels/pooling3d.cc, which no Python runtime registers.
    """
    options, x = custom_options(node), node.operand(0)
    shape, strides, padding = options.get("ksize"), options.get("strides"), options.get("padding")
    given = [*(shape or ()), *(strides or ())]
    channels_last = x.rank == 5 and options.get("data_format", "NDHWC") == "NDHWC"
    spatial = len(given) == 10 and set(given[::5] + given[4::5]) == {1}
    if not (channels_last and spatial and padding in ("SAME", "VALID")):
        raise ValueError(f"a pool over three axes, with padding SAME or VALID, expected; its options are {options}")
    dims = (1, 2, 3)
    window = Window(tuple(given[1:4]), tuple(given[6:9]), (1, 1, 1), SAME if padding == "SAME" else (0,) * 6)
    op = ops.MaxPool if node.op.name_in_file == "custom:MaxPool3D" else ops.AveragePool
    return pooled(b, op, x, window.explicit([x.shape[d] for d in dims]), dims)


def _pool_2d(node: Node, name: str) -> Form | None:
    """Return the form of a pool over two of four axes without dilations, None for others."""
    x, window = node.operand(0), _window(node)
    if x.tensor_type.rank != 4 or window.rank != 2 or window.is_dilated:
        return None
    options = tfl_options(window, tuple(x.shape[d] for d in node.attr("dims")))
    if options is None:
        return None
    return Form(name, (x,), {**options, "filter_height": window.shape[0], "filter_width": window.shape[1]})


@lower_tfl(ops.MaxPool)
def _max_pool_2d(node: Node) -> Form | None:
    return None if node.attr("return_indices") else _pool_2d(node, "MAX_POOL_2D")


@lower_tfl(ops.MaxPool, rank=-1)
def _largest_of_blocks(node: Node) -> Form | None:
    """int16 with strides equal to the window [k, l]: REDUCE_MAX over axes 1 and 3 of [n h/k, k, w/l, l, c].

    Tried before MAX_POOL_2D, whose int16 kernel is not vectorized and ten times slower (LiteRT 2.3).
    """
    x, window = node.operand(0), _window(node)
    quantization = quantization_of(x)
    if quantization is None or quantization.storage != "int16" or not x.is_static:
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
    """TFLite's mean excludes the padding."""
    return None if node.attr("count_include_pad") and _is_padded(node) else _pool_2d(node, "AVERAGE_POOL_2D")


# --- decompositions ---------------------------------------------------------------------------------------------------


def _is_padded(node: Node) -> bool:
    return any(node.attr("padding"))


def _has_indices(node: Node) -> bool:
    return bool(node.attr("return_indices", False))


@decompose(ops.MaxPool, "onnx", when=_has_indices)
@decompose(ops.MaxPool, "tfl", when=_has_indices, benefit=5)
def _max_pool_with_indices(b: Builder, node: Node) -> list[Value]:
    return pool_with_indices(b, node)


def _is_of_integers_that_floats_hold(node: Node) -> bool:
    dtype = node.operand(0).dtype
    return dtype.is_integer and dtype.bits <= 32 and not node.operand(0).is_quantized


@decompose(ops.MaxPool, "onnx", when=_is_of_integers_that_floats_hold, benefit=4)
def _max_pool_in_float(b: Builder, node: Node) -> list[Value]:
    x = node.operand(0)
    wide = b(ops.Convert, x, dtype=DType.FLOAT32 if x.dtype.bits <= 16 else DType.FLOAT64)
    best, *indices = b.many(ops.MaxPool, wide, **node.attributes)
    return [b(ops.Convert, best, dtype=x.dtype), *indices]


def _has_other_rank(node: Node) -> bool:
    """Whether a pool over one axis or two adjacent ones is not over two of four."""
    dims, rank = tuple(node.attr("dims")), node.operand(0).rank
    adjacent = len(dims) <= 2 and dims == tuple(range(dims[0], dims[0] + len(dims)))
    return adjacent and (len(dims), rank) != (2, 4) and not (_window(node).is_dilated or _has_indices(node))


@decompose(ops.MaxPool, "tfl", when=_has_other_rank, benefit=3)
@decompose(ops.AveragePool, "tfl", when=_has_other_rank, benefit=4)
def _pool_over_two_of_four_axes(b: Builder, node: Node) -> Value:
    """Insert a unit axis before the only spatial axis; merge the other axes::

    [n, c, w] over w            ->    [n, c, 1, w] over the last two
    [n, c, d, h, w] over h, w   ->    [n, c d, h, w] over the last two
    [n, c, d, h, w] over d      ->    [n c, 1, d, h w] over the middle two
    """
    x, window, dims = node.operand(0), _window(node), node.attr("dims")
    before, after = x.shape[: dims[0]], x.shape[dims[-1] + 1 :]
    spatial = [1] * (2 - window.rank) + [x.shape[a] for a in dims]
    wide = window if window.rank == 2 else window.with_unit_axis()
    if after:
        four, axes = (product(before), *spatial, product(after)), (1, 2)
    else:
        four, axes = (product(before[:1]), product(before[1:]), *spatial), (2, 3)
    result = b(node.op, reshape(b, x, four), **{**node.attributes, **ops.pool_attributes(wide, axes)})
    return reshape(b, result, node.result.shape, result, x)


def _is_over_part_of_a_volume(node: Node) -> bool:
    """Whether a pool over one axis or two adjacent ones leaves more axes than a batch and features, the first two."""
    return _has_other_rank(node) and node.attr("dims")[0] >= 2 and node.operand(0).rank > 4


@decompose(ops.MaxPool, "tfl", when=_is_over_part_of_a_volume, benefit=4)
@decompose(ops.AveragePool, "tfl", when=_is_over_part_of_a_volume, benefit=5)
def _pool_over_images(b: Builder, node: Node) -> Value:
    """Merge the axes so that none moves where the features are the last one::

    [n, c, d, h, w] over h, w   ->    [n d, c, h, w] over the last two
    [n, c, d, h, w] over d      ->    [n, c, d, h w] over the last two, by windows of one column
    """
    x, window, dims = node.operand(0), _window(node), tuple(node.attr("dims"))
    images, after = (0, *range(2, dims[0])), tuple(range(dims[-1] + 1, x.rank))
    if window.rank == 1:
        groups, wide = (images, (1,), dims, after), window.with_unit_axis().along([1, 0])
    else:
        groups, wide = ((*images, *after), (1,), dims[:1], dims[1:]), window
    merged = transpose_and_merge(b, x, groups)
    result = b(node.op, merged, **{**node.attributes, **ops.pool_attributes(wide, (2, 3))})
    return split_and_transpose(b, result, groups, node.result.shape, x)


@decompose(ops.MaxPool, "onnx", when=lambda node: _is_padded(node) and not _has_indices(node), benefit=2)
@decompose(ops.MaxPool, "tfl", when=lambda node: _is_padded(node) and not _has_indices(node), benefit=2)
def _max_of_padded(b: Builder, node: Node) -> Value:
    """Replace padding by a Pad with a value that is never the maximum."""
    x = node.operand(0)
    return realize_window(b, x, node.attr("dims"), _window(node)).pool(b, ops.MaxPool, x, _padding_number(x))


def _padding_number(x: Value) -> float:
    """Return a lower bound of the elements of `x`; 0 if possible, since delegates only pad with 0."""
    if (quantization := x.tensor_type.quantization) is not None and quantization.per_tensor and not never_negative(x):
        return quantization.bounds[0]
    return 0.0 if never_negative(x) else float(lowest(x.dtype.numpy))


def _is_weighted_sum(node: Node) -> bool:
    """Whether a mean of quantized values equals a convolution with a constant weight."""
    x, padding = node.operand(0), node.attr("padding")
    counts_all = not any(padding) or (node.attr("count_include_pad") and not isinstance(padding, str))
    last = tuple(node.attr("dims")) == tuple(range(2, x.rank))
    return bool(x.is_quantized and counts_all and last and is_static(x.shape[1:2]))


@decompose(ops.AveragePool, "tfl", when=_is_weighted_sum, benefit=3)
def _weighted_sum(b: Builder, node: Node) -> Value:
    """Compute a quantized mean as a depthwise convolution with a constant int8 weight.

    AVERAGE_POOL_2D needs equal quantization of operand and result; a convolution rounds once to the result's scale.
    """
    x, window = node.operand(0), _window(node)
    shape = (x.size(1), 1, *window.shape)
    check_elements(math.prod(shape), "the kernel of a mean")
    quantization = Quantization("int8", (float(np.float32(1 / (127 * math.prod(window.shape)))),), (0,))
    kernel = constant(np.full(shape, 127, np.int8), type_=TensorType(DType.FLOAT32, shape, quantization))
    return b(ops.Conv, x, kernel, None, **channels_first_attributes(window, x.size(1)))


@decompose(ops.AveragePool, "onnx", when=_pads_too_much)
@decompose(ops.AveragePool, "tfl", when=lambda node: _is_padded(node) and not node.operand(0).is_quantized, benefit=2)
def _mean_of_padded(b: Builder, node: Node) -> Value:
    return _padded_mean(b, node, joined=False)


def _padded_mean(b: Builder, node: Node, joined: bool) -> Value:
    """Return the mean over x padded with zeros (`joined`: constants that are joined to x), times window volume / number
    of counted elements.
    """
    x, dims, window = node.operand(0), node.attr("dims"), _window(node)
    found = realize_window(b, x, dims, window)
    zeros = found.operand(b, x)
    if joined and (pad := made_by(zeros, ops.Pad)) is not None and has_constant_padding(pad):
        zeros = joined_padding(b, pad, _ALMOST_ZERO)
    mean = b(ops.AveragePool, zeros, **ops.pool_attributes(found.window, dims))
    if node.attr("count_include_pad"):
        return mean
    if is_static([x.shape[d] for d in dims]):
        return b(ops.Mul, mean, _volume_by_count(x, dims, window))
    return found.mean_of_elements(b, mean, x)


_ALMOST_ZERO = float(np.finfo(np.float32).tiny)


@decompose(ops.AveragePool, "gpu", when=lambda node: _is_padded(node) and not node.operand(0).is_quantized)
def _mean_of_joined_padding(b: Builder, node: Node) -> Value:
    """The same without a Pad, which the accelerator would make a part of the pool, whose mean then leaves it out.

    It takes zeros that are joined for a Pad, too; therefore they are the smallest positive number.
    """
    return _padded_mean(b, node, joined=True)


def _reads_zeros(node: Node) -> bool:
    pad = made_by(node.operand(0), ops.Pad)
    return pad is not None and has_constant_padding(pad)


@decompose(ops.AveragePool, "gpu", order="operands", when=_reads_zeros)
@decompose(ops.MaxPool, "gpu", order="operands", when=_reads_zeros)
def _pool_of_joined_padding(b: Builder, node: Node) -> list[Value]:
    """Join the padding of an operand, which the accelerator would make a part of the pool, too."""
    pad = made_by(node.operand(0), ops.Pad)
    assert pad is not None
    return b.remade(node, joined_padding(b, pad, _ALMOST_ZERO), *node.operands[1:])


def _volume_by_count(x: Value, dims: Sequence[int], window: Window) -> Value:
    """Return window volume / number of elements without padding, for each position of the window."""
    sizes = [x.size(d) for d in dims]
    places = math.prod(known_size(n) for n in window.counts(sizes))
    check_elements(math.prod(window.shape) * places, "the number of elements in each window")
    counts = window.elements(sizes)
    shape = [counts.shape[list(dims).index(a)] if a in dims else 1 for a in range(x.rank)]
    factors = math.prod(window.shape) / counts.reshape(shape)
    return constant(factors.astype(x.dtype.numpy))


def _is_over_many_axes(node: Node) -> bool:
    """Whether a pool over three or more axes, without dilations and means of padding, is one over its axes in turn."""
    if _has_indices(node) or _window(node).rank < 3 or _window(node).is_dilated or node.operand(0).is_quantized:
        return False
    return node.op is ops.MaxPool or not _is_padded(node)


@decompose(ops.MaxPool, "tfl", when=_is_over_many_axes, benefit=3)
@decompose(ops.AveragePool, "tfl", when=_is_over_many_axes, benefit=1)
def _pool_axis_by_axis(b: Builder, node: Node) -> Value:
    """Pool over the last two axes first, then over each other axis, where the window has more than one element."""
    x, window, dims = node.operand(0), _window(node), node.attr("dims")
    *others, one, two = range(window.rank)
    for places in ((one, two), *((i,) for i in others)):
        part = window.along(places)
        if part.is_padded or max(part.shape + part.strides) > 1:
            x = b(node.op, x, **{**node.attributes, **ops.pool_attributes(part, [dims[i] for i in places])})
    return x


def _is_plain(node: Node) -> bool:
    return not (_is_padded(node) or _has_indices(node))


@decompose(ops.MaxPool, "onnx", when=_is_plain)
@decompose(ops.MaxPool, "tfl", when=_is_plain)
def _max_of_slices(b: Builder, node: Node) -> Value:
    return _by_slices(b, node, "max")


@decompose(ops.AveragePool, "tfl", when=lambda node: _is_plain(node) and not node.operand(0).is_quantized)
def _mean_of_slices(b: Builder, node: Node) -> Value:
    return b(ops.Mul, _by_slices(b, node, "sum"), b.scalar(1.0 / math.prod(node.attr("kernel_shape")), node.result))


def _by_slices(b: Builder, node: Node, kind: str) -> Value:
    """Return the ReduceWindow of `kind`, which is decomposed to strided slices."""
    x, sides = node.operand(0), [node.attr(name) for name in ("kernel_shape", "strides", "dilations")]
    full = [dict(zip(node.attr("dims"), side, strict=True)) for side in sides]
    names = ("window_dimensions", "window_strides", "window_dilations")
    window = {name: tuple(side.get(a, 1) for a in range(x.rank)) for name, side in zip(names, full, strict=True)}
    return b(ops.ReduceWindow, x, None, kind=kind, **window)
