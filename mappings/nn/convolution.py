"""Convolutions.

==============  =============================================================================================
ONNX            Conv 1 11 22
TFLite          CONV_2D, DEPTHWISE_CONV_2D, CONV_3D, STABLEHLO_CONVOLUTION
==============  =============================================================================================

Lowering rules ask for windows by spatial axis, never by position in memory: the layout pass brings the axes into
the kernels' order (targets/layouts.py) before anything is written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from onnxtfl.build.convolutions import as_2d, fixed_kernel, kernel_sizes, sized_window
from onnxtfl.build.hybrid import is_hybrid
from onnxtfl.build.operands import flat_bias, summed_in_float
from onnxtfl.build.rows import apply_activation
from onnxtfl.build.sizes import slice_axes
from onnxtfl.build.stablehlo import int_list, summing_type
from onnxtfl.build.stored import has_weights_of_few_bits, with_weights_in_bytes
from onnxtfl.build.windows import (
    onnx_attributes,
    realize_window,
    resolve_window,
    same_unlike_onnx,
    tfl_dilations,
    tfl_options,
    tfl_padding,
    tfl_window,
)
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder, Operand
from onnxtfl.ir.dims import Dim, is_static, known_size, product, size_or
from onnxtfl.ir.facts import exact_terms
from onnxtfl.ir.formula import Term
from onnxtfl.ir.general_convolution import general_convolution
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.ops.convolution import channels_first_attributes, channels_last_attributes, window_attributes
from onnxtfl.ir.permutations import inverse
from onnxtfl.ir.reshape import concatenated, dim_vector, reshape, split_and_transpose, transpose_and_merge, transposed
from onnxtfl.ir.row_quantization import on_int8_grid
from onnxtfl.ir.spatial import LONGEST_STRIDE, Window
from onnxtfl.ir.types import DType, tensor
from onnxtfl.ir.whole_rows import are_whole_rows, rounds_to_steps
from onnxtfl.ir.window_padding import pad_axes
from onnxtfl.kernels.products_int16 import in_int32, may_sum_int16, remark_narrow_bias, zero_bias
from onnxtfl.rewriting.registry import Computed, Form, decompose, lift_onnx, lift_tfl, lower_onnx, lower_tfl


@lift_onnx("Conv", since=(1, 11, 22))
def _conv(b: Builder, node: Node) -> Value:
    return convolved(b, node, node.operand(0), node.operand(1), node.optional(2))


def convolved(b: Builder, node: Node, x: Value, kernel: Value, bias: Value | None) -> Value:
    """Return a Conv whose window the attributes of the ONNX `node` define."""
    sizes = kernel_sizes(node, kernel)
    found = resolve_window(b, node, x, sizes, is_pool=False)
    attributes = channels_first_attributes(found.window, node.attr("group", 1))
    return b(ops.Conv, found.operand(b, x), fixed_kernel(b, kernel, sizes), bias, **attributes)


def bias_operand(node: Node) -> Operand | Computed:
    """Return the bias; zeros if it is absent and x is float32, since integer kernels and older delegates need one."""
    bias, x, kernel = node.optional(2), node.operand(0), node.operand(1)
    features = kernel.shape[node.attr("kernel_output_feature_dimension")]
    if bias is not None or x.dtype is not DType.FLOAT32:
        return bias
    if not isinstance(features, int):
        zeros = partial(_zeros, kernel=kernel, features=features)
        return None if x.is_quantized else Computed(tensor("float32", features), zeros)
    check_elements(features, "the bias")
    return zero_bias(x, kernel, features) if x.is_quantized else np.zeros(features, np.float32)


def _zeros(b: Builder, kernel: Value, features: Dim) -> Value:
    """Return zeros [features], for a dynamic number of output features of `kernel`."""
    return b(ops.BroadcastTo, constant(np.zeros(1, np.float32)), dim_vector(b, [features], kernel))


@lower_tfl(ops.Conv)
def _conv_2d(node: Node) -> Form | None:
    """The kernel derives the number of groups from the channels of input and filter."""
    if len(node.attr("input_spatial_dimensions")) not in (2, 3) or node.operand(0).tensor_type.shape is None:
        return None
    window, sizes = sized_window(node)
    options = tfl_options(window, sizes)
    if options is None or _has_gaps(window):
        return None
    options |= tfl_dilations(window)
    operands = (node.operand(0), node.operand(1), bias_operand(node))
    if window.rank == 3:
        return Form("CONV_3D", operands, options) if node.attr("feature_group_count") == 1 else None
    if ops.is_depthwise(node):
        features = node.operand(1).shape[node.attr("kernel_output_feature_dimension")]
        multiplier = features // node.attr("feature_group_count")
        if not isinstance(multiplier, int):
            return None
        return Form("DEPTHWISE_CONV_2D", operands, {**options, "depth_multiplier": multiplier})
    return Form("CONV_2D", operands, options)


@lower_tfl(ops.Conv, rank=-1)
def _conv_2d_in_int32(node: Node) -> Form | None:
    """Tried before the form that accumulates in int64, whose kernel is ten times slower."""
    form = _conv_2d(node) if may_sum_int16(node) else None
    return in_int32(form, axis=node.attr("kernel_output_feature_dimension")) if form and form.op == "CONV_2D" else None


_NUMBERS = {
    "CONV_2D": channels_last_attributes(2, 3, 0, (1, 2)),
    "DEPTHWISE_CONV_2D": channels_last_attributes(2, 0, 3, (1, 2)),
    "CONV_3D": channels_last_attributes(3, 3, 4, (0, 1, 2)),
}


@lift_tfl(*_NUMBERS)
def _tfl_conv(b: Builder, node: Node) -> Value:
    x, kernel, name = node.operand(0), node.operand(1), node.op.name_in_file
    numbers = _NUMBERS[name]
    window = tfl_window(node, [kernel.shape[a] for a in numbers["kernel_spatial_dimensions"]], x.shape[1:-1])
    groups = _groups(node, x.shape[-1], kernel.shape[numbers["kernel_input_feature_dimension"]], kernel)
    attributes = {**numbers, **window_attributes(window), "feature_group_count": groups}
    if name == "CONV_2D" and node.attr("quantized_bias_type", "FLOAT32") == "FLOAT32":
        remark_narrow_bias(node)
    if is_hybrid(x, kernel):
        asymmetric = name != "CONV_2D" or rounds_to_steps(None, kernel)
        keeps = asymmetric and are_whole_rows(x)
        x = x if keeps else on_int8_grid(b, x, range(1, x.rank), asymmetric=asymmetric)
    return apply_activation(b, b(ops.Conv, x, kernel, flat_bias(b, node.optional(2)), **attributes), node)


def _groups(node: Node, features: Dim, each: Dim, kernel: Value) -> int:
    """Return the number of groups: input features divided by the kernel's input features, `each`.

    If the input features are unknown, the stored default size implies it, or a depthwise kernel's multiplier.
    """
    if isinstance(features, int) and isinstance(each, int):
        if not each or features % each:
            raise ValueError(f"{features} input features, kernel for {each}")
        return features // each
    if node.op.name != "tfl.DEPTHWISE_CONV_2D":  # the runtime would refuse any other number of groups
        return _implied_groups(int(node.attr("default_features", 0)), each, kernel.shape[0])
    results, multiplier = kernel.shape[3], int(node.attr("depth_multiplier", 0))
    if not isinstance(results, int) or multiplier < 1 or results % multiplier:
        message = (
            f"a depthwise kernel of {results} features and multiplier {multiplier} for an unknown number of features"
        )
        raise UnsupportedError(message, code="E-SHAPE-001")
    return results // multiplier


def _implied_groups(features: int, each: Dim, results: Dim) -> int:
    """Return the number of groups at the sizes that LiteRT allocates by default; 1 if they are invalid."""
    if not isinstance(each, int) or not isinstance(results, int) or not each:
        return 1
    groups, rest = divmod(features, each)
    return groups if groups and not rest and results % groups == 0 else 1


# --- StableHLO -------------------------------------------------------------------------------------------------------


@lift_tfl("STABLEHLO_CONVOLUTION")
def _stablehlo_convolution(b: Builder, node: Node) -> Value:
    """Return a Conv of the dilated input and the reversed kernel; groups of the batch become groups of features.

    The sums are computed in the type of the result. Source: StableHLO, convolution.
    """
    dtype, numbers = node.result.dtype, _dimension_numbers(node)
    x, kernel = (Term(b, node.operand(i)).to(summing_type(dtype)).value for i in (0, 1))
    if any(0 in v.shape for v in (x, kernel, node.result)):
        return b(ops.BroadcastTo, b.scalar(0, dtype), dim_vector(b, node.result.shape, x, kernel))
    mirrored = [
        a for a, r in zip(numbers["kernel_spatial_dimensions"], node.attr("window_reversal") or (), strict=False) if r
    ]
    kernel = b(ops.Reverse, kernel, dimensions=tuple(mirrored)) if mirrored else kernel
    padding = int_list(node, "padding")
    made = general_convolution(
        b,
        x,
        kernel,
        None,
        numbers,
        strides=int_list(node, "window_strides"),
        padding=[*padding[::2], *padding[1::2]],
        lhs_dilation=int_list(node, "lhs_dilation"),
        rhs_dilation=int_list(node, "rhs_dilation"),
        feature_groups=int(node.attr("feature_group_count", 1)) or 1,
        batch_groups=int(node.attr("batch_group_count", 1)) or 1,
    )
    return Term(b, made).to(dtype).value


_SIDES = (("input", "batch", "feature"), ("kernel", "input_feature", "output_feature"), ("output", "batch", "feature"))


def _dimension_numbers(node: Node) -> dict[str, Any]:
    """The attributes of Conv with the axes of input, kernel and output."""
    single = [f"{side}_{axis}_dimension" for side, *axes in _SIDES for axis in axes]
    several = [f"{side}_spatial_dimensions" for side, *_ in _SIDES]
    return {name: int(node.attr(name, 0)) for name in single} | {n: tuple(int_list(node, n)) for n in several}


# --- ONNX ------------------------------------------------------------------------------------------------------------


@lower_onnx(ops.Conv)
def _onnx_conv(node: Node, opset: int) -> Form | None:
    window, _ = sized_window(node)
    if node.operand(0).tensor_type.shape is None or same_unlike_onnx(window):
        return None
    operands = tuple(node.present_operands)
    options = {**onnx_attributes(window), "group": node.attr("feature_group_count")}
    return Form("Conv", operands, options)


# --- decompositions: steps towards CONV_2D ----------------------------------------------------------------------------


def _is_float(node: Node) -> bool:
    return node.operand(0).tensor_type.shape is not None and not node.operand(0).dtype.is_integer


def _exact_terms(node: Node) -> int:
    """Return how many integer products float32 accumulates exactly; 0 for floats, or if unknown."""
    x, kernel = node.operand(0), node.operand(1)
    known = x.tensor_type.shape is not None and x.dtype.is_integer
    depth = kernel.shape[node.attr("kernel_input_feature_dimension")]
    return (exact_terms(x, kernel) or 0) if known and isinstance(depth, int) else 0


def _exact_features(node: Node) -> int:
    """Return over how many input features an integer convolution is exact in float32."""
    depth = node.operand(1).shape[node.attr("kernel_input_feature_dimension")]
    terms = _exact_terms(node) // math.prod(sized_window(node)[0].shape)
    return min(size_or(depth, 0), terms)


def _is_by_parts(node: Node) -> bool:
    """Whether float32 is inexact even for one input feature, and the window has several taps."""
    return _exact_terms(node) > 0 and not _exact_features(node) and max(sized_window(node)[0].shape) > 1


def _has_other_padding(node: Node) -> bool:
    if _is_by_parts(node):
        return any(node.attr("padding"))
    if not _is_float(node) or len(node.attr("rhs_dilation")) == 1:
        return False
    window, sizes = sized_window(node)
    return tfl_padding(window, sizes) is None or (window.is_padded and _has_gaps(window))


def _has_other_groups(node: Node) -> bool:
    depth = node.operand(1).shape[node.attr("kernel_input_feature_dimension")]
    parts = 0 < _exact_features(node) < depth
    return bool(node.attr("feature_group_count") > 1 and (parts or _is_float(node)))


decompose(ops.Conv, "tfl", when=lambda node: _is_float(node) and len(node.attr("rhs_dilation")) == 1, benefit=6)(as_2d)
decompose(ops.Conv, "tfl", when=has_weights_of_few_bits, benefit=8)(with_weights_in_bytes)


@decompose(ops.Conv, "onnx", "operands", when=lambda node: same_unlike_onnx(sized_window(node)[0]))
@decompose(ops.Conv, "tfl", when=_has_other_padding, benefit=5)
def _conv_of_padded(b: Builder, node: Node) -> Value:
    x, dims = node.operand(0), node.attr("input_spatial_dimensions")
    found = realize_window(b, x, dims, sized_window(node)[0])
    return b(ops.Conv, found.operand(b, x), *node.operands[1:], **{**node.attributes, "padding": found.window.padding})


@decompose(ops.Conv, "tfl", when=lambda node: _is_float(node) and _has_gaps(sized_window(node)[0]), benefit=4)
def _conv_without_gaps(b: Builder, node: Node) -> Value:
    """Gather the elements that the windows read along axes of long strides or dilations, so that they are adjacent."""
    window, sizes = sized_window(node)
    x, strides, dilations = node.operand(0), list(window.strides), list(window.dilations)
    for i, axis in enumerate(node.attr("input_spatial_dimensions")):
        longest = max(strides[i], dilations[i])
        if longest <= LONGEST_STRIDE:
            continue
        count, taps = window.counts(sizes)[i], window.shape[i]
        if not isinstance(count, int):
            hint = f"strides and dilations over {LONGEST_STRIDE} need known sizes (input_shapes)"
            kind = "stride" if strides[i] == longest else "dilation"
            raise UnsupportedError(f"a {kind} of {longest} over a dynamic size", hint=hint, code="E-SHAPE-001")
        check_elements(count * taps, "the positions that the windows read")
        places = np.arange(count)[:, None] * strides[i] + np.arange(taps) * dilations[i]
        x = b(ops.Gather, x, places.reshape(-1).astype(np.int32), axis=axis)
        strides[i], dilations[i] = taps, 1
    changed = {"window_strides": tuple(strides), "rhs_dilation": tuple(dilations)}
    return b(ops.Conv, x, *node.operands[1:], **{**node.attributes, **changed})


def _has_gaps(window: Window) -> bool:
    """Whether a stride or dilation is over the limit of LiteRT's convolutions."""
    return max(*window.strides, *window.dilations) > LONGEST_STRIDE


