"""Fusing: arithmetic around convolutions and matmuls goes into their constants; spread-out activations become one op.

::

    Mul(Conv(x, w, b), c)            ->  Conv(x, w*c, b*c)           c a constant for each output feature
    Add(Conv(x, w, b), c)            ->  Conv(x, w, b+c)
    Conv(Pad(x))                     ->  Conv(x) with padding
    Add(DotGeneral(x, w), c)         ->  DotGeneralBias(x, w, c)
    DotGeneral(Flatten(x), w)        ->  DotGeneral(x, w) over several axes, so that x may lie in any order
    x * (1 + Erf(x / sqrt 2)) / 2    ->  Gelu(x)                     and the tanh form
    x * Clamp(x + 3, 0, 6) / 6       ->  HardSwish(x)
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.shapes import static_ints
from onnxtfl.passes.matching import (
    along_axis,
    is_close,
    made_by,
    only_for,
    product_of,
    same,
    scalar,
    sum_with,
    with_constant,
)
from onnxtfl.rewriting.patterns import Patterns

FUSE = Patterns()


def _fusable(b: Builder, node: Node, op: type[ops.Conv] | type[ops.ConvTranspose]) -> tuple[Node, Array, int] | None:
    """The convolution under a binary node, the constant for each of its features, and the constant's place."""
    found = with_constant(node)
    conv = made_by(found[0], op) if found is not None else None
    if found is None or conv is None or not only_for(found[0], b.graph) or not conv.result.dtype.is_float:
        return None
    if node.result.tensor_type.shape != conv.result.tensor_type.shape:
        return None
    axis, rank = conv.attr("output_feature_dimension"), conv.result.rank
    size = conv.result.shape[axis]
    vector = along_axis(found[1], rank, axis, size) if isinstance(size, int) else None
    return None if vector is None else (conv, vector, found[2])


def _add(b: Builder, node: Node, op: type[ops.Conv] | type[ops.ConvTranspose], sign: int) -> Value | None:
    found = _fusable(b, node, op)
    if found is None or (sign < 0 and found[2] == 0):
        return None
    conv, vector, _ = found
    bias = conv.optional(2)
    if bias is not None and not bias.is_constant:
        return None
    total = (bias.numpy() if bias is not None else 0) + sign * vector
    return b(op, conv.operand(0), conv.operand(1), total.astype(vector.dtype), **conv.attributes)


def _scale(b: Builder, node: Node, op: type[ops.Conv] | type[ops.ConvTranspose], divide: bool) -> Value | None:
    found = _fusable(b, node, op)
    if found is None or (divide and found[2] == 0):
        return None
    conv, vector, _ = found
    kernel, bias = conv.operand(1), conv.optional(2)
    grouped = op is ops.ConvTranspose and conv.attr("feature_group_count") > 1
    if kernel.data is None or (bias is not None and not bias.is_constant) or grouped or (divide and not vector.all()):
        return None
    factors = (1 / vector if divide else vector).astype(vector.dtype)
    scaled = constant(kernel.data.scale(factors, conv.attr("kernel_output_feature_dimension")))
    moved = None if bias is None else (bias.numpy() * factors).astype(vector.dtype)
    return b(op, conv.operand(0), scaled, moved, **conv.attributes)


for _op in (ops.Conv, ops.ConvTranspose):
    FUSE.on(ops.Add)(partial(_add, op=_op, sign=1))
    FUSE.on(ops.Sub)(partial(_add, op=_op, sign=-1))
    FUSE.on(ops.Mul)(partial(_scale, op=_op, divide=False))
    FUSE.on(ops.Div)(partial(_scale, op=_op, divide=True))


@FUSE.on(ops.Conv)
def pad_into_conv(b: Builder, node: Node) -> Value | None:
    """A constant pad of zeros on spatial axes is padding of the convolution."""
    pad = made_by(node.operand(0), ops.Pad)
    if pad is None or node.attr("auto_pad") != "NOTSET" or pad.attr("mode") != "constant":
        return None
    amounts, value = static_ints(pad.operand(1)), pad.optional(2)
    if amounts is None or (value is not None and scalar(value) != 0):
        return None
    spatial = node.attr("input_spatial_dimensions")
    pairs = np.asarray(amounts).reshape(-1, 2)
    if pairs.min() < 0 or any(pairs[i].any() for i in range(len(pairs)) if i not in spatial):
        return None
    grown = np.asarray(node.attr("padding")) + np.concatenate([pairs[list(spatial), 0], pairs[list(spatial), 1]])
    padding = tuple(int(p) for p in grown)
    return b(ops.Conv, pad.operand(0), *node.operands[1:], **{**node.attributes, "padding": padding})


@FUSE.on(ops.Add)
def bias_into_dot(b: Builder, node: Node) -> Value | None:
    """A vector along the last axis is the bias of a matmul with a constant matrix."""
    for place in (0, 1):
        dot, other = made_by(node.operand(place), ops.DotGeneral), node.operand(1 - place)
        if dot is None or not only_for(dot.result, b.graph) or not dot.operand(1).is_constant:
            continue
        if dot.attr("rhs_batching_dimensions") or dot.attr("output_permutation"):
            continue
        if dot.operand(1).rank - len(dot.attr("rhs_contracting_dimensions")) != 1 or not dot.result.dtype.is_float:
            continue
        size = dot.result.shape[-1]
        vector = along_axis(other, dot.result.rank, dot.result.rank - 1, size) if isinstance(size, int) else None
        if vector is not None and other.dtype is dot.result.dtype:
            return b(ops.DotGeneralBias, dot.operand(0), dot.operand(1), np.ascontiguousarray(vector), **dot.attributes)
    return None


