"""Normalizations that are spelled out with means, differences and roots.

::

    %m = Reduce(%x, %axes) mean                       %y = LayerNorm(%x, %scale, %bias)
    %d = Sub(%x, %m)
    %v = Reduce(Mul(%d, %d), %axes) mean        ->
    %n = Mul(%d, Rsqrt(Add(%v, %epsilon)))
    %y = Add(Mul(%n, %scale), %bias)

    x * r + (bias - mean * r), r = rsqrt(variance + epsilon) * scale     the same, as Keras writes it
    statistics over the axes between batch and features                  InstanceNorm
    Add(Mul(%x, %scale), %bias), vectors along one axis                  BatchNormInference
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.matching import SMALL, along_axis, made_by, same, scalar, single_use, with_constant
from onnxtfl.ir.ops.reductions import reduced_axes
from onnxtfl.ir.types import TensorType
from onnxtfl.rewriting.patterns import Patterns

NORMALIZATION = Patterns()
LARGEST_SCALE = 1 << 14
"""Elements of ones that are made where a layer norm has no scale of its own."""


@dataclass(frozen=True)
class Standard:
    """(x - mean) / sqrt(variance + epsilon), statistics over `axes`."""

    x: Value
    axes: tuple[int, ...]
    epsilon: float


def standardized(value: Value) -> Standard | None:
    """What `value` standardizes; None where it is something else."""
    node = made_by(value, ops.Mul, ops.Div)
    if node is None:
        return None
    for apart, other in ((node.operand(0), node.operand(1)), (node.operand(1), node.operand(0))):
        difference = made_by(apart, ops.Sub)
        epsilon = _deviation(other, node.op is ops.Mul)
        if difference is not None and epsilon is not None:
            found = _statistics(difference.operand(0), difference.operand(1), *epsilon)
            if found is not None:
                return found
        if node.op is ops.Div:
            break
    return None


def _deviation(value: Value, inverse: bool) -> tuple[Value, float] | None:
    """The variance and epsilon of sqrt(variance + epsilon), or of the `inverse` of that."""
    root = made_by(value, ops.Rsqrt if inverse else ops.Sqrt)
    quotient = made_by(value, ops.Div) if inverse and root is None else None
    if quotient is not None and scalar(quotient.operand(0)) == 1.0:
        root = made_by(quotient.operand(1), ops.Sqrt)
    total = made_by(root.operand(0), ops.Add) if root is not None else None
    found = with_constant(total) if total is not None else None
    epsilon = scalar(found[1]) if found is not None else None
    return None if found is None or epsilon is None or epsilon < 0 else (found[0], epsilon)


def _statistics(x: Value, mean: Value, variance: Value, epsilon: float) -> Standard | None:
    """Whether these are the mean of `x` and the mean of the squared differences, over the same axes."""
    first, second = made_by(mean, ops.Reduce), made_by(variance, ops.Reduce)
    if first is None or second is None or not same(first.operand(0), x):
        return None
    square = made_by(second.operand(0), ops.Mul)
    difference = made_by(square.operand(0), ops.Sub) if square is not None else None
    if square is None or difference is None or not same(square.operand(0), square.operand(1)):
        return None
    if not same(difference.operand(0), x) or not same(difference.operand(1), mean):
        return None
    if any(r.attr("kind") != "mean" or not r.attr("keepdims") for r in (first, second)):
        return None
    axes = reduced_axes(first)
    if axes is None or axes != reduced_axes(second) or not axes:
        return None
    return Standard(x, tuple(sorted(axes)), epsilon)


def _is_trailing(found: Standard) -> bool:
    return found.axes == tuple(range(found.x.rank - len(found.axes), found.x.rank))


def _vector(value: Value | None, found: Standard) -> Value | None:
    """A constant scale or bias in the shape of the axes normalized; None where it is no such constant."""
    if value is None or value.data is None or value.is_quantized or value.data.size > SMALL or not _is_trailing(found):
        return None
    sizes = found.x.shape[found.axes[0] :]
    given = (1,) * (found.x.rank - len(value.data.shape)) + value.data.shape
    lead, last = given[: found.axes[0]], given[found.axes[0] :]
    if any(d != 1 for d in lead) or len(given) != found.x.rank or not all(isinstance(d, int) for d in sizes):
        return None
    if any(g not in (1, s) for g, s in zip(last, sizes, strict=True)):
        return None
    return constant(np.broadcast_to(value.numpy().reshape(last), sizes))


@NORMALIZATION.on(ops.Mul)
def scaled_layer_norm(b: Builder, node: Node) -> Value | None:
    """Standardized over the last axes, times a constant over these."""
    parts = with_constant(node)
    found = standardized(parts[0]) if parts is not None else None
    if parts is None or found is None:
        return None
    scale = _vector(parts[1], found)
    return None if scale is None else b(ops.LayerNorm, found.x, scale, None, axis=found.axes[0], epsilon=found.epsilon)


@NORMALIZATION.on(ops.Add)
def biased_layer_norm(b: Builder, node: Node) -> Value | None:
    """A bias behind a layer norm that has none."""
    parts = with_constant(node)
    norm = made_by(parts[0], ops.LayerNorm) if parts is not None else None
    if parts is None or norm is None or norm.optional(2) is not None or not single_use(parts[0], b.graph):
        return None
    axis = norm.attr("axis")
    bias = _vector(parts[1], Standard(norm.operand(0), tuple(range(axis, norm.result.rank)), 0.0))
    return None if bias is None else b(ops.LayerNorm, norm.operand(0), norm.operand(1), bias, **norm.attributes)


@NORMALIZATION.on(ops.Add)
def distributed_layer_norm(b: Builder, node: Node) -> Value | None:
    """x * r + (bias - mean * r) with r = rsqrt(variance + epsilon), or that times a constant scale."""
    for left, right in ((0, 1), (1, 0)):
        product, rest = made_by(node.operand(left), ops.Mul), made_by(node.operand(right), ops.Sub)
        back = made_by(rest.operand(1), ops.Mul) if rest is not None else None
        if product is None or rest is None or back is None:
            continue
        for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
            x, factor = product.operand(i), product.operand(1 - i)
            if not same(factor, back.operand(j)):
                continue
            result = _distributed(b, x, back.operand(1 - j), factor, rest.operand(0))
            if result is not None:
                return result
    return None


def _distributed(b: Builder, x: Value, mean: Value, factor: Value, bias: Value) -> Value | None:
    scale: Value | None = None
    times = made_by(factor, ops.Mul)
    parts = with_constant(times) if times is not None else None
    if parts is not None:
        factor, scale = parts[0], parts[1]
    deviation = _deviation(factor, True)
    found = _statistics(x, mean, *deviation) if deviation is not None else None
    if found is None or not _is_trailing(found):
        return None
    ones = constant(np.ones((), x.dtype.numpy))
    vectors = [_vector(v, found) for v in (ones if scale is None else scale, bias)]
    if None in vectors:
        return None
    return b(ops.LayerNorm, x, *vectors, axis=found.axes[0], epsilon=found.epsilon)


@NORMALIZATION.on(ops.Mul, ops.Div)
def bare_norm(b: Builder, node: Node) -> Value | None:
    """Standardized, and no scale of its own behind: over all axes but batch and features, or over the last ones."""
    found = standardized(node.result)
    if found is None or _scaled_later(node.result, found, b.graph):
        return None
    features = [a for a in range(1, found.x.rank) if a not in found.axes]
    single = 0 not in found.axes and len(features) == 1
    count = found.x.shape[features[0]] if single else None
    sizes = [d for d in found.x.shape[found.axes[0] :] if isinstance(d, int)]
    most = min(LARGEST_SCALE, count) if isinstance(count, int) else LARGEST_SCALE
    if _is_trailing(found) and len(sizes) == len(found.axes) and math.prod(sizes) <= most:
        ones = constant(np.ones(sizes, found.x.dtype.numpy))
        return b(ops.LayerNorm, found.x, ones, None, axis=found.axes[0], epsilon=found.epsilon)
    if not isinstance(count, int):
        return None
    one, none = (constant(np.full(count, n, found.x.dtype.numpy)) for n in (1, 0))
    return b(ops.InstanceNorm, found.x, one, none, epsilon=found.epsilon, feature_index=features[0])


def _scaled_later(value: Value, found: Standard, graph: Graph) -> bool:
    """Whether the one user multiplies by a scale that a layer norm would take."""
    users = value.users()
    if len(users) != 1 or users[0].op is not ops.Mul or not single_use(value, graph):
        return False
    parts = with_constant(users[0])
    return parts is not None and _vector(parts[1], found) is not None


@NORMALIZATION.on(ops.Add, ops.Sub)
def batch_norm(b: Builder, node: Node) -> Value | None:
    """x times a vector plus a vector, both along one axis: what batch norm leaves where no convolution takes it up."""
    parts = with_constant(node)
    product = made_by(parts[0], ops.Mul) if parts is not None else None
    inner = with_constant(product) if product is not None else None
    if parts is None or inner is None or (node.op is ops.Sub and parts[2] == 0):
        return None
    x = inner[0]
    if not single_use(parts[0], b.graph) or not _same_shape(x, node.result) or not x.dtype.is_float or x.rank < 3:
        return None
    for axis in range(1, x.rank):
        scale, bias = (_along(v, x, axis) for v in (inner[1], parts[1]))
        if scale is None or bias is None or _size(inner[1]) * _size(parts[1]) == 1:
            continue
        zero, one = np.zeros_like(scale), np.ones_like(scale)
        vectors = (scale, bias if node.op is ops.Add else -bias, zero, one)
        return b(ops.BatchNormInference, x, *vectors, epsilon=0.0, feature_index=axis)
    return None


def _along(value: Value, x: Value, axis: int) -> Array | None:
    size = x.shape[axis]
    vector = along_axis(value, x.rank, axis, size) if isinstance(size, int) else None
    return None if vector is None else np.ascontiguousarray(vector)


def _same_shape(a: Value, b: Value) -> bool:
    if not isinstance(a.type, TensorType) or not isinstance(b.type, TensorType):
        return False
    return a.type.shape is not None and a.type.shape == b.type.shape


def _size(value: Value) -> int:
    return value.data.size if value.data is not None else 0
