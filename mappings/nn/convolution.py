"""Convolutions.

==============  =============================================================================================
ONNX            Conv 1 11 22, ConvInteger 10
TFLite          CONV_2D, DEPTHWISE_CONV_2D, CONV_3D
==============  =============================================================================================

Lowering rules ask for windows by spatial axis, never by position in memory: the layout pass brings the axes into
the kernels' order (targets/layouts.py) before anything is written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from onnxtfl.build.convolutions import as_2d, first, fixed_kernel, kernel_sizes, last, sized_window, window_attributes
from onnxtfl.build.hybrid import is_hybrid
from onnxtfl.build.open_windows import grown, padding_at_run_time, without_skipped, without_unread
from onnxtfl.build.operands import flat_bias, shifted, summed_in_float
from onnxtfl.build.qlinear import MICROSOFT, QLinearRow, Quantized, qlinear
from onnxtfl.build.qoperator import qoperator
from onnxtfl.build.rows import activated
from onnxtfl.build.sizes import sliced
from onnxtfl.build.windows import (
    empty_counts,
    onnx_attributes,
    onnx_window,
    padded,
    tfl_dilations,
    tfl_padding,
    tfl_strides,
    tfl_window,
)
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder, Operand
from onnxtfl.ir.dims import Dim, ceildiv, fresh, known_size, product, static
from onnxtfl.ir.facts import exact_terms
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.ops.sampling import FeatureMap, along_channels
from onnxtfl.ir.reshape import broadcast, dim_vector, reshape, transposed, unsqueezed
from onnxtfl.ir.row_quantization import on_int8_grid
from onnxtfl.ir.spatial import LONGEST_STRIDE, Window
from onnxtfl.ir.types import DType, tensor
from onnxtfl.kernels.products_int16 import in_int32, remark_narrow_bias, zero_bias
from onnxtfl.rewriting.declared import as_declared
from onnxtfl.rewriting.registry import Computed, Form, decompose, lift_onnx, lift_tfl, lower_onnx, lower_tfl


@lift_onnx("Conv", since=(1, 11, 22))
def _conv(b: Builder, node: Node) -> Value:
    return convolved(b, node, node.operand(0), node.operand(1), node.optional(2))


def convolved(b: Builder, node: Node, x: Value, kernel: Value, bias: Value | None) -> Value:
    """A Conv with the window that the ONNX node's attributes say."""
    sizes = kernel_sizes(node, kernel)
    kernel = fixed_kernel(b, kernel, sizes)
    if x.tensor_type.shape is not None:
        given = onnx_window(node, sizes, [fresh() for _ in sizes])
        x = without_skipped(b, x, given, node.attr("auto_pad") or "NOTSET")
    known = x.tensor_type.shape
    window = onnx_window(node, sizes, [fresh() for _ in sizes] if known is None else known[2:])
    attributes = {**first(len(sizes)), **window_attributes(window), "feature_group_count": node.attr("group", 1)}
    return b(ops.Conv, x, kernel, bias, **attributes)


@lift_onnx("ConvInteger", since=(10,))
def _conv_integer(b: Builder, node: Node) -> Value:
    """In int32, the zero points taken away first, so that padding is zero."""
    x, kernel = (shifted(b, node.operand(i), node.optional(i + 2), axis) for i, axis in ((0, 1), (1, 0)))
    return convolved(b, node, x, kernel, None)


def bias_operand(node: Node) -> Operand | Computed:
    """The bias; integer kernels and older delegates need one, so an absent one of float32 becomes zeros."""
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
    """As many zeros as `kernel` has output features at run time."""
    return b(ops.BroadcastTo, constant(np.zeros(1, np.float32)), dim_vector(b, [features], kernel))


@lower_tfl(ops.Conv)
def _conv_2d(node: Node) -> Form | None:
    """Groups are seen by the kernel from the number of channels of input and filter."""
    if len(node.attr("input_spatial_dimensions")) not in (2, 3) or node.operand(0).tensor_type.shape is None:
        return None
    window, sizes = sized_window(node)
    padding = tfl_padding(window, sizes)
    if padding is None or _has_gaps(window):
        return None
    options = {"padding": padding, "fused_activation_function": "NONE", **tfl_strides(window), **tfl_dilations(window)}
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
    """Before the form that adds up in int64: its kernel is ten times faster."""
    form = _conv_2d(node)
    return in_int32(form, axis=node.attr("kernel_output_feature_dimension")) if form and form.op == "CONV_2D" else None


