"""Helpers for the rules of Conv and ConvTranspose: kernel sizes, 1-D convolutions as 2-D."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import differ, is_static
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.ops.convolution import conv_window, known_kernel_sizes, renumbered, spatial_sizes, window_attributes
from onnxtfl.ir.reshape import reshape, with_unit_axis
from onnxtfl.ir.spatial import Window


def kernel_sizes(node: Node, kernel: Value) -> tuple[int, ...]:
    """The spatial sizes of an ONNX kernel, from its type or the attribute kernel_shape.

    Raises ValueError if these differ, UnsupportedError where the sizes are unknown.
    """
    given, shape = tuple(node.attr("kernel_shape", ())), kernel.tensor_type.shape
    sizes = shape[2:] if shape is not None else given
    if not given or given == sizes:
        return known_kernel_sizes(sizes)
    if len(given) != len(sizes) or any(map(differ, given, sizes)):
        message = f"kernel_shape is {list(given)}, the kernel has the shape {kernel.type}"
        raise ValueError(message)
    return given


def fixed_kernel(b: Builder, kernel: Value, sizes: Sequence[int]) -> Value:
    """`kernel`, with the spatial `sizes` in its type if they are unknown there."""
    shape = kernel.tensor_type.shape
    if shape is None or is_static(shape[2:]):
        return kernel
    fixed = (*shape[:2], *sizes)
    if kernel.producer is None:
        kernel.type = kernel.tensor_type.with_shape(fixed)
        return kernel
    return reshape(b, kernel, fixed, kernel)


def sized_window(node: Node) -> tuple[Window, tuple[Any, ...]]:
    """The window of a neutral Conv or ConvTranspose and the spatial sizes of its input."""
    attributes = attributes_of(node)
    return conv_window(attributes, node.operand(1).shape), spatial_sizes(attributes, "input", node.operand(0).shape)


def as_2d(b: Builder, node: Node) -> Value:
    """Return a 1-D Conv as a 2-D one::

    %y = Conv(%x: [n, c, w], %k: [o, i, k])
      ->
    %y = Reshape(Conv(Reshape(%x) [n, c, 1, w], [o, i, 1, k])) [n, o, w']
    """
    attributes, rank = attributes_of(node), node.operand(0).rank
    wide = window_attributes(sized_window(node)[0].with_unit_axis())
    for name in ("input", "kernel", "output"):
        (axis,) = attributes[f"{name}_spatial_dimensions"]
        order = [*range(axis), rank, *range(axis, rank)]
        wide |= renumbered({**attributes, f"{name}_spatial_dimensions": (rank, axis)}, name, order)
    x = with_unit_axis(b, node.operand(0), attributes["input_spatial_dimensions"][0])
    kernel = with_unit_axis(b, node.operand(1), attributes["kernel_spatial_dimensions"][0])
    result = b(node.op, x, kernel, node.optional(2), **{**attributes, **wide})
    return reshape(b, result, node.result.shape)
