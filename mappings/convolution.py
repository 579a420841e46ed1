"""Convolutions.

==============  =============================================================================================
ONNX            Conv 1 11 22, ConvInteger 10, ConvTranspose 1 11 22, com.microsoft FusedConv
TFLite          CONV_2D, DEPTHWISE_CONV_2D, CONV_3D, TRANSPOSE_CONV, CONV_3D_TRANSPOSE
==============  =============================================================================================

Lowering rules ask for windows by spatial axis, never by position in memory: the layout pass renumbers the axes as
`prefers` says before anything is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder, Operand
from onnxtfl.ir.dims import fresh
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.ops.convolution import conv_window, is_depthwise, spatial_sizes
from onnxtfl.ir.ops.spatial import Window
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.activations import activated
from onnxtfl.rewriting.registry import Form, decompose, lift_onnx, lift_tfl, lower_onnx, lower_tfl
from onnxtfl.rewriting.reshapes import reshaped, with_unit_axis
from onnxtfl.rewriting.windows import (
    onnx_attributes,
    onnx_window,
    padded,
    tfl_dilations,
    tfl_padding,
    tfl_strides,
    tfl_window,
)


def window_attributes(window: Window) -> dict[str, Any]:
    """The window in the attributes of the neutral Conv."""
    return {
        "window_strides": window.strides,
        "padding": window.padding,
        "rhs_dilation": window.dilations,
        "auto_pad": window.auto_pad,
    }


def first(rank: int) -> dict[str, Any]:
    """The dimension numbers of channels-first tensors over `rank` spatial axes."""
    spatial = tuple(range(2, rank + 2))
    return {f"{side}_spatial_dimensions": spatial for side in ("input", "kernel", "output")}


def last(rank: int, kernel_input: int, kernel_output: int, kernel_spatial: Sequence[int]) -> dict[str, Any]:
    """The dimension numbers of channels-last tensors over `rank` spatial axes."""
    spatial = tuple(range(1, rank + 1))
    sides = {
        f"{s}_{k}": v
        for s in ("input", "output")
        for k, v in (("feature_dimension", rank + 1), ("spatial_dimensions", spatial))
    }
    return {
        **sides,
        "kernel_input_feature_dimension": kernel_input,
        "kernel_output_feature_dimension": kernel_output,
        "kernel_spatial_dimensions": tuple(kernel_spatial),
    }


def kernel_sizes(node: Node, kernel: Value) -> tuple[int, ...]:
    """The spatial sizes of an ONNX kernel, from its type or the attribute kernel_shape."""
    given = tuple(node.attr("kernel_shape", ()))
    shape = kernel.tensor_type.shape
    sizes = given or (shape[2:] if shape is not None else ())
    known = tuple(k for k in sizes if isinstance(k, int))
    if not known or len(known) != len(sizes):
        raise UnsupportedError("the size of the kernel is not known", hint="freeze the kernel, or give --input-shape")
    return known


@lift_onnx("Conv", since=(1, 11, 22))
def _conv(b: Builder, node: Node) -> Value:
    return convolved(b, node, node.operand(0), node.operand(1), node.optional(2))


def convolved(b: Builder, node: Node, x: Value, kernel: Value, bias: Value | None) -> Value:
    """A Conv with the window that the ONNX node's attributes say."""
    sizes = kernel_sizes(node, kernel)
    _fix_kernel(kernel, sizes)
    known = x.tensor_type.shape
    window = onnx_window(node, sizes, [fresh() for _ in sizes] if known is None else known[2:])
    attributes = {**first(len(sizes)), **window_attributes(window), "feature_group_count": node.attr("group", 1)}
    return b(ops.Conv, x, kernel, bias, **attributes)


def _fix_kernel(kernel: Value, sizes: Sequence[int]) -> None:
    """Write down what kernel_shape tells of a kernel whose type does not."""
    shape = kernel.tensor_type.shape
    if shape is not None and not all(isinstance(d, int) for d in shape[2:]):
        kernel.type = kernel.tensor_type.with_shape((*shape[:2], *sizes))


@lift_onnx("FusedConv", since=(1,), domain="com.microsoft")
def _fused_conv(b: Builder, node: Node) -> Value:
    result = convolved(b, node, node.operand(0), node.operand(1), node.optional(2))
    extra = node.optional(3)
    result = result if extra is None else b(ops.Add, result, extra)
    name, parameters = node.attr("activation", ""), tuple(node.attr("activation_params", ()))
    simple = {"": lambda: result, "Relu": lambda: b(ops.Relu, result), "Tanh": lambda: b(ops.Tanh, result)}
    simple["Sigmoid"] = lambda: b(ops.Sigmoid, result)
    if name == "LeakyRelu":
        return b(ops.LeakyRelu, result, alpha=parameters[0] if parameters else 0.01)
    if name == "Clip":
        return b(ops.Clamp, result, b.scalar(parameters[0], result), b.scalar(parameters[1], result))
    if name not in simple:
        raise UnsupportedError(f"the activation {name} in FusedConv")
    return simple[name]()


