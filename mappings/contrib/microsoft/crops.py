"""com.microsoft CropAndResize: boxes cut out of feature maps and resized to one size, as TensorFlow's op of that name.

Source: ONNX Runtime crop_and_resize.cc. A box is (y1, x1, y2, x2), where 0 and 1 are the centers of the outer elements;
the samples at its ends are on its corners, a single one at its middle. Samples beyond the map are a given value."""

from __future__ import annotations

import functools

from onnxtfl.mappings.nn.regions import weighted_corners

from onnxtfl.build.qlinear import MICROSOFT
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
    x, boxes, counts, mode = node.operand(0), node.operand(1), static_ints(node.operand(3)), node.attr("mode")
    sizes = known_sizes(x.shape[2:])
    if counts is None or len(sizes) != 2:
        raise UnsupportedError("crops of a size, or of maps of sizes, that are not known", code="E-SHAPE-001")
    if mode not in (None, "bilinear", "nearest") or min([*counts, *sizes]) < 1:
        raise ValueError(f"mode {mode!r}, crops of {counts}, maps of {sizes}")
    y1, x1, y2, x2 = (Term(b, b(ops.Slice, boxes, [0, i], [1 << 30, i + 1], [1, 1])) for i in range(4))
    rows, columns = _samples(y1, y2, counts[0], sizes[0]), _samples(x1, x2, counts[1], sizes[1])
    sides = [_sides(places, size, mode) for places, size in zip((rows, columns), sizes, strict=True)]
    total = functools.reduce(Term.__add__, weighted_corners(b, x, node.operand(2), *sides))
    inside = along_channels(_axis(_inside(rows, sizes[0]), 2) & _axis(_inside(columns, sizes[1]), 1))
    crops = inside.choose(total, float(node.attr("extrapolation_value", 0.0)))
    return transposed(b, crops.value, (0, 3, 1, 2))


def _samples(start: Term, end: Term, count: int, size: int) -> Term:
    """The places sampled along a side: [boxes, count]; start and end are exact."""
    check_elements(count, "the samples along a side of a box")
    if count == 1:
        return (start + end) * (0.5 * (size - 1))
    first, last = start * float(size - 1), end * float(size - 1)
    step = (end - start) * float(size - 1) * (1 / (count - 1))
    inner = [first + step * float(i) for i in range(1, count - 1)]
    return Term(start.b, start.b(ops.Concatenate, *(t.value for t in (first, *inner, last)), axis=1))


def _inside(places: Term, size: int) -> Term:
    return (places >= 0.0) & (places <= float(size - 1))


def _sides(places: Term, size: int, mode: str | None) -> list[tuple[Term, Term]]:
    """The neighbours of each place along an axis, and their weights; "nearest" rounds half up."""
    clipped = places.max(0.0).min(float(size - 1))
    low = (clipped + 0.5).floor() if mode == "nearest" else clipped.floor()
    whole = low.to(DType.INT32)
    if mode == "nearest":
        return [(whole, clipped * 0.0 + 1.0)]
    rest = clipped - low
    return [(whole, 1.0 - rest), ((low + 1.0).min(float(size - 1)).to(DType.INT32), rest)]


def _axis(term: Term, axis: int) -> Term:
    return Term(term.b, unsqueezed(term.b, term.value, [axis]))