_NPU_STRIDE = 3
"""The longest stride of Ethos-U's depthwise convolutions."""


def _has_long_strides(node: Node) -> bool:
    window, sizes = sized_window(node)
    return max(window.strides) > _NPU_STRIDE and is_static(sizes)


@decompose(ops.Conv, "ethos-u", when=_has_long_strides)
def _conv_of_short_strides(b: Builder, node: Node) -> Value:
    """Convolve with a stride that divides the long one, and skip results."""
    window, sizes = sized_window(node)
    steps = [next(s // d for d in range(_NPU_STRIDE, 0, -1) if s % d == 0) for s in window.strides]
    strides = tuple(s // step for s, step in zip(window.strides, steps, strict=True))
    changed = {"window_strides": strides, "padding": window.explicit(sizes).explicit_padding}
    dense = b(ops.Conv, *node.operands, **{**node.attributes, **changed})
    axes = node.attr("output_spatial_dimensions")
    ends = [(node.result.size(axis) - 1) * step + 1 for axis, step in zip(axes, steps, strict=True)]
    return slice_axes(b, dense, {a: slice(0, end, s) for a, end, s in zip(axes, ends, steps, strict=True)})


@decompose(ops.Conv, "tfl", when=_has_other_groups, benefit=3)
def _groups_apart(b: Builder, node: Node) -> Value:
    """Compute one convolution per group and concatenate the results."""
    groups, attributes = node.attr("feature_group_count"), attributes_of(node)
    x = _parts(b, node.operand(0), groups, attributes["input_feature_dimension"])
    kernel = _parts(b, node.operand(1), groups, attributes["kernel_output_feature_dimension"])
    bias = [None] * groups if node.optional(2) is None else _parts(b, node.operand(2), groups, 0)
    single = {**attributes, "feature_group_count": 1}
    parts = [b(ops.Conv, *each, **single) for each in zip(x, kernel, bias, strict=True)]
    return b(ops.Concatenate, *parts, axis=attributes["output_feature_dimension"])


def _parts(b: Builder, value: Value, count: int, axis: int) -> list[Value]:
    """Equal parts along an axis, those of a constant being constants."""
    if value.data is not None and not value.is_quantized:
        size = value.size(axis) // count
        return [constant(value.data.slab(axis, i * size, (i + 1) * size), value.dtype) for i in range(count)]
    return b.many(ops.Split, value, axis=axis, count=count)


def _is_along_depth(node: Node) -> bool:
    """Whether a float convolution over three axes computes each position of the last two of its own."""
    if not _is_float(node) or len(node.attr("rhs_dilation")) != 3:
        return False
    plane = sized_window(node)[0].along([1, 2])
    return plane.shape == plane.strides == (1, 1) and not plane.is_padded


@decompose(ops.Conv, "xnnpack", when=_is_along_depth, benefit=1)
@decompose(ops.Conv, "tfl", when=_is_along_depth, benefit=7)
def _conv_along_depth(b: Builder, node: Node) -> Value:
    """Compute a 3-D convolution with the kernel [k, 1, 1] as a 2-D one of images [d, h w] with the kernel [k, 1]."""
    attributes, (window, _) = attributes_of(node), sized_window(node)
    (depth, *plane), (tap, *inside) = attributes["input_spatial_dimensions"], attributes["kernel_spatial_dimensions"]
    sides = [attributes["input_batch_dimension"]], [attributes["input_feature_dimension"]]
    images = transpose_and_merge(b, node.operand(0), [*sides, [depth], plane])
    features = [attributes["kernel_output_feature_dimension"]], [attributes["kernel_input_feature_dimension"]]
    kernel = transpose_and_merge(b, node.operand(1), [*features, [tap], inside])
    numbers = channels_first_attributes(window.along([0, 1]), attributes["feature_group_count"])
    result = b(ops.Conv, images, kernel, node.optional(2), **numbers)
    made = [attributes["output_batch_dimension"]], [attributes["output_feature_dimension"]]
    return split_and_transpose(
        b, result, [*made, attributes["output_spatial_dimensions"]], node.result.shape, node.operand(0)
    )


def _is_over_planes(node: Node) -> bool:
    """Whether a float convolution without groups over three axes or more has a position."""
    if not _is_float(node) or len(node.attr("rhs_dilation")) < 3 or node.attr("feature_group_count") > 1:
        return False
    window, sizes = sized_window(node)
    return window.counts(sizes)[0] != 0


def _stacked_taps(b: Builder, x: Value, axis: int, feature: int, window: Window) -> Value:
    """Return the elements that an unpadded window reads along `axis`, those of each tap as features.

    Delegates have no slices with strides: with the features last, the planes that a stride covers are rows of one.
    """
    (size,), (stride,), (dilation,) = window.shape, window.strides, window.dilations
    order = (*(a for a in range(x.rank) if a != feature), feature)
    place, known = order.index(axis), x.shape[axis : axis + 2]
    (count,), is_known = window.counts((x.shape[axis],)), order[place + 1] == axis + 1 and is_static(known)
    if stride == 1 or not is_known:
        taps = [*ops.window_taps(b, x, [axis], window)]
        return concatenated(b, taps, feature)
    places = [divmod(tap * dilation, stride) for tap in range(size)]
    total, rows = known_size(count) + places[-1][0], known_size(known[1])
    whole = transposed(b, pad_axes(b, x, [axis], [0, total * stride - known_size(known[0])]), order)
    sizes = {place: total, place + 1: stride * rows}
    split = reshape(b, whole, [sizes.get(a, n) for a, n in enumerate(whole.shape)], whole)
    parts = [{place: slice(n, n + known_size(count)), place + 1: slice(i * rows, (i + 1) * rows)} for n, i in places]
    taps = [slice_axes(b, split, part) for part in parts]
    return transposed(b, concatenated(b, taps, x.rank - 1), inverse(order))


@decompose(ops.Conv, "xnnpack", when=_is_over_planes)
@decompose(ops.Conv, "tfl", when=_is_over_planes, benefit=6)
def _conv_by_planes(b: Builder, node: Node) -> Value:
    """Compute a 3-D convolution without CONV_3D: a 2-D one whose features are those of all taps of the first axis.

    So is one over n axes by one over n - 1::

        y[n, d] = Conv(Concatenate(x[n, d * stride + k * dilation] for each k), Concatenate(kernel[k] for each k))
    """
    attributes, (window, _) = attributes_of(node), sized_window(node)
    depth, *plane = attributes["input_spatial_dimensions"]
    first, feature = (
        realize_window(b, node.operand(0), [depth], window.along([0])),
        attributes["input_feature_dimension"],
    )
    x, taps = first.operand(b, node.operand(0)), first.window
    stack = x if taps.shape == taps.strides == (1,) else _stacked_taps(b, x, depth, feature, taps)
    batch = [attributes["input_batch_dimension"], depth]
    images = transpose_and_merge(b, stack, [batch, [feature], *([a] for a in plane)])
    tap, *inside = attributes["kernel_spatial_dimensions"]
    out, depth_in = attributes["kernel_output_feature_dimension"], attributes["kernel_input_feature_dimension"]
    kernel = transpose_and_merge(b, node.operand(1), [[out], [tap, depth_in], *([a] for a in inside)])
    numbers = channels_first_attributes(window.along(range(1, window.rank)))
    planes = b(ops.Conv, images, kernel, node.optional(2), **numbers)
    result = reshape(b, planes, (*(stack.shape[a] for a in batch), *planes.shape[1:]), planes, stack)
    depth, *plane = attributes["output_spatial_dimensions"]
    order = (attributes["output_batch_dimension"], depth, attributes["output_feature_dimension"], *plane)
    return transposed(b, result, inverse(order))


@decompose(ops.Conv, "tfl", when=lambda node: _exact_features(node) > 0, benefit=1)
def _integer_conv(b: Builder, node: Node) -> Value | None:
    """Compute in float32, over as many input features at a time as it accumulates exactly."""
    x, kernel, attributes = node.operand(0), node.operand(1), attributes_of(node)
    axes = attributes["input_feature_dimension"], attributes["kernel_input_feature_dimension"]
    total = node.optional(2)
    if total is not None:
        total = reshape(b, total, (*total.shape, *[1] * (x.rank - 1 - attributes["output_feature_dimension"])))
    multiply, parts = partial(b, ops.Conv, **attributes), list(zip((x, kernel), axes, strict=True))
    return summed_in_float(b, parts, _exact_features(node), multiply, total)


@decompose(ops.Conv, "tfl", when=lambda node: _is_by_parts(node) and not any(node.attr("padding")))
def _integer_conv_by_taps(b: Builder, node: Node) -> Value | None:
    """Compute a convolution of integers whose window has more than `terms` taps as the sum over parts of the window.

    The largest axis of the window is divided, without padding::

        y[n] = sum over parts [k, l) of Conv(x[k * dilation : size - (window - l) * dilation], kernel[k:l])
    """
    (window, _), terms = sized_window(node), _exact_terms(node)
    i = max(range(window.rank), key=lambda axis: window.shape[axis])
    length = max(1, terms * window.shape[i] // math.prod(window.shape))
    x, kernel, attributes = node.operand(0), node.operand(1), attributes_of(node)
    axes = [attributes[f"{side}_spatial_dimensions"][i] for side in ("input", "kernel")]
    total: Value | None = None
    for k in range(0, window.shape[i], length):
        rest = max(0, window.shape[i] - k - length) * window.dilations[i]
        read = slice_axes(b, x, {axes[0]: slice(k * window.dilations[i], -rest or None)})
        taps, bias = slice_axes(b, kernel, {axes[1]: slice(k, k + length)}), node.optional(2) if k == 0 else None
        part = b(ops.Conv, read, taps, bias, **attributes)
        total = part if total is None else b(ops.Add, total, part)
    return total


# --- ONNX Runtime: other types than float32 --------------------------------------------------------------------------

_MOST_TAPS = 1 << 8
"""The most positions of a kernel, each of which is a product of matrices."""


def _is_of_other_type(node: Node) -> bool:
    x, kernel = node.operand(0), node.operand(1)
    if not (x.dtype.is_integer or x.dtype is DType.FLOAT64) or x.tensor_type.shape is None:
        return False
    return kernel.is_static and is_static(x.shape[a] for a in node.attr("input_spatial_dimensions"))


def _has_computed_kernel(node: Node) -> bool:
    x, kernel = node.operand(0), node.operand(1)
    known = x.is_static and kernel.is_static and not (x.is_quantized or kernel.is_quantized)
    return known and not kernel.is_constant and math.prod(sized_window(node)[0].shape) <= _MOST_TAPS


def _is_of_any_integers(node: Node) -> bool:
    """Whether float32 may not be exact even for one product."""
    return node.operand(0).dtype.is_integer and _is_of_other_type(node) and not _exact_terms(node)


@decompose(ops.Conv, "gpu", order="operands", when=_has_computed_kernel)
@decompose(ops.Conv, "onnx", when=_is_of_other_type)
@decompose(ops.Conv, "tfl", when=_is_of_any_integers)
def _conv_by_taps(b: Builder, node: Node) -> Value:
    """Compute a convolution as a sum of products of matrices, one for each tap k of the kernel: of integers or float64
    for ONNX Runtime, of large integers for TFLite, with a computed kernel for the GPU accelerator.

    ::

        y[n, i, g, o] = sum over k and c: x[n, i * stride + k * dilation, g, c] * kernel[g, o, c, k]
    """
    attributes, groups = attributes_of(node), node.attr("feature_group_count")
    window, _ = sized_window(node)
    if math.prod(window.shape) > _MOST_TAPS:
        raise UnsupportedError(f"a convolution of {node.operand(0).dtype.value} with {math.prod(window.shape)} taps")
    x = node.operand(0)
    x = realize_window(b, x, attributes["input_spatial_dimensions"], window).operand(b, x)
    x, kernel = transposed(b, x, _spatial_inside(attributes, "input")), _by_groups(b, node)
    rows = reshape(b, x, (*x.shape[:-1], groups, kernel.shape[2]))
    total: Term | None = None
    read = ops.window_taps(b, rows, range(1, window.rank + 1), window)
    for tap, seen in zip(window.taps(), read, strict=True):
        weights = slice_axes(b, kernel, {i: slice(k, k + 1) for i, k in enumerate(tap, 3)})
        batch = {"lhs_batching_dimensions": (seen.rank - 2,), "rhs_batching_dimensions": (0,)}
        contract = {"lhs_contracting_dimensions": (seen.rank - 1,), "rhs_contracting_dimensions": (2,)}
        part = Term(b, b(ops.DotGeneral, seen, reshape(b, weights, kernel.shape[:3]), **batch, **contract))
        total = part if total is None else total + part
    assert total is not None
    return _placed(b, node, total.value)


def _spatial_inside(attributes: Mapping[str, Any], side: str) -> list[int]:
    """The axes of input or output in the order batch, spatial, feature."""
    spatial = attributes[f"{side}_spatial_dimensions"]
    return [attributes[f"{side}_batch_dimension"], *spatial, attributes[f"{side}_feature_dimension"]]


def _by_groups(b: Builder, node: Node) -> Value:
    """The kernel as [group, output feature, input feature, spatial...]."""
    attributes, groups = attributes_of(node), node.attr("feature_group_count")
    features = (attributes["kernel_output_feature_dimension"], attributes["kernel_input_feature_dimension"])
    kernel = transposed(b, node.operand(1), [*features, *attributes["kernel_spatial_dimensions"]])
    return reshape(b, kernel, (groups, kernel.shape[0] // groups, *kernel.shape[1:]))


def _placed(b: Builder, node: Node, grouped: Value) -> Value:
    """[group, batch, spatial..., feature] plus the bias, in the order of the dimension numbers."""
    last = grouped.rank - 1
    merged = transposed(b, grouped, [*range(1, last), 0, last])
    whole = Term(b, reshape(b, merged, (*merged.shape[:-2], merged.shape[-2] * merged.shape[-1])))
    if (bias := node.optional(2)) is not None:
        whole = whole + Term(b, reshape(b, bias, (product(bias.shape),)))
    roles = _spatial_inside(attributes_of(node), "output")
    return transposed(b, whole.value, [roles.index(a) for a in range(len(roles))])