@FUSE.on(ops.DotGeneral, ops.DotGeneralBias)
def flatten_into_dot(b: Builder, node: Node) -> Value | None:
    """Contract the axes that a Reshape merged; the constant matrix gets as many."""
    flat, matrix = made_by(node.operand(0), ops.Reshape), node.operand(1)
    lhs_axes, rhs_axes = node.attr("lhs_contracting_dimensions"), node.attr("rhs_contracting_dimensions")
    if flat is None or matrix.data is None or node.attr("lhs_batching_dimensions") or len(rhs_axes) != 1:
        return None
    before, after = flat.operand(0).tensor_type.shape, flat.result.tensor_type.shape
    if before is None or after is None or len(after) != 2 or lhs_axes != (1,) or len(before) < 3:
        return None
    merged = [d for d in before[1:] if isinstance(d, int)]
    if before[0] != after[0] or len(merged) < len(before) - 1 or math.prod(merged) != after[1]:
        return None
    (axis,) = rhs_axes
    shape = matrix.data.shape
    weights = constant(matrix.data.reshape((*shape[:axis], *merged, *shape[axis + 1 :])))
    axes = {
        "lhs_contracting_dimensions": tuple(range(1, len(before))),
        "rhs_contracting_dimensions": tuple(range(axis, axis + len(merged))),
    }
    return b(node.op, flat.operand(0), weights, *node.operands[2:], **{**node.attributes, **axes})


@FUSE.on(ops.Mul, ops.Div)
def gelu(b: Builder, node: Node) -> Value | None:
    """The product of x, one half and 1 + Erf(x / sqrt 2), however it is bracketed; and the tanh form."""
    if not node.result.dtype.is_float:
        return None
    product = product_of(node.result, b.graph)
    if len(product.operands) != 2 or not is_close(product.factor, 0.5):
        return None
    for x, other in (product.operands, product.operands[::-1]):
        inner = sum_with(other, 1.0)
        if inner is None or not only_for(other, b.graph):
            continue
        erf, tanh = made_by(inner, ops.Erf), made_by(inner, ops.Tanh)
        if erf is not None and _is_scaled(b, erf.operand(0), x, math.sqrt(0.5)):
            return b(ops.Gelu, x, approximate="none")
        if tanh is not None and _is_gelu_cubic(b, tanh.operand(0), x):
            return b(ops.Gelu, x, approximate="tanh")
    return None


def _is_scaled(b: Builder, value: Value, x: Value, factor: float) -> bool:
    product = product_of(value, b.graph)
    return len(product.operands) == 1 and same(product.operands[0], x) and is_close(product.factor, factor)


def _is_gelu_cubic(b: Builder, value: Value, x: Value) -> bool:
    """Whether `value` is sqrt(2 / pi) * (x + 0.044715 x**3), or x * that * (1 + 0.044715 x**2)."""
    product = product_of(value, b.graph)
    if not is_close(product.factor, math.sqrt(2 / math.pi)):
        return False
    if len(product.operands) == 1:
        total = made_by(product.operands[0], ops.Add)
        pair = list(total.operands) if total is not None else []
        return (
            any(_is(p, x) and _is_power(b, q, x, 3) for p, q in (pair, pair[::-1]) if p and q)
            if len(pair) == 2
            else False
        )
    others = [v for v in product.operands if not same(v, x)]
    inner = sum_with(others[0], 1.0) if len(others) == 1 and len(product.operands) == 2 else None
    return inner is not None and _is_power(b, inner, x, 2)


def _is(value: Value | None, x: Value) -> bool:
    return value is not None and same(value, x)


def _is_power(b: Builder, value: Value, x: Value, exponent: int) -> bool:
    """Whether `value` is 0.044715 * x**exponent."""
    product = product_of(value, b.graph)
    if not is_close(product.factor, 0.044715):
        return False
    return sum(_degree(v, x) for v in product.operands) == exponent


def _degree(value: Value, x: Value) -> float:
    """n where `value` is x**n; NaN for anything else."""
    if same(value, x):
        return 1
    power = made_by(value, ops.Pow)
    if power is not None and same(power.operand(0), x):
        return scalar(power.operand(1)) or math.nan
    times = made_by(value, ops.Mul)
    return sum(_degree(v, x) for v in times.operands if v is not None) if times is not None else math.nan


@FUSE.on(ops.Mul, ops.Div)
def hard_swish(b: Builder, node: Node) -> Value | None:
    """x * Clamp(x + 3, 0, 6) / 6, or x * Clamp(x / 6 + 1/2, 0, 1)."""
    if not node.result.dtype.is_float:
        return None
    product = product_of(node.result, b.graph)
    if len(product.operands) != 2:
        return None
    for x, other in (product.operands, product.operands[::-1]):
        clamp = made_by(other, ops.Clamp)
        if clamp is None or scalar(clamp.optional(1)) != 0.0:
            continue
        top = scalar(clamp.optional(2))
        if top == 6.0 and is_close(product.factor, 1 / 6) and _is(sum_with(clamp.operand(0), 3.0), x):
            return b(ops.HardSwish, x)
        if top == 1.0 and is_close(product.factor, 1.0) and _is_shifted_sixth(b, clamp.operand(0), x):
            return b(ops.HardSwish, x)
    return None


def _is_shifted_sixth(b: Builder, value: Value, x: Value) -> bool:
    inner = sum_with(value, 0.5)
    return inner is not None and _is_scaled(b, inner, x, 1 / 6)


__all__ = ["FUSE"]
