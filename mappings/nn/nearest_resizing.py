"""RESIZE_NEAREST_NEIGHBOR, also where it and ONNX's Resize read different elements."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.resampling import Sampling
from onnxtfl.ir.reshape import dim_value
from onnxtfl.ir.shown_sizes import is_of_inputs
from onnxtfl.ir.source_names import shown_name
from onnxtfl.ir.types import DType
from onnxtfl.kernels.resize_nearest_neighbor import computed_tfl_nearest, tfl_nearest, tfl_nearest_of_bytes
from onnxtfl.rewriting.registry import lift_tfl

_BYTES = (DType.INT8, DType.UINT8)


def is_of_bytes(x: Value) -> bool:
    """Whether the elements are stored in 8 bits."""
    quantization = quantization_of(x)
    return (x.dtype if quantization is None else quantization.dtype) in _BYTES


def _neighbors_like_tfl(b: Builder, node: Node, sampling: Sampling) -> tuple[Value, list[int]]:
    """Gather along the axes where `sampling` and the kernel read different elements; return that and the other axes.

    For dynamic sizes these are all axes if both options are set, since no ONNX mode matches.
    """
    x, left = node.operand(0), []
    corners, centers = bool(node.attr("align_corners")), bool(node.attr("half_pixel_centers"))
    for i, axis in enumerate((1, 2)):
        size, resized = x.shape[axis], _new_size(node, i)
        index: Array | Value
        if isinstance(size, int) and isinstance(resized, int) and size:
            index = tfl_nearest(size, resized, corners, centers)
            if is_of_bytes(x) and not corners and not centers:
                index = tfl_nearest_of_bytes(size, resized)
            if (sampling.nearest(sampling.coordinates(size, resized, resized / size), size) == index).all():
                left.append(axis)
                continue
        elif corners and centers:
            count = b(ops.Gather, node.operand(1), [i], axis=0)
            index = computed_tfl_nearest(b, dim_value(b, size, node.operand(0)), count)
        else:
            assume_multiples(node, size, resized)
            left.append(axis)
            continue
        x = b(ops.Gather, x, index if isinstance(index, Value) else index.astype(np.int32), axis=axis)
    return x, left


def assume_multiples(node: Node, size: Dim, resized: Dim | None) -> None:
    """Record an assumption about dynamic sizes, since LiteRT multiplies by a ratio and ONNX Runtime divides."""
    ratio = None if resized is None else resized // size
    if not isinstance(ratio, int) or resized != size * ratio:
        text = "is a multiple of the old one (for other sizes, rounding may select an adjacent element)"
        is_minor = not (is_of_inputs(size) and is_of_inputs(resized))
        assume(f"a new size of {shown_name(node)} {text}", is_minor=is_minor)


def _new_size(node: Node, i: int) -> Dim | None:
    known = node.operand(1).known
    return None if known is None else known[i]


def kernel_places(corners: bool, centers: bool) -> dict[str, str]:
    """Return the attributes of Resize for TFLite's options; ONNX has no mode for both options together."""
    if corners:
        return {"coordinate_transformation_mode": "align_corners", "nearest_mode": "round_prefer_ceil"}
    if centers:
        return {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}
    return {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


@lift_tfl("RESIZE_NEAREST_NEIGHBOR")
def _tfl_nearest_neighbor(b: Builder, node: Node) -> Value:
    """Resize along axes where it reads the elements that the kernel reads, else Gather: rounding may differ.

    Source: LiteRT resize_nearest_neighbor.h (reference).
    """
    places = kernel_places(bool(node.attr("align_corners")), bool(node.attr("half_pixel_centers")))
    attributes = {**ops.Resize.defaults, **places, "mode": "nearest"}
    x, dims = _neighbors_like_tfl(b, node, Sampling.of(attributes))
    if not dims:
        return x
    sizes = node.operand(1) if len(dims) == 2 else b(ops.Gather, node.operand(1), [dims[0] - 1], axis=0)
    bits = b(ops.Convert, x, dtype=DType.UINT8) if x.dtype is DType.BOOL else x
    resized = b(ops.Resize, bits, sizes, dims=tuple(dims), mode="nearest", **places)
    return b(ops.Convert, resized, dtype=x.dtype) if x.dtype is DType.BOOL else resized
