"""Regions of interest.

==============  =============================================================================================
ONNX            RoiAlign 10 16 22, MaxRoiPool 1 22
TFLite          by gathering
==============  =============================================================================================
"""

from __future__ import annotations

import functools
import itertools

import numpy as np

from onnxtfl.build.rows import row
from onnxtfl.build.sizes import slice_axes
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import known_size, product, size_or
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.ops.sampling import along_channels, size_in
from onnxtfl.ir.reshape import reshape, transposed, unsqueezed
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Form, decompose, lift_onnx, lower_onnx, upgrade

_Side = list[tuple[Term, Term]]


@upgrade("RoiAlign", since=(10,))
def _roi_align_10(b: Builder, node: Node) -> None:
    """Version 10 has no offset of half an element."""
    node.attributes["coordinate_transformation_mode"] = "output_half_pixel"


@lift_onnx("RoiAlign", since=(16, 22))
def _roi_align(b: Builder, node: Node) -> Value:
    given = {name: node.attr(name) for name in ops.RoiAlign.defaults if node.attr(name) is not None}
    return b(ops.RoiAlign, *node.operands[:3], **given)


@lower_onnx(ops.RoiAlign)
def _onnx_roi_align(node: Node, opset: int) -> Form | None:
    attributes = {name: node.attr(name) for name in ops.RoiAlign.defaults}
    if opset < 16 and attributes.pop("coordinate_transformation_mode") != "output_half_pixel":
        return None
    return Form("RoiAlign", tuple(node.operands), attributes)


@decompose(ops.RoiAlign)
def _roi_align_apart(b: Builder, node: Node) -> Value:
    """Gather the four neighbors of all samples, interpolate, and pool the cells."""
    x, count = node.operand(0), int(node.attr("sampling_ratio"))
    known_size(x.shape[1], "the number of channels of a map with regions")
    if count == 0:
        return _densely_aligned(b, node)
    half, (x1, y1, x2, y2) = _corners(b, node)
    height, width = (size_in(b, d, x, DType.FLOAT32) for d in x.shape[2:])
    rows = _sides(_samples(y1, y2, int(node.attr("output_height")), count, half), height)
    columns = _sides(_samples(x1, x2, int(node.attr("output_width")), count, half), width)
    largest = node.attr("mode") == "max"
    join = Term.max if largest else Term.__add__
    total = functools.reduce(join, weighted_corners(b, x, node.operand(2), rows, columns))
    window = {"kernel_shape": (count, count), "strides": (count, count), "padding": (0, 0, 0, 0), "dilations": (1, 1)}
    pooled = b(ops.MaxPool if largest else ops.AveragePool, total.value, dims=(1, 2), **window)
    return transposed(b, pooled, (0, 3, 1, 2))


def _corners(b: Builder, node: Node) -> tuple[bool, list[Term]]:
    """Whether coordinates are those of half pixels; x1, y1, x2, y2 of the regions in the feature map, each [n, 1]."""
    half = node.attr("coordinate_transformation_mode") == "half_pixel"
    scaled = Term(b, node.operand(1)) * float(node.attr("spatial_scale")) - (0.5 if half else 0.0)
    return half, [Term(b, slice_axes(b, scaled.value, {1: slice(i, i + 1)})) for i in range(4)]


def _densely_aligned(b: Builder, node: Node) -> Value:
    """Average an adaptive number of samples (sampling_ratio = 0), one axis after the other.

    Source: ONNX Runtime, core/providers/cpu/object_detection/roialign.cc.
    """
    if node.attr("mode") == "max":
        raise UnsupportedError("the maximum of an adaptive number of samples (sampling_ratio = 0)")
    assume("no region of a RoiAlign is larger than the feature map")
    x, (half, (x1, y1, x2, y2)) = node.operand(0), _corners(b, node)
    height, width = (size_or(d, 0) for d in x.shape[2:])
    if not height * width:
        raise UnsupportedError(
            "an adaptive number of samples (sampling_ratio = 0) of a map of dynamic size", code="E-SHAPE-001"
        )
    rows = _shares(y1, y2, int(node.attr("output_height")), height, half)
    columns = _shares(x1, x2, int(node.attr("output_width")), width, half)
    if x.shape[0] == 1:
        maps, contracted = reshape(b, x, x.shape[1:]), 1
    else:
        maps, contracted = b(ops.Gather, x, b(ops.Convert, node.operand(2), dtype=DType.INT32), axis=0), 2
    each = {"lhs_batching_dimensions": (0,), "rhs_batching_dimensions": (0,)}
    axes = {"lhs_contracting_dimensions": (2,), "rhs_contracting_dimensions": (contracted,)}
    first = b(ops.DotGeneral, rows.value, maps, **axes, **({} if x.shape[0] == 1 else each))
    axes = {"lhs_contracting_dimensions": (3,), "rhs_contracting_dimensions": (2,)}
    return transposed(b, b(ops.DotGeneral, first, columns.value, **axes, **each), (0, 2, 1, 3))


