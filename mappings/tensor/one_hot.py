"""One-hot vectors of indices: ONNX OneHot 9 11 28, TFLite ONE_HOT."""

from __future__ import annotations

import numpy as np

from onnxtfl.build.sizes import narrow_constant
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import differ, product
from onnxtfl.ir.facts import never_negative
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import iota, reshape, unsqueezed
from onnxtfl.ir.shapes import normalize_axis, static_ints
from onnxtfl.ir.shown_sizes import shown_shape
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Form, decompose, lift_onnx, lift_tfl, lower_onnx, lower_tfl


@lift_onnx("OneHot", since=(9, 11, 28))
def _one_hot(b: Builder, node: Node) -> Value:
    """OneHot: indices outside of [-depth, depth) select no element; `values` is [off, on]."""
    indices, depth, values = (Term(b, node.operand(i)) for i in range(3))
    places = indices if indices.dtype in (DType.INT32, DType.INT64) else indices.to(DType.INT64)
    size = Term(b, reshape(b, depth.to(places.dtype).value, ()))
    if not never_negative(places.value):
        places = (places < 0).choose(places + size, places)
    shape = node.operand(2).tensor_type.shape
    if shape is not None and differ(product(shape), 2):
        raise ValueError(f"values has the shape {shown_shape(shape)}, not two elements")
    off, on = (values.at(i, 0) for i in range(2))
    axis = normalize_axis(node.attr("axis", -1), indices.rank + 1)
    return places.apply(ops.OneHot, size, on, off, axis=axis).value


@lower_tfl(ops.OneHot)
def _to_tfl_one_hot(node: Node) -> Form:
    indices, depth, on, off = (node.operand(i) for i in range(4))
    axis, rank = node.attr("axis"), indices.rank
    return Form("ONE_HOT", (indices, narrow_constant(depth), on, off), {"axis": -1 if axis in (-1, rank) else axis})


@decompose(ops.OneHot)
def _one_hot_by_comparing(b: Builder, node: Node) -> Value:
    """Compare the positions along the new axis with the indices."""
    indices, depth = node.operand(0), node.operand(1)
    on, off = (reshape(b, node.operand(i), ()) for i in (2, 3))
    axis, known = normalize_axis(node.attr("axis"), indices.rank + 1), static_ints(depth)
    if known is not None:
        check_elements(known[0], "the positions along the new axis")
        places: Value = constant(np.arange(known[0]), indices.dtype)
    else:
        places = iota(b, Term(b, depth).to(indices.dtype).value)
    column = Term(b, places).along(axis, indices.rank + 1)
    return Term(b, unsqueezed(b, indices, [axis])).equals(column).choose(Term(b, on), Term(b, off)).value


@lower_onnx(ops.OneHot)
def _to_onnx_one_hot(node: Node, opset: int) -> Form | None:
    indices, depth, on, off = (node.operand(i) for i in range(4))
    if not on.is_constant or not off.is_constant or not depth.is_constant:
        return None
    if not indices.is_constant and indices.dtype.is_signed:
        return None  # ONNX's negative indices count from the end
    values = np.stack([off.numpy().reshape(()), on.numpy().reshape(())])
    depths = np.asarray(depth.numpy(), np.int64).reshape(())
    return Form("OneHot", (indices, depths, values), {"axis": node.attr("axis")})


@lift_tfl("ONE_HOT")
def _from_tfl_one_hot(b: Builder, node: Node) -> Value:
    axis = node.attr("axis", -1)
    indices, depth, on, off = (node.operand(i) for i in range(4))
    return b(ops.OneHot, indices, depth, on, off, axis=normalize_axis(axis, indices.rank + 1))
