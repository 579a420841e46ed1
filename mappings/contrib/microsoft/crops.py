"""com.microsoft CropAndResize: crop boxes from feature maps and resize them to one size, as TensorFlow's CropAndResize.

A box is (y1, x1, y2, x2) in coordinates where 0 and 1 are the centers of the first and the last element. The first and
the last sample are at the corners of the box; a single sample is at its center. Samples outside of the map are
`extrapolation_value`. Source: ONNX Runtime crop_and_resize.cc."""

from __future__ import annotations

import functools

from onnxtfl.mappings.nn.regions import weighted_corners

from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.build.sizes import slice_axes
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import known_sizes
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.ops.sampling import along_channels
from onnxtfl.ir.reshape import transposed, unsqueezed
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_onnx


@lift_onnx("CropAndResize", since=(1,), domain=MICROSOFT)
def _crop_and_resize(b: Builder, node: Node) -> Value:
    """The crops [boxes, c, crop height, crop width] of x [n, c, h, w]."""
    x, boxes, crop_sizes, mode = node.operand(0), node.operand(1), static_ints(node.operand(3)), node.attr("mode")
    sizes = known_sizes(x.shape[2:])
    if crop_sizes is None or len(sizes) != 2:
        raise UnsupportedError(
            "CropAndResize needs a constant crop size, and feature maps of known height and width", code="E-SHAPE-001"
        )
    if mode not in (None, "bilinear", "nearest") or min([*crop_sizes, *sizes]) < 1:
        raise ValueError(
            f"mode is {mode!r} (bilinear or nearest), crop size {crop_sizes}, map size {sizes} (at least 1 expected)"
        )
    y1, x1, y2, x2 = (Term(b, slice_axes(b, boxes, {1: slice(i, i + 1)})) for i in range(4))
    rows = _sample_coordinates(y1, y2, crop_sizes[0], sizes[0])
    columns = _sample_coordinates(x1, x2, crop_sizes[1], sizes[1])
    neighbors = [_neighbors(coordinates, size, mode) for coordinates, size in zip((rows, columns), sizes, strict=True)]
    total = functools.reduce(Term.__add__, weighted_corners(b, x, node.operand(2), *neighbors))
    is_inside = along_channels(_unsqueeze(_is_inside(rows, sizes[0]), 2) & _unsqueeze(_is_inside(columns, sizes[1]), 1))
    crops = is_inside.choose(total, float(node.attr("extrapolation_value", 0.0)))
    return transposed(b, crops.value, (0, 3, 1, 2))


def _sample_coordinates(start: Term, end: Term, count: int, size: int) -> Term:
    """The `count` coordinates sampled along one side of each box [boxes, count]; the first and last one are exact."""
    check_elements(count, "the samples along one side of a box")
    if count == 1:
        return (start + end) * (0.5 * (size - 1))
    first, last = start * float(size - 1), end * float(size - 1)
    step = (end - start) * float(size - 1) * (1 / (count - 1))
    inner = [first + step * float(i) for i in range(1, count - 1)]
    return Term(start.b, start.b(ops.Concatenate, *(t.value for t in (first, *inner, last)), axis=1))


def _is_inside(coordinates: Term, size: int) -> Term:
    """Whether coordinates are within an axis of `size` elements."""
    return (coordinates >= 0.0) & (coordinates <= float(size - 1))


def _neighbors(coordinates: Term, size: int, mode: str | None) -> list[tuple[Term, Term]]:
    """The indices and weights of the two elements next to each coordinate; for "nearest" (half up), of one element."""
    clipped = coordinates.max(0.0).min(float(size - 1))
    low = (clipped + 0.5).floor() if mode == "nearest" else clipped.floor()
    index = low.to(DType.INT32)
    if mode == "nearest":
        return [(index, clipped * 0.0 + 1.0)]
    fraction = clipped - low
    return [(index, 1.0 - fraction), ((low + 1.0).min(float(size - 1)).to(DType.INT32), fraction)]


def _unsqueeze(term: Term, axis: int) -> Term:
    return Term(term.b, unsqueezed(term.b, term.value, [axis]))