_NUMBERS = {
    "CONV_2D": last(2, 3, 0, (1, 2)),
    "DEPTHWISE_CONV_2D": last(2, 0, 3, (1, 2)),
    "CONV_3D": last(3, 3, 4, (0, 1, 2)),
}


@lift_tfl(*_NUMBERS)
def _tfl_conv(b: Builder, node: Node) -> Value:
    x, kernel, name = node.operand(0), node.operand(1), node.op.name.removeprefix("tfl.")
    numbers = _NUMBERS[name]
    window = tfl_window(node, [kernel.shape[a] for a in numbers["kernel_spatial_dimensions"]], x.shape[1:-1])
    if (counts := empty_counts(node, window, x.shape[1:-1])) is not None:
        features = kernel.shape[numbers["kernel_output_feature_dimension"]]
        return broadcast(b, b.scalar(0.0, x), [x.shape[0], *counts, features], x)
    x = without_unread(b, x, range(1, x.rank - 1), window)
    groups = _groups(node, x.shape[-1], kernel.shape[numbers["kernel_input_feature_dimension"]], kernel)
    attributes = {**numbers, **window_attributes(window), "feature_group_count": groups}
    if name == "CONV_2D" and node.attr("quantized_bias_type", "FLOAT32") == "FLOAT32":
        remark_narrow_bias(node)
    if is_hybrid(x, kernel):
        x = on_int8_grid(b, x, range(1, x.rank), asymmetric=name != "CONV_2D" or not _has_one_scale(kernel))
    return activated(b, b(ops.Conv, x, kernel, flat_bias(b, node.optional(2)), **attributes), node)


def _groups(node: Node, features: Dim, each: Dim, kernel: Value) -> int:
    """The number of groups, which kernels compute from the features of the operand and those of the kernel, `each`.

    Of an operand of unknown features, the one that its stored size implies, or for a depthwise kernel its multiplier.
    """
    if isinstance(features, int) and isinstance(each, int):
        if not each or features % each:
            raise InvalidModelError(f"{features} input features, kernel for {each}", code="E-FILE-009")
        return features // each
    if node.op.name != "tfl.DEPTHWISE_CONV_2D":  # with another number of groups, a runtime would refuse the result
        return _implied_groups(int(node.attr("default_features", 0)), each, kernel.shape[0])
    results, multiplier = kernel.shape[3], int(node.attr("depth_multiplier", 0))
    if not isinstance(results, int) or multiplier < 1 or results % multiplier:
        message = (
            f"a depthwise kernel of {results} features and multiplier {multiplier} for an unknown number of features"
        )
        raise UnsupportedError(message, code="E-SHAPE-001")
    return results // multiplier


def _implied_groups(features: int, each: Dim, results: Dim) -> int:
    """The number of groups at the sizes that LiteRT allocates when nothing is resized; 1 where it would not run."""
    if not isinstance(each, int) or not isinstance(results, int) or not each:
        return 1
    groups, rest = divmod(features, each)
    return groups if groups and not rest and results % groups == 0 else 1


def _has_one_scale(kernel: Value) -> bool:
    """Whether all output features have the same scale; CONV_2D's hybrid kernel is symmetric then.

    Source: LiteRT kernels/conv.cc (is_hybrid_per_channel).
    """
    quantization = kernel.tensor_type.quantization
    return quantization is not None and len(set(quantization.scales)) == 1


@lower_onnx(ops.Conv)
def _onnx_conv(node: Node, opset: int) -> Form | None:
    if node.operand(0).tensor_type.shape is None:
        return None
    window, _ = sized_window(node)
    if window.auto_pad != "NOTSET" and window.span != window.shape:
        return None  # ONNX Runtime refuses a dilation beside auto_pad
    operands = tuple(v for v in node.operands if v is not None)
    return Form("Conv", operands, {**onnx_attributes(window), "group": node.attr("feature_group_count")})


@decompose(ops.Conv, "onnx", "operands")
def _padded_at_run_time(b: Builder, node: Node) -> Value | None:
    """SAME_UPPER with a dilation: the sizes determine the padding before the Conv."""
    window, sizes = sized_window(node)
    if window.auto_pad != "SAME_UPPER" or window.span == window.shape:
        return None
    x, axes = node.operand(0), node.attr("input_spatial_dimensions")
    totals: list[Dim] = [0] * x.rank
    for axis, size, stride, span in zip(axes, sizes, window.strides, window.span, strict=True):
        totals[axis] = (ceildiv(size, stride) - 1) * stride + span - size
    total = Term(b, dim_vector(b, totals, x)).apply(ops.Max, 0)
    before = total.apply(ops.FloorDiv, 2)
    columns = [unsqueezed(b, part.value, [1]) for part in (before, total - before)]
    x = b(ops.Pad, x, b(ops.Concatenate, *columns, axis=1))
    attributes = {**attributes_of(node), "auto_pad": "NOTSET"}
    return as_declared(b, b(ops.Conv, x, node.operand(1), node.optional(2), **attributes), node.result.type)