@lift_onnx("ConvInteger", since=(10,))
def _conv_integer(b: Builder, node: Node) -> Value:
    """In int32, the zero points taken away first, so that padding is zero."""
    x, kernel = (b(ops.Convert, node.operand(i), dtype=DType.INT32) for i in (0, 1))
    for i, (wide, axis) in enumerate(((x, 1), (kernel, 0))):
        point = node.optional(i + 2)
        if point is None:
            continue
        offset = b(ops.Convert, point, dtype=DType.INT32)
        if offset.rank == 1 and offset.shape != (1,):
            offset = reshaped(b, offset, (*offset.shape, *[1] * (wide.rank - 1 - axis)))
        moved = b(ops.Sub, wide, offset)
        x, kernel = (moved, kernel) if i == 0 else (x, moved)
    return convolved(b, node, x, kernel, None)


@lift_onnx("ConvTranspose", since=(1, 11, 22))
def _conv_transpose(b: Builder, node: Node) -> Value:
    x, kernel = node.operand(0), node.operand(1)
    sizes = kernel_sizes(node, kernel)
    _fix_kernel(kernel, sizes)
    rank = len(sizes)
    strides = tuple(node.attr("strides", ())) or (1,) * rank
    dilations = tuple(node.attr("dilations", ())) or (1,) * rank
    grow = tuple(node.attr("output_padding", ())) or (0,) * rank
    window = Window(sizes, strides, dilations, (0,) * (2 * rank))
    attributes = {
        **first(rank),
        "window_strides": strides,
        "rhs_dilation": dilations,
        "output_padding": grow,
        "padding": _cropping(node, window, grow, x),
        "feature_group_count": node.attr("group", 1),
    }
    return b(ops.ConvTranspose, x, kernel, node.optional(2), **attributes)


