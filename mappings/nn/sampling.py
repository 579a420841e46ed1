"""Sampling of feature maps at computed coordinates.

==============  =============================================================================================
ONNX            AffineGrid 20, GridSample 16 20 22
TFLite          by gathering
==============  =============================================================================================
"""

from __future__ import annotations

import math

from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.build.runtime_axes import named_factors
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import known_sizes
from onnxtfl.ir.formula import Term, real_type
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import iota, reshape
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Form, lift_onnx, lower_onnx


@lift_onnx("AffineGrid", since=(20,))
def _affine_grid(b: Builder, node: Node) -> Value:
    """Apply theta [n, r, r + 1] to the coordinates of a map of `size` [n, c, spatial...]: [n, spatial..., r]."""
    theta, size, corners = node.operand(0), node.operand(1), bool(node.attr("align_corners", 0))
    size, (_, _, *counts) = named_factors(b, size)
    rank = theta.size(1)
    if len(counts) != rank:
        raise ValueError(f"`size` has {len(counts) + 2} entries, theta {rank} spatial axes")
    spatial = Term(b, size).apply(ops.Slice, [2], [rank + 2], [1])
    check_elements((rank + 1) * math.prod(known_sizes(counts)), "the points of the grid")
    places = [_centers(spatial.apply(ops.Gather, [i], axis=0), corners).to(theta.dtype) for i in range(rank)]
    shape = spatial.apply(ops.Concatenate, [1], axis=0)
    columns = [p.along(i, rank + 1).apply(ops.BroadcastTo, shape) for i, p in reversed([*enumerate(places)])]
    ones = columns[0].constant(1.0).apply(ops.BroadcastTo, shape)
    table = columns[0].apply(ops.Concatenate, *columns[1:], ones, axis=rank).apply(ops.Reshape, [-1, rank + 1])
    grid = Term(b, theta).dot(table, (2,), (1,), output_permutation=(0, 2, 1))
    return reshape(b, grid.value, (theta.shape[0], *counts, rank), theta, size)


def _centers(count: Term, corners: bool) -> Term:
    """Return the centers of `count` elements in [-1, 1]; with `corners`, the outer ones are -1 and 1.

    With `corners`, a single element is at 1, as in ONNX Runtime (not in ONNX's reference).
    """
    real = real_type(count)
    index, count = Term(count.b, iota(count.b, count.value)).to(real), count.to(real)
    if corners:
        return 1.0 - (count - 1.0 - index) * 2.0 / (count - 1.0).max(1.0)
    return (index * 2.0 + 1.0) / count - 1.0


_MODES = {"bilinear": "linear", "bicubic": "cubic"}


@lift_onnx("GridSample", since=(1,), domain=MICROSOFT)
@lift_onnx("GridSample", since=(16, 20, 22))
def _grid_sample(b: Builder, node: Node) -> Value:
    mode = node.attr("mode", "linear")
    attributes = {"mode": _MODES.get(mode, mode), "padding_mode": node.attr("padding_mode", "zeros")}
    attributes["align_corners"] = bool(node.attr("align_corners", 0))
    x = node.operand(0)
    wide = _sampled_as(x.dtype, attributes["mode"] == "nearest")
    found = b(ops.GridSample, b(ops.Convert, x, dtype=wide), node.operand(1), **attributes)
    return b(ops.Convert, found, dtype=x.dtype)


def _sampled_as(dtype: DType, nearest: bool) -> DType:
    """Return the dtype in which a map is sampled. UnsupportedError for interpolated integers: no runtime has such a
    kernel, and ONNX's reference casts the weights to integers.
    """
    if dtype.is_float or (nearest and dtype.is_integer):
        return dtype
    if nearest and dtype is DType.BOOL:
        return DType.UINT8
    raise UnsupportedError(f"interpolated elements of type {dtype.value}", hint="cast the map to float32")


@lower_onnx(ops.GridSample)
def _onnx_grid_sample(node: Node, opset: int) -> Form | None:
    """Versions before 20 have two spatial axes, and other names for the modes."""
    if opset < 16 or (opset < 20 and node.operand(0).tensor_type.rank != 4):
        return None
    if node.attr("padding_mode") in ("centers", "edges"):
        return None
    mode = node.attr("mode")
    if opset < 20:
        mode = {new: old for old, new in _MODES.items()}.get(mode, mode)
    corners = int(node.attr("align_corners"))
    attributes = {"mode": mode, "padding_mode": node.attr("padding_mode"), "align_corners": corners}
    return Form("GridSample", tuple(node.operands), attributes)
