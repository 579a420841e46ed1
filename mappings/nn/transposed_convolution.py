"""Transposed convolutions.

==============  =============================================================================================
ONNX            ConvTranspose 1 11 22
TFLite          TRANSPOSE_CONV, CONV_3D_TRANSPOSE
==============  =============================================================================================

TFLite's kernels have the result's shape as an operand, and padding SAME or VALID such that a convolution of the result
would have the operand's size. They have no groups and no dilations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onnxtfl.build.convolutions import as_2d, fixed_kernel, kernel_sizes, sized_window
from onnxtfl.build.hybrid import is_hybrid
from onnxtfl.build.operands import flat_bias
from onnxtfl.build.qlinear import MICROSOFT, lift_op
from onnxtfl.build.rows import apply_activation
from onnxtfl.build.sizes import as_int32, clamp_to_int32
from onnxtfl.build.stored import has_weights_of_few_bits, with_weights_in_bytes
from onnxtfl.build.windows import (
    onnx_attributes,
    onnx_window,
    tfl_dilations,
    tfl_options,
    tfl_padding,
    tfl_window,
)
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, is_static, known_size
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.ops.convolution import (
    channels_first_attributes,
    channels_last_attributes,
    spatial_sizes,
    window_attributes,
)
from onnxtfl.ir.ops.padding import spread_out
from onnxtfl.ir.ops.transposed_convolution import transposed_sizes
from onnxtfl.ir.reshape import as_int64, dim_vector, reshape
from onnxtfl.ir.row_quantization import on_int8_grid
from onnxtfl.ir.shapes import known_dims, static_ints
from onnxtfl.ir.source_names import shown_name
from onnxtfl.ir.spatial import LONGEST_STRIDE, Window
from onnxtfl.ir.types import tensor
from onnxtfl.ir.window_padding import Amounts, half, pad_axes
from onnxtfl.rewriting.registry import Computed, Form, decompose, lift_onnx, lift_tfl, lower_onnx, lower_tfl


@lift_onnx("ConvTranspose", since=(1, 11, 22))
def _conv_transpose(b: Builder, node: Node) -> Value:
    x, kernel = node.operand(0), node.operand(1)
    sizes = kernel_sizes(node, kernel)
    window = onnx_window(node, sizes)
    window = replace(window, padding=_cropping(node, window, x))
    attributes = channels_first_attributes(window, node.attr("group", 1))
    return b(ops.ConvTranspose, x, fixed_kernel(b, kernel, sizes), node.optional(2), **attributes)


@lift_onnx("ConvTransposeWithDynamicPads", since=(1,), domain=MICROSOFT)
def _conv_transpose_with_pads(b: Builder, node: Node) -> Value:
    """ConvTranspose with padding as an operand, in the order of the attribute."""
    known, bias = static_ints(node.operand(2)), node.optional(3)
    if known is None:
        raise UnsupportedError("dynamic padding", hint="make it an initializer", code="E-OP-006")
    attributes = {**node.attributes, "pads": known}
    return lift_op(b, "ConvTranspose", 11, [node.operand(0), node.operand(1), bias], attributes)


def _cropping(node: Node, window: Window, x: Value) -> tuple[int, ...]:
    """Return the padding of an ONNX ConvTranspose: pads, output_shape or auto_pad, less output_padding at the ends.

    Source: ONNX ConvTranspose-11: total = stride * (size - 1) + output_padding + span - output_shape; if it is
    odd, SAME_UPPER crops more at the end, other modes more at the beginning. ONNX Runtime does so for version 1 too,
    whose text says the opposite. If it is negative, output_shape extends the end, and auto_pad does not crop: the
    result is then smaller than size * stride (ONNX's shape inference agrees).
    """
    rank, auto_pad = window.rank, node.attr("auto_pad") or "NOTSET"
    grow = tuple(node.attr("output_padding", ())) or (0,) * rank
    if len(grow) != rank or not all(0 <= g <= LONGEST_STRIDE for g in grow):
        raise ValueError(f"output_padding is {list(grow)}")
    wanted = tuple(node.attr("output_shape", ()))[-rank:]
    if not wanted and auto_pad in ("NOTSET", "VALID"):
        return (*window.before, *(p - g for p, g in zip(window.after, grow, strict=True)))
    sizes = x.shape[2:]
    full = [n + g for n, g in zip(transposed_sizes(sizes, window.without_padding()), grow, strict=True)]
    targets = wanted or tuple(n * s for n, s in zip(sizes, window.strides, strict=True))
    totals = [known_size(n - target) for n, target in zip(full, targets, strict=True)]
    cut = [max(t, 0) for t in totals]
    before = [t // 2 if auto_pad == "SAME_UPPER" else t - t // 2 for t in cut]
    return (*before, *(t - f - g for t, f, g in zip(totals if wanted else cut, before, grow, strict=True)))


def _has_groups_or_dilations(node: Node) -> bool:
    return bool(node.attr("feature_group_count") > 1) or max(node.attr("rhs_dilation")) > 1


@lower_tfl(ops.ConvTranspose)
def _transpose_conv(node: Node) -> Form | None:
    rank = len(node.attr("input_spatial_dimensions"))
    if rank not in (2, 3) or _has_groups_or_dilations(node):
        return None
    window, sizes = sized_window(node)
    options = tfl_options(window, transposed_sizes(sizes, window))
    if options is None or _strides_are_too_long(node):
        return None
    bias = node.optional(2)
    operands = (_result_shape(node), node.operand(1), node.operand(0), *([] if bias is None else [bias]))
    if rank == 2:
        return Form("TRANSPOSE_CONV", operands, options)
    return Form("CONV_3D_TRANSPOSE", operands, {**options, **tfl_dilations(window)})


def _result_shape(node: Node) -> Array | Computed:
    shape = node.result.shape
    if is_static(shape):
        return clamp_to_int32(shape)
    return Computed(tensor("int32", len(shape)), lambda b: as_int32(b, dim_vector(b, shape, node.operand(0))))


@lift_tfl("TRANSPOSE_CONV", "CONV_3D_TRANSPOSE")
def _tfl_transpose_conv(b: Builder, node: Node) -> Value:
    """The sizes of the result are an operand; the full convolution is cropped or padded to them."""
    kernel, x = node.operand(1), node.operand(2)
    rank = x.rank - 2
    window = tfl_window(node, kernel.shape[1:3] if rank == 2 else kernel.shape[:3], [1] * rank).without_padding()
    numbers = channels_last_attributes(2, 3, 0, (1, 2)) if rank == 2 else channels_last_attributes(3, 4, 3, (0, 1, 2))
    amounts = _tfl_amounts(b, node, window, x)
    if is_hybrid(x, kernel):
        x = on_int8_grid(b, x, range(1, x.rank), asymmetric=True)
    bias, known = flat_bias(b, node.optional(3)), amounts.known()
    if known is not None:
        window = replace(window, padding=tuple(-p for p in known))
        return apply_activation(b, b(ops.ConvTranspose, x, kernel, bias, **numbers, **window_attributes(window)), node)
    full = b(ops.ConvTranspose, x, kernel, None, **numbers, **window_attributes(window))
    result = pad_axes(b, full, range(1, x.rank - 1), amounts)
    return apply_activation(b, result if bias is None else b(ops.Add, result, bias), node)


def _tfl_amounts(b: Builder, node: Node, window: Window, x: Value) -> Amounts:
    """Return the amounts to add to the full convolution so that it has the sizes in the first operand."""
    wanted = Term(b, b(ops.Slice, as_int64(b, node.operand(0)), [1], [1 + window.rank], [1]))
    full = transposed_sizes(_assumed_sizes(node, window, x), window)
    total = Term(b, dim_vector(b, full, x)) - wanted
    before = half(total.max(0)) if node.attr("padding") == "SAME" else total * 0
    return Amounts(-before, before - total)


def _assumed_sizes(node: Node, window: Window, x: Value) -> list[Dim]:
    """Return the spatial sizes of the operand; for dynamic ones the sizes that a convolution of the result would have.

    For other sizes, LiteRT's kernels fail, XNNPACK returns a shape that the file does not declare, and tflite-runtime
    2.14 crops, which is what the conversion does.
    """
    sizes, wanted = list(x.shape[1:-1]), known_dims(node.operand(0)) or ()
    for i, (size, result, span, stride) in enumerate(
        zip(sizes, wanted[1:-1], window.span, window.strides, strict=False)
    ):
        if not isinstance(result, int):
            continue
        fitting = max(0, -(-(result if node.attr("padding") == "SAME" else result - span + 1) // stride))
        if not isinstance(size, int):
            sizes[i], name = fitting, shown_name(node)
            assume(f"axis {1 + i} of the operand of {name} has {fitting} elements, as the shape of its result implies")
        elif fitting != size:
            text = f"axis {1 + i} of {shown_name(node)} has {result} elements, as its first operand says"
            assume(f"{text}: LiteRT refuses that, since {result} elements need an operand of {fitting}, not {size}")
    return sizes


@lower_onnx(ops.ConvTranspose)
def _onnx_conv_transpose(node: Node, opset: int) -> Form | None:
    """Negative padding at the ends becomes output_padding, which has to be less than the stride in ONNX Runtime."""
    window, _ = sized_window(node)
    grow = tuple(max(0, -p) for p in window.after)
    if any(p < 0 for p in window.before) or any(g >= s for g, s in zip(grow, window.strides, strict=True)):
        return None
    window = replace(window, padding=tuple(max(0, p) for p in window.explicit_padding))
    operands = tuple(v for v in node.operands[:3] if v is not None)
    attributes = {**onnx_attributes(window), "output_padding": grow, "group": node.attr("feature_group_count")}
    return Form("ConvTranspose", operands, attributes)


# --- decompositions: steps towards kernels ----------------------------------------------------------------------------


def _strides_are_too_long(node: Node) -> bool:
    return bool(max(node.attr("window_strides")) > LONGEST_STRIDE)


decompose(ops.ConvTranspose, "tfl", when=has_weights_of_few_bits, benefit=5)(with_weights_in_bytes)
decompose(ops.ConvTranspose, "tfl", when=lambda node: len(node.attr("window_strides")) == 1, benefit=4)(as_2d)


@decompose(ops.ConvTranspose, "tfl", when=_strides_are_too_long, benefit=3)
def _without_strides_of_one(b: Builder, node: Node) -> Value:
    """Shorten strides along axes of one element, where they have no effect."""
    sizes = spatial_sizes(attributes_of(node), "input", node.operand(0).shape)
    strides = tuple(1 if n == 1 else s for n, s in zip(sizes, node.attr("window_strides"), strict=True))
    if max(strides) > LONGEST_STRIDE:
        raise UnsupportedError(f"strides over {LONGEST_STRIDE} in a transposed convolution")
    return b(node.op, *node.operands, **{**node.attributes, "window_strides": strides})


def _has_other_padding(node: Node) -> bool:
    """Whether no padding of TFLite's is that of a convolution of the result with the operand's size."""
    window, sizes = sized_window(node)
    return not _has_groups_or_dilations(node) and tfl_padding(window, transposed_sizes(sizes, window)) is None


def _crops(node: Node) -> bool:
    """Whether the result is cropped."""
    window, _ = sized_window(node)
    return not _has_groups_or_dilations(node) and max(*window.before, *window.after) > 0


@decompose(ops.ConvTranspose, "onnx")
@decompose(ops.ConvTranspose, "gpu", when=_crops)
@decompose(ops.ConvTranspose, "tfl", when=_has_other_padding, benefit=1)
def _conv_transpose_cropped(b: Builder, node: Node) -> Value:
    """::

    %y = ConvTranspose(%x, %k, %b) padding p
      ->
    %y = Add(Pad(ConvTranspose(%x, %k)), %b)     (if the Pad only crops, the bias stays in the ConvTranspose)
    """
    (window, _), dims, bias = sized_window(node), node.attr("output_spatial_dimensions"), node.optional(2)
    grow = [min(max(-p, 0), s - 1) for p, s in zip(window.after, window.strides, strict=True)]
    more = [*(-p for p in window.before), *(-p - g for p, g in zip(window.after, grow, strict=True))]
    inside = bias if max(more) <= 0 else None
    attributes = {**attributes_of(node), "padding": (*(0,) * window.rank, *(-g for g in grow))}
    result = pad_axes(b, b(ops.ConvTranspose, *node.operands[:2], inside, **attributes), dims, more)
    if bias is inside or bias is None:
        return result
    last_axes = result.rank - 1 - node.attr("output_feature_dimension")
    return b(ops.Add, result, reshape(b, bias, (*bias.shape, *[1] * last_axes)))


@decompose(ops.ConvTranspose, "onnx", when=lambda node: node.operand(0).dtype.is_integer, benefit=1)
@decompose(ops.ConvTranspose, "tfl")
def _as_grouped_conv(b: Builder, node: Node) -> Value:
    """Return a Conv with the reversed kernel over the operand with stride - 1 zeros between its elements.

    For groups, dilations, three spatial axes, and integers, for which not every target has a kernel.
    The kernel has the input features of all groups and the output features of one group; Conv's kernel is the
    opposite, so the group axis moves.
    """
    attributes, groups, (window, _) = attributes_of(node), node.attr("feature_group_count"), sized_window(node)
    x = node.operand(0)
    for axis, stride in zip(attributes["input_spatial_dimensions"], window.strides, strict=True):
        x = spread_out(b, x, axis, stride, keep_last=True)
    into, out = attributes["kernel_input_feature_dimension"], attributes["kernel_output_feature_dimension"]
    spatial = attributes["kernel_spatial_dimensions"]
    kernel = _regrouped(b, b(ops.Reverse, node.operand(1), dimensions=tuple(spatial)), into, out, spatial, groups)
    before = [window.span[i] - 1 - window.before[i] for i in range(window.rank)]
    after = [window.span[i] - window.strides[i] - window.after[i] for i in range(window.rank)]
    dense = replace(window, strides=(1,) * window.rank, padding=(*before, *after))
    sides = {k: v for k, v in attributes.items() if k.startswith(("input_", "output_"))}
    return b(ops.Conv, x, kernel, node.optional(2), **{**channels_first_attributes(dense, groups), **sides})


def _regrouped(b: Builder, kernel: Value, into: int, out: int, spatial: Sequence[int], groups: int) -> Value:
    """Reorder [group * input, output, ...] to [group * output, input, ...]."""
    shape = kernel.shape
    ordered = b(ops.Transpose, kernel, permutation=(into, out, *spatial))
    depth, rest = shape[into] // groups, [shape[a] for a in spatial]
    grouped = reshape(b, ordered, (groups, depth, shape[out], *rest))
    swapped = b(ops.Transpose, grouped, permutation=(0, 2, 1, *range(3, 3 + len(rest))))
    return reshape(b, swapped, (groups * shape[out], depth, *rest))