def _shares(start: Term, end: Term, cells: int, size: int, half: bool) -> Term:
    """Return the weight of each element of an axis in each cell, [regions, cells, size], for regions inside the map."""
    b, most = start.b, -(-size // cells) + 1
    check_elements(cells * most * size, "the samples along a side of a region")
    length = end - start if half else (end - start).max(1.0)
    cell = Term(b, unsqueezed(b, (length * (1.0 / cells)).value, [2]))  # [regions, 1, 1]
    count = cell.apply(ops.Ceil)
    number, sample = (Term(b, constant(np.arange(n, dtype=start.dtype.numpy))) for n in (cells, most))
    within = (sample + 0.5) / count.max(1.0)
    place = cell * (within + number.along(1, 3)) + Term(b, unsqueezed(b, start.value, [2]))
    inside = (place >= -1.0) & (place <= float(size)) & (sample < count)
    clipped = Term(b, unsqueezed(b, place.clamp(0.0, size - 1.0).value, [3]))
    weight = (1.0 - clipped.apply(ops.Sub, constant(np.arange(size, dtype=start.dtype.numpy))).abs()).relu()
    used = Term(b, unsqueezed(b, inside.value, [3])).choose(weight, 0.0)
    return used.reduce("sum", [2], keepdims=False) / count.max(1.0)


def weighted_corners(b: Builder, x: Value, batches: Value, rows: _Side, columns: _Side) -> list[Term]:
    """Interpolate each sample from its neighbors: [regions, rows, columns, channels].

    `batches`: the batch index of each region; `rows`, `columns`: the neighbors along an axis and their weights.
    """
    elements = reshape(b, transposed(b, x, (0, 2, 3, 1)), [product((x.shape[0], *x.shape[2:])), x.shape[1]])
    height, width = (size_in(b, d, x, DType.INT32) for d in x.shape[2:])
    which = reshape(b, b(ops.Convert, batches, dtype=DType.INT32), (batches.shape[0], 1, 1))
    first = Term(b, which) * width * height
    terms = []
    for (line, down), (column, right) in itertools.product(rows, columns):
        index = _column(line) * width + _row(column) + first
        taken = Term(b, b(ops.Gather, elements, index.value, axis=0))
        terms.append(taken * along_channels(_column(down) * _row(right)))
    return terms


def _samples(start: Term, end: Term, cells: int, count: int, half: bool) -> Term:
    """Return the coordinates of the samples along one axis: [regions, cells * count]."""
    check_elements(cells * count, "the samples along a side of a region")
    length = end - start
    cell = (length if half else length.max(1.0)) * (1.0 / cells)
    steps = (np.arange(cells * count) + 0.5) / count
    return cell.apply(ops.Mul, constant(steps.astype(start.dtype.numpy)[None])) + start


def _sides(places: Term, size: Term | float) -> _Side:
    """Return the two neighbors of each coordinate and their weights, which are 0 more than one element outside."""
    inside = ((places >= -1.0) & (places <= size)).to(places.dtype)
    clipped = places.max(0.0).min(size - 1.0)
    low = clipped.floor()
    rest = clipped - low
    high = (low + 1.0).min(size - 1.0)
    return [(low.to(DType.INT32), (1.0 - rest) * inside), (high.to(DType.INT32), rest * inside)]


def _column(term: Term) -> Term:
    return Term(term.b, reshape(term.b, term.value, (*term.value.shape, 1)))


def _row(term: Term) -> Term:
    count, places = term.value.shape
    return Term(term.b, reshape(term.b, term.value, (count, 1, places)))


def _is_channels_first(node: Node) -> bool:
    return bool(node.attr("layout") == "NCHW")


row(ops.MaxRoiPool, onnx="MaxRoiPool", since=(1, 22), attributes="pooled_shape spatial_scale", when=_is_channels_first)