def _cropping(node: Node, window: Window, grow: Sequence[int], x: Value) -> tuple[int, ...]:
    """The padding of an ONNX ConvTranspose: given, or what output_shape or auto_pad leave.

    Source: ONNX ConvTranspose-11: total = stride * (size - 1) + output_padding + span - output_shape; of an odd total
    SAME_UPPER cuts more behind, everything else more in front. ONNX Runtime reads version 1, whose text says the
    opposite, in the same way, and grows the end where the total is negative.
    """
    rank, auto_pad = window.rank, node.attr("auto_pad", "NOTSET") or "NOTSET"
    wanted = tuple(node.attr("output_shape", ()))[-rank:]
    if not wanted and auto_pad in ("NOTSET", "VALID"):
        given = tuple(node.attr("pads", ()))
        return given if given and auto_pad == "NOTSET" else (0,) * (2 * rank)
    totals = []
    for i in range(rank):
        size = x.shape[2 + i]
        if wanted and not isinstance(size, int):
            raise UnsupportedError("output_shape with sizes that are not known", hint="give --input-shape")
        full = window.strides[i] * (size - 1) + grow[i] + window.span[i]
        total = full - (wanted[i] if wanted else size * window.strides[i])
        if not isinstance(total, int):
            raise UnsupportedError("the padding hangs on sizes that are not known", hint="give --input-shape")
        totals.append(total)
    small, big = [max(t, 0) // 2 for t in totals], [max(t, 0) - max(t, 0) // 2 for t in totals]
    before = small if auto_pad == "SAME_UPPER" else big
    return (*before, *(t - f for t, f in zip(totals, before, strict=True)))


def sized_window(node: Node) -> tuple[Window, tuple[Any, ...]]:
    """The window of a neutral Conv and the spatial sizes of its input."""
    attributes = attributes_of(node)
    return conv_window(attributes, node.operand(1).shape), spatial_sizes(attributes, "input", node.operand(0).shape)


def bias_operand(node: Node) -> Operand:
    """The bias; older delegates want one always, so zeros stand in for an absent one of plain float32."""
    bias = node.optional(2)
    features = node.operand(1).shape[node.attr("kernel_output_feature_dimension")]
    if isinstance(node.op, type) and issubclass(node.op, ops.ConvTranspose):
        features = features * node.attr("feature_group_count")
    plain = node.operand(0).dtype is DType.FLOAT32 and node.operand(0).tensor_type.quantization is None
    return np.zeros(features, np.float32) if bias is None and plain and isinstance(features, int) else bias


@lower_tfl(ops.Conv)
def _conv_2d(node: Node) -> Form | None:
    if len(node.attr("input_spatial_dimensions")) != 2 or node.operand(0).tensor_type.shape is None:
        return None
    window, sizes = sized_window(node)
    padding = tfl_padding(window, sizes)
    if padding is None:
        return None
    options = {"padding": padding, "fused_activation_function": "NONE", **tfl_strides(window), **tfl_dilations(window)}
    operands = (node.operand(0), node.operand(1), bias_operand(node))
    if is_depthwise(node):
        features = node.operand(1).shape[node.attr("kernel_output_feature_dimension")]
        return Form(
            "DEPTHWISE_CONV_2D", operands, {**options, "depth_multiplier": features // node.attr("feature_group_count")}
        )
    return Form("CONV_2D", operands, options) if node.attr("feature_group_count") == 1 else None


@lift_tfl("CONV_2D", "DEPTHWISE_CONV_2D")
def _tfl_conv_2d(b: Builder, node: Node) -> Value:
    x, kernel = node.operand(0), node.operand(1)
    window = tfl_window(node, kernel.shape[1:3], x.shape[1:3])
    depthwise = node.op.name == "tfl.DEPTHWISE_CONV_2D"
    numbers = last(2, 0, 3, (1, 2)) if depthwise else last(2, 3, 0, (1, 2))
    groups = x.shape[3] if depthwise else x.shape[3] // kernel.shape[3]
    if not isinstance(groups, int):
        raise UnsupportedError("the number of channels is not known", type_=x.type)
    bias = node.optional(2)
    result = b(ops.Conv, x, kernel, bias, **numbers, **window_attributes(window), feature_group_count=groups)
    return activated(b, result, node)


@lower_onnx(ops.Conv)
def _onnx_conv(node: Node, opset: int) -> Form | None:
    if node.operand(0).tensor_type.shape is None:
        return None
    window, _ = sized_window(node)
    operands = tuple(v for v in node.operands if v is not None)
    return Form("Conv", operands, {**onnx_attributes(window), "group": node.attr("feature_group_count")})


@decompose(ops.Conv, "tfl")
def _conv_for_tfl(b: Builder, node: Node) -> Value | None:
    """One step nearer to CONV_2D: a unit axis, padding apart, groups apart."""
    if node.operand(0).tensor_type.shape is None:
        return None
    window, sizes = sized_window(node)
    if window.rank == 1:
        return _as_2d(b, node)
    if tfl_padding(window, sizes) is None and window.auto_pad == "NOTSET":
        return _pad_apart(b, node, window)
    if node.attr("feature_group_count") > 1 and not is_depthwise(node):
        return _groups_apart(b, node)
    return None


def _as_2d(b: Builder, node: Node) -> Value:
    """::

    %y = Conv(%x: [n, c, w], %k: [o, i, k])
      ->
    %y = Reshape(Conv(Reshape(%x) [n, c, 1, w], [o, i, 1, k])) [n, o, w']
    """
    attributes = attributes_of(node)
    wide: dict[str, Any] = {}
    for side in ("input", "kernel", "output"):
        wide.update(_unit_axis_numbers(attributes, side))
    for name in ("window_strides", "rhs_dilation"):
        wide[name] = (1, *attributes[name])
    low, high = attributes["padding"]
    wide["padding"] = (0, low, 0, high)
    if "output_padding" in attributes:
        wide["output_padding"] = (0, *attributes["output_padding"])
    x = with_unit_axis(b, node.operand(0), attributes["input_spatial_dimensions"][0])
    kernel = with_unit_axis(b, node.operand(1), attributes["kernel_spatial_dimensions"][0])
    result = b(node.op, x, kernel, node.optional(2), **{**attributes, **wide})
    return reshaped(b, result, node.result.shape)


def _unit_axis_numbers(attributes: dict[str, Any], side: str) -> dict[str, Any]:
    """The dimension numbers of one side with a unit axis in front of the spatial one."""
    (spatial,) = attributes[f"{side}_spatial_dimensions"]
    names = [n for n in attributes if n.startswith(f"{side}_") and n.endswith("_dimension")]
    moved = {n: attributes[n] + (attributes[n] > spatial) for n in names}
    return {**moved, f"{side}_spatial_dimensions": (spatial, spatial + 1)}


def _pad_apart(b: Builder, node: Node, window: Window) -> Value:
    x = padded(b, node.operand(0), node.attr("input_spatial_dimensions"), window.padding)
    attributes = {**attributes_of(node), "padding": (0,) * len(window.padding)}
    return b(ops.Conv, x, node.operand(1), node.optional(2), **attributes)


def _groups_apart(b: Builder, node: Node) -> Value:
    """Each group a convolution of its own, the results side by side."""
    groups, attributes = node.attr("feature_group_count"), attributes_of(node)
    x = _parts(b, node.operand(0), groups, attributes["input_feature_dimension"])
    kernel = _parts(b, node.operand(1), groups, attributes["kernel_output_feature_dimension"])
    bias = [None] * groups if node.optional(2) is None else _parts(b, node.operand(2), groups, 0)
    single = {**attributes, "feature_group_count": 1}
    parts = [b(ops.Conv, *each, **single) for each in zip(x, kernel, bias, strict=True)]
    return b(ops.Concatenate, *parts, axis=attributes["output_feature_dimension"])


def _parts(b: Builder, value: Value, count: int, axis: int) -> list[Value]:
    size = value.shape[axis] // count
    return b.many(ops.Split, value, [size] * count, axis=axis)
