"""Helpers for the rules of Conv and ConvTranspose: dimension numbers, kernel sizes, 1-D convolutions as 2-D."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.ops.convolution import conv_window, spatial_sizes
from onnxtfl.ir.reshape import reshape, with_unit_axis
from onnxtfl.ir.spatial import Window


def window_attributes(window: Window) -> dict[str, Any]:
    """The attributes of the neutral Conv that describe `window`."""
    return {
        "window_strides": window.strides,
        "padding": window.padding,
        "rhs_dilation": window.dilations,
    }


def first(rank: int) -> dict[str, Any]:
    """The dimension numbers of channels-first tensors with `rank` spatial axes."""
    spatial = tuple(range(2, rank + 2))
    return {f"{side}_spatial_dimensions": spatial for side in ("input", "kernel", "output")}


def last(rank: int, kernel_input: int, kernel_output: int, kernel_spatial: Sequence[int]) -> dict[str, Any]:
    """The dimension numbers of channels-last tensors with `rank` spatial axes."""
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
    """The spatial sizes of an ONNX kernel, from its type or the attribute kernel_shape.

    Raises InvalidModelError where these differ, UnsupportedError where the sizes are unknown.
    """
    given = tuple(node.attr("kernel_shape", ()))
    shape = kernel.tensor_type.shape
    if given and shape is not None and not _may_equal(given, shape[2:]):
        raise InvalidModelError(
            f"kernel_shape is {list(given)}, the kernel has the shape {kernel.type}", code="E-FILE-009"
        )
    sizes = given or (shape[2:] if shape is not None else ())
    known = tuple(k for k in sizes if isinstance(k, int))
    if not known or len(known) != len(sizes):
        raise UnsupportedError(
            "the size of the kernel is unknown",
            hint="freeze the kernel, or fix the sizes of the inputs (`input_shapes`)",
            code="E-SHAPE-001",
        )
    return known


def _may_equal(given: Sequence[int], sizes: Sequence[Dim]) -> bool:
    return len(given) == len(sizes) and all(a == b or not isinstance(b, int) for a, b in zip(given, sizes, strict=True))


def fixed_kernel(b: Builder, kernel: Value, sizes: Sequence[int]) -> Value:
    """`kernel` with the spatial `sizes` where they are unknown in its type."""
    shape = kernel.tensor_type.shape
    if shape is None or all(isinstance(d, int) for d in shape[2:]):
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
    attributes = attributes_of(node)
    wide: dict[str, Any] = {}
    for side in ("input", "kernel", "output"):
        wide.update(_unit_axis_numbers(attributes, side))
    for name in ("window_strides", "rhs_dilation"):
        wide[name] = (1, *attributes[name])
    padding = attributes["padding"]
    wide["padding"] = padding if isinstance(padding, str) else (0, padding[0], 0, padding[1])
    x = with_unit_axis(b, node.operand(0), attributes["input_spatial_dimensions"][0])
    kernel = with_unit_axis(b, node.operand(1), attributes["kernel_spatial_dimensions"][0])
    result = b(node.op, x, kernel, node.optional(2), **{**attributes, **wide})
    return reshape(b, result, node.result.shape)


def _unit_axis_numbers(attributes: dict[str, Any], side: str) -> dict[str, Any]:
    """The dimension numbers of one operand or result with a unit axis before the spatial one."""
    (spatial,) = attributes[f"{side}_spatial_dimensions"]
    names = [n for n in attributes if n.startswith(f"{side}_") and n.endswith("_dimension")]
    moved = {n: attributes[n] + (attributes[n] > spatial) for n in names}
    return {**moved, f"{side}_spatial_dimensions": (spatial, spatial + 1)}
