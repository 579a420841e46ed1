"""Experimental ops of ONNX's opsets 1 to 9 that were removed; Caffe2 and early PyTorch wrote them.

Affine, ConstantFill, Crop, DynamicSlice, GivenTensorFill, ImageScaler, ParametricSoftplus, Scale, ScaledTanh; refused:
ATen, GRUUnit.
"""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.build.dtypes import dtype_from
from onnxtfl.build.operands import on_terms
from onnxtfl.build.sizes import slice_axes
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import as_int64
from onnxtfl.rewriting.registry import lift_onnx, refuse_onnx

_VERSIONS = tuple(range(1, 10))


@lift_onnx("Scale", since=_VERSIONS)
@on_terms
def _scale(x: Term, *, scale: float = 1.0) -> Term:
    return x * scale


@lift_onnx("Crop", since=_VERSIONS)
def _crop(b: Builder, node: Node) -> Value:
    """Crop `border` (left, top, right, bottom) of an image [n, c, h, w]; with `scale`, keep [height, width]."""
    x, border, scale = node.operand(0), node.attr("border", (0, 0, 0, 0)), node.attr("scale", None)
    if x.rank != 4 or len(border) != 4 or (scale is not None and len(scale) != 2):
        raise ValueError("an image [n, c, h, w], four borders and two sizes expected")
    left, top, right, bottom = border
    if scale is None:
        rows, columns = slice(top, -bottom or None), slice(left, -right or None)
    else:
        rows, columns = slice(top, top + scale[0]), slice(left, left + scale[1])
    return slice_axes(b, x, {2: rows, 3: columns})


@lift_onnx("DynamicSlice", since=_VERSIONS)
def _dynamic_slice(b: Builder, node: Node) -> Value:
    """Slice-10 without steps."""
    return b.foreign("onnx", "Slice", node.operands, [None], 10)[0]


@lift_onnx("ConstantFill", since=_VERSIONS)
def _constant_fill(b: Builder, node: Node) -> Value:
    """Fill a shape with attribute `value`. Source: Caffe2's ConstantFill, which PyTorch's first exporter wrote."""
    fill = constant(np.asarray(node.attr("value", 0.0)).astype(dtype_from(node.attr("dtype", 1)).numpy))
    return b(ops.BroadcastTo, fill, _filled_shape(b, node))


@lift_onnx("GivenTensorFill", since=_VERSIONS)
def _given_tensor_fill(b: Builder, node: Node) -> Value:
    """Return attribute `values` in a shape."""
    return b(ops.Reshape, constant(np.asarray(node.attr("values", ()), np.float32)), _filled_shape(b, node))


def _filled_shape(b: Builder, node: Node) -> Value:
    """Return the shape of operand 0 (`input_as_shape`: its elements) or attribute `shape`, then `extra_shape`."""
    x = node.optional(0)
    if x is None:
        shape = constant(np.asarray(node.attr("shape", ()), np.int64))
    else:
        shape = as_int64(b, x) if node.attr("input_as_shape", 0) else b(ops.Shape, x)
    extra = list(node.attr("extra_shape", ()))
    return b(ops.Concatenate, shape, extra, axis=0) if extra else shape


refuse_onnx("ATen", why="it calls a PyTorch operator", hint="export the model without ATen fallback")
refuse_onnx(
    "GRUUnit", why="ONNX never defined what it computes", hint="export the model with GRU, or cut it (`inputs`)"
)


@lift_onnx("Affine", since=_VERSIONS)
@on_terms
def _affine(x: Term, *, alpha: float = 1.0, beta: float = 0.0) -> Term:
    return x * alpha + beta


@lift_onnx("ImageScaler", since=_VERSIONS)
def _image_scaler(b: Builder, node: Node) -> Value:
    """Return scale * x + bias[c], c along axis 1."""
    x = Term(b, node.operand(0))
    bias = np.asarray(node.attributes.get("bias", 0.0), x.dtype.numpy).reshape(-1, *[1] * (x.value.rank - 2))
    return (x * float(node.attr("scale", 1.0))).apply(ops.Add, constant(bias)).value


@lift_onnx("ScaledTanh", since=_VERSIONS)
@on_terms
def _scaled_tanh(x: Term, *, alpha: float = 1.0, beta: float = 1.0) -> Term:
    return (x * beta).tanh() * alpha


@lift_onnx("ParametricSoftplus", since=_VERSIONS)
@on_terms
def _parametric_softplus(x: Term, *, alpha: float = 1.0, beta: float = 1.0) -> Term:
    return (x * beta).apply(ops.Softplus, threshold=math.inf) * alpha