@decompose(ops.Conv, "tfl")
def _conv_for_tfl(b: Builder, node: Node) -> Value | None:
    """One step nearer to CONV_2D: a unit axis, separate padding, separate groups."""
    if node.operand(0).tensor_type.shape is None:
        return None
    window, sizes = sized_window(node)
    if node.operand(0).dtype.is_integer:
        return _integers(b, node, window)
    if window.rank == 1:
        return as_2d(b, node)
    if tfl_padding(window, sizes) is None:
        return _pad_apart(b, node, window)
    if _has_gaps(window):
        return _without_gaps(b, node, window, sizes)
    if node.attr("feature_group_count") > 1:
        return _groups_apart(b, node)
    return _by_planes(b, node, window, sizes) if window.rank == 3 else None


def _by_planes(b: Builder, node: Node, window: Window, sizes: Sequence[Dim]) -> Value | None:
    """A convolution over three axes without CONV_3D: for each tap along the first one, a convolution over the others.

    ::

        y[n, d] = sum over k of Conv(x[n, d * stride + k * dilation], kernel[k])
    """
    x, kernel, attributes = node.operand(0), node.operand(1), attributes_of(node)
    count = window.counts(sizes)[0]
    if not static(x.shape) or not isinstance(count, int) or window.auto_pad != "NOTSET" or not count:
        return None
    depth, *plane = attributes["input_spatial_dimensions"]
    x = padded(b, x, [depth], (window.before[0], window.after[0]))
    x = transposed(b, x, (0, depth, attributes["input_feature_dimension"], *plane))
    numbers = attributes["kernel_output_feature_dimension"], attributes["kernel_input_feature_dimension"]
    kernel = transposed(b, kernel, (*numbers, *attributes["kernel_spatial_dimensions"]))
    flat = {
        **first(2),
        "window_strides": window.strides[1:],
        "rhs_dilation": window.dilations[1:],
        "padding": (*window.before[1:], *window.after[1:]),
        "feature_group_count": 1,
    }
    total: Value | None = None
    for k in range(window.shape[0]):
        begin = k * window.dilations[0]
        planes = sliced(b, x, {1: slice(begin, begin + (count - 1) * window.strides[0] + 1, window.strides[0])})
        planes = reshape(b, planes, (product(planes.shape[:2]), *planes.shape[2:]))
        tap = reshape(b, sliced(b, kernel, {2: slice(k, k + 1)}), (*kernel.shape[:2], *kernel.shape[3:]))
        made = b(ops.Conv, planes, tap, _first(node, total), **flat)
        total = made if total is None else b(ops.Add, total, made)
    assert total is not None
    spread = reshape(b, total, (x.shape[0], count, *total.shape[1:]))
    order = [0] * x.rank
    for place, axis in enumerate((attributes["output_batch_dimension"], *_spatial_first(attributes))):
        order[axis] = place
    return transposed(b, spread, order)


def _spatial_first(attributes: dict[str, Any]) -> tuple[int, ...]:
    """The result's axes of the first spatial axis, of the features, and of the other spatial axes."""
    depth, *plane = attributes["output_spatial_dimensions"]
    return (depth, attributes["output_feature_dimension"], *plane)


def _integers(b: Builder, node: Node, window: Window) -> Value | None:
    """In float32, over as many input features at a time as that adds up exactly."""
    x, kernel, attributes = node.operand(0), node.operand(1), attributes_of(node)
    terms = exact_terms(x, kernel)
    depth = kernel.shape[attributes["kernel_input_feature_dimension"]]
    if terms is None or not isinstance(depth, int):
        return None
    step = min(depth, terms // math.prod(window.shape))
    if step == 0:
        return _by_taps(b, node, window, terms)
    if step < depth and attributes["feature_group_count"] > 1:
        return _groups_apart(b, node)
    axes = attributes["input_feature_dimension"], attributes["kernel_input_feature_dimension"]
    total = node.optional(2)
    if total is not None:
        total = reshape(b, total, (*total.shape, *[1] * (x.rank - 1 - attributes["output_feature_dimension"])))
    multiply = partial(b, ops.Conv, **attributes)
    return summed_in_float(b, list(zip((x, kernel), axes, strict=True)), step, multiply, total)


def _by_taps(b: Builder, node: Node, window: Window, terms: int) -> Value | None:
    """A convolution of integers whose window has more than `terms` positions: the sum of those over its parts.

    The largest axis of the window is divided, after the padding::

        y[n] = sum over parts [k, l) of Conv(x[k * dilation : size - (window - l) * dilation], kernel[k:l])
    """
    i = max(range(window.rank), key=lambda axis: window.shape[axis])
    length = max(1, terms * window.shape[i] // math.prod(window.shape))
    if terms == 0 or window.shape[i] == 1:
        return None
    if any(window.padding) or window.auto_pad != "NOTSET":
        return _pad_apart(b, node, window)
    (x, kernel), attributes = node.operands[:2], attributes_of(node)
    assert x is not None and kernel is not None
    axes = [attributes[f"{side}_spatial_dimensions"][i] for side in ("input", "kernel")]
    total: Value | None = None
    for k in range(0, window.shape[i], length):
        rest = max(0, window.shape[i] - k - length) * window.dilations[i]
        read = sliced(b, x, {axes[0]: slice(k * window.dilations[i], -rest or None)})
        part = b(ops.Conv, read, sliced(b, kernel, {axes[1]: slice(k, k + length)}), _first(node, total), **attributes)
        total = part if total is None else b(ops.Add, total, part)
    return total


def _first(node: Node, total: Value | None) -> Value | None:
    """The bias of a Conv, for the first one of several that are added."""
    return node.optional(2) if total is None else None


def _pad_apart(b: Builder, node: Node, window: Window) -> Value:
    x, dims = node.operand(0), node.attr("input_spatial_dimensions")
    if window.auto_pad == "NOTSET":
        x = padded(b, x, dims, window.padding)
    else:
        x = grown(b, x, dims, padding_at_run_time(b, x, dims, window))
    attributes = {**attributes_of(node), "padding": (0,) * len(window.padding), "auto_pad": "NOTSET"}
    return b(ops.Conv, x, node.operand(1), node.optional(2), **attributes)


def _has_gaps(window: Window) -> bool:
    """Whether a stride or dilation is longer than LiteRT's convolutions take."""
    return max(*window.strides, *window.dilations) > LONGEST_STRIDE


def _without_gaps(b: Builder, node: Node, window: Window, sizes: Sequence[Dim]) -> Value:
    """Gather what the windows read along axes of long strides or dilations: they are then adjacent."""
    x, strides, dilations = node.operand(0), list(window.strides), list(window.dilations)
    for i, axis in enumerate(node.attr("input_spatial_dimensions")):
        longest = max(strides[i], dilations[i])
        if longest <= LONGEST_STRIDE:
            continue
        count, taps = window.counts(sizes)[i], window.shape[i]
        if not isinstance(count, int) or any(window.padding) or window.auto_pad != "NOTSET":
            hint = f"strides and dilations over {LONGEST_STRIDE} need sizes that are known (input_shapes)"
            kind = "stride" if strides[i] == longest else "dilation"
            raise UnsupportedError(f"a {kind} of {longest} over an open size", hint=hint, code="E-SHAPE-001")
        check_elements(count * taps, "the positions that the windows read")
        places = np.arange(count)[:, None] * strides[i] + np.arange(taps) * dilations[i]
        x = b(ops.Gather, x, places.reshape(-1).astype(np.int32), axis=axis)
        strides[i], dilations[i] = taps, 1
    attributes = {**attributes_of(node), "window_strides": tuple(strides), "rhs_dilation": tuple(dilations)}
    return b(ops.Conv, x, node.operand(1), node.optional(2), **attributes)


def _groups_apart(b: Builder, node: Node) -> Value:
    """Compute each group as a convolution of its own, and concatenate the results."""
    groups, attributes = node.attr("feature_group_count"), attributes_of(node)
    x = _parts(b, node.operand(0), groups, attributes["input_feature_dimension"])
    kernel = _parts(b, node.operand(1), groups, attributes["kernel_output_feature_dimension"])
    bias = [None] * groups if node.optional(2) is None else _parts(b, node.operand(2), groups, 0)
    single = {**attributes, "feature_group_count": 1}
    parts = [b(ops.Conv, *each, **single) for each in zip(x, kernel, bias, strict=True)]
    return b(ops.Concatenate, *parts, axis=attributes["output_feature_dimension"])


def _parts(b: Builder, value: Value, count: int, axis: int) -> list[Value]:
    return b.many(ops.Split, value, axis=axis, count=count)


@lift_onnx("DeformConv", since=(19, 22))
def _deform_conv(b: Builder, node: Node) -> Value:
    """Bilinear samples at the window's taps moved by `offset`, times `mask`, times the kernel.

    Source: ONNX DeformConv-19; outside of the map are zeros.
    """
    x, kernel, offset, bias, mask = (node.optional(i) for i in range(5))
    assert x is not None and kernel is not None and offset is not None
    sizes, groups = kernel_sizes(node, kernel), int(node.attr("offset_group", 1))
    spatial = [d for d in offset.shape[2:] if isinstance(d, int)]
    if len(sizes) != 2 or len(spatial) != 2 or not static((x.shape[1], *kernel.shape)):
        raise UnsupportedError("a deformable convolution over other than two axes of known size", code="E-SHAPE-001")
    window = onnx_window(node, sizes, x.shape[2:])
    taps, count = list(window.taps()), spatial[0] * spatial[1]
    check_elements(len(taps) * max(count, *spatial), "the positions of the samples")
    base = [
        [(np.arange(n) * s - p + t[i] * d) for t in taps]
        for i, (n, s, p, d) in enumerate(zip(spatial, window.strides, window.before, window.dilations, strict=True))
    ]
    rows = np.stack([np.repeat(r, spatial[1]) for r in base[0]]).reshape(1, -1)
    columns = np.stack([np.tile(c, spatial[0]) for c in base[1]]).reshape(1, -1)
    lines = [line.astype(x.dtype.numpy) for line in (rows, columns)]
    moved = reshape(b, offset, (x.shape[0], groups, len(taps), 2, count))
    depth, parts = x.shape[1] // groups, []
    for g in range(groups):
        part = FeatureMap(Term(b, sliced(b, x, {1: slice(g * depth, (g + 1) * depth)})))
        places = [_moved(b, moved, g, i, constant(line)) for i, line in enumerate(lines)]
        sampled = part.sampled(places, "linear")
        if mask is not None:
            own = sliced(b, mask, {1: slice(g * len(taps), (g + 1) * len(taps))})
            sampled = sampled * along_channels(Term(b, reshape(b, own, (x.shape[0], len(taps) * count))))
        parts.append(reshape(b, sampled.value, (x.shape[0], len(taps), count, depth)))
    joined = parts[0] if groups == 1 else b(ops.Concatenate, *parts, axis=3)
    result = _contracted(b, joined, kernel, int(node.attr("group", 1)))
    image = transposed(b, reshape(b, result, (x.shape[0], *spatial, kernel.shape[0])), (0, 3, 1, 2))
    return image if bias is None else b(ops.Add, image, reshape(b, bias, (*bias.shape, 1, 1)))


def _moved(b: Builder, offsets: Value, group: int, axis: int, base: Value) -> Term:
    """The places along one axis: [n, taps * positions]."""
    own = b(ops.Gather, b(ops.Gather, offsets, np.asarray(group), axis=1), np.asarray(axis), axis=2)
    flat = reshape(b, own, (offsets.shape[0], product(offsets.shape[2:3]) * product(offsets.shape[4:])))
    return Term(b, b(ops.Add, flat, base))


def _contracted(b: Builder, samples: Value, kernel: Value, groups: int) -> Value:
    """samples [n, taps, p, c] times kernel [o, c / groups, taps...]: [n, p, o]."""
    out, depth = (known_size(d) for d in kernel.shape[:2])
    flat = reshape(b, kernel, (out, depth, product(kernel.shape[2:])))
    parts = []
    for g in range(groups):
        own = sliced(b, samples, {3: slice(g * depth, (g + 1) * depth)})
        rows = sliced(b, flat, {0: slice(g * (out // groups), (g + 1) * (out // groups))})
        axes = {"lhs_contracting_dimensions": (1, 3), "rhs_contracting_dimensions": (2, 1)}
        parts.append(b(ops.DotGeneral, own, rows, **axes))
    return parts[0] if groups == 1 else b(ops.Concatenate, *parts, axis=2)


# --- on quantized operands --------------------------------------------------------------------------------------------

_INTEGER_CONV = QLinearRow("Conv", 22, (Quantized(0, 1, 2), Quantized(3, 4, 5)), result=(6, 7), bias=8)
qlinear("QLinearConv", (10,), _INTEGER_CONV)
qlinear("QLinearConv", (1,), _INTEGER_CONV, MICROSOFT)
qoperator("QLinearConv", _INTEGER_CONV)
