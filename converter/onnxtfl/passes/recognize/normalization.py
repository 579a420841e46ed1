"""Normalizations from means, differences and square roots.

::

    %m = Reduce(%x, %axes) mean                       %y = LayerNorm(%x, %scale, %bias)
    %d = Sub(%x, %m)
    %v = Reduce(Mul(%d, %d), %axes) mean        ->
    %n = Mul(%d, Rsqrt(Add(%v, %epsilon)))
    %y = Add(Mul(%n, %scale), %bias)

    x * r + (bias - mean * r), r = rsqrt(variance + epsilon) * scale     the same, as Keras writes it
    statistics over the axes between batch and features                  InstanceNorm
    means of these over groups of features                               GroupNorm
    difference * (Rsqrt(variance + epsilon) * %scale)                    the same
    Add(Mul(%x, %scale), %bias), vectors along one axis                  BatchNormInference
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import at_most, is_static, known_sizes, size_or
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.matching import SMALL, along_axis, made_by, repeated, single_use, splat_value, with_constant
from onnxtfl.ir.ops.reductions import reduced_axes
from onnxtfl.ir.shapes import normalize_axes, static_ints
from onnxtfl.ir.types import DType
from onnxtfl.passes.canonical.templates import Template, fitting
from onnxtfl.rewriting.patterns import Patterns

NORMALIZATION = Patterns()
LARGEST_SCALE = 1 << 14
"""The most elements of an added layer norm scale of ones."""


_QUOTIENTS: tuple[Callable[[Term | float, Term], Term], ...] = (
    lambda x, variance: x * variance.rsqrt(),
    lambda x, variance: x * (1.0 / variance.sqrt()),
    lambda x, variance: x / variance.sqrt(),
)
"""The forms of a quotient by a standard deviation."""


def _formula(
    x: Term, axes: Term, *vectors: Term, epsilon: Term, divided: Callable[[Term | float, Term], Term], **_: object
) -> Term:
    """(x - mean) / deviation; with `vectors` (bias, maybe scale) x * f + (bias - mean * f), f = scale / deviation."""
    mean = x.mean(axes)
    difference = x - mean
    variance = (difference * difference).mean(axes) + epsilon
    if not vectors:
        return divided(difference, variance)
    factor = divided(vectors[1] if len(vectors) > 1 else 1.0, variance)
    return x * factor + (vectors[0] - mean * factor)


@functools.cache
def _templates(distributed: bool) -> tuple[Template, ...]:
    counts, quotients = ((1, 2), _QUOTIENTS[:2]) if distributed else ((0,), _QUOTIENTS)
    return tuple(
        Template.of(
            ops.LayerNorm,
            functools.partial(_formula, divided=divided),
            dtypes=(DType.FLOAT32, DType.INT64, *[DType.FLOAT32] * count),
            absent=(1,),
            parameters=("epsilon",),
        )
        for divided in quotients
        for count in counts
    )


@dataclass(frozen=True)
class Standard:
    """(x - mean) / sqrt(variance + epsilon), statistics over `axes`; `vectors`: the other operands of the formula."""

    x: Value
    axes: tuple[int, ...]
    epsilon: float
    vectors: tuple[Value, ...] = ()


def standardized(value: Value, distributed: bool = False) -> Standard | None:
    """Return the standardization that computes `value` (`distributed`: with bias and optional scale), or None."""
    node = made_by(value)
    found = (t.match(node) for t in fitting(_templates(distributed), node)) if node is not None else ()
    operands, attributes = next((match for match in found if match is not None), ((), {}))
    x, axes, *vectors = operands or (None, None)
    given = static_ints(axes) if axes is not None else None
    if x is None or x.tensor_type.rank is None or attributes["epsilon"] < 0 or (axes is not None and not given):
        return None
    reduced = tuple(range(x.rank)) if given is None else normalize_axes(given, x.rank)
    return Standard(x, tuple(sorted(reduced)), attributes["epsilon"], tuple(v for v in vectors if v is not None))


def _is_trailing(found: Standard) -> bool:
    return found.axes == tuple(range(found.x.rank - len(found.axes), found.x.rank))


def _vector(value: Value | None, found: Standard) -> Value | None:
    """Return a constant scale or bias in the shape of the normalized axes; None for other values."""
    if value is None or value.data is None or value.is_quantized or value.data.size > SMALL or not _is_trailing(found):
        return None
    sizes = found.x.shape[found.axes[0] :]
    given = (1,) * (found.x.rank - len(value.data.shape)) + value.data.shape
    lead, last = given[: found.axes[0]], given[found.axes[0] :]
    if any(d != 1 for d in lead) or len(given) != found.x.rank or not is_static(sizes):
        return None
    if any(g not in (1, s) for g, s in zip(last, sizes, strict=True)):
        return None
    return constant(np.broadcast_to(value.numpy().reshape(last), sizes))


@NORMALIZATION.on(ops.Mul)
def scaled_layer_norm(b: Builder, node: Node) -> Value | None:
    """Fuse a constant factor over the standardized trailing axes."""
    parts = with_constant(node)
    found = standardized(parts[0]) if parts is not None else None
    if parts is None or found is None:
        return None
    scale = _vector(parts[1], found)
    return None if scale is None else b(ops.LayerNorm, found.x, scale, None, axis=found.axes[0], epsilon=found.epsilon)


@NORMALIZATION.on(ops.Mul)
def factor_of_deviation(b: Builder, node: Node) -> Value | None:
    """Mul(Sub(%x, %mean), Mul(Rsqrt(%v), %scale))    ->    Mul(Mul(Sub(%x, %mean), Rsqrt(%v)), %scale)."""
    for place in (0, 1):
        inner, difference = made_by(node.operand(place), ops.Mul), node.operand(1 - place)
        parts = with_constant(inner) if inner is not None and single_use(inner.result, b.graph) else None
        if parts is not None and made_by(parts[0], ops.Rsqrt) is not None and made_by(difference, ops.Sub) is not None:
            return b(ops.Mul, b(ops.Mul, difference, parts[0]), parts[1])
    return None


@NORMALIZATION.on(ops.Add)
def biased_layer_norm(b: Builder, node: Node) -> Value | None:
    """Fuse a bias into a layer norm that has none."""
    parts = with_constant(node)
    norm = made_by(parts[0], ops.LayerNorm) if parts is not None else None
    if parts is None or norm is None or norm.optional(2) is not None or not single_use(parts[0], b.graph):
        return None
    axis = norm.attr("axis")
    bias = _vector(parts[1], Standard(norm.operand(0), tuple(range(axis, norm.result.rank)), 0.0))
    return None if bias is None else b(ops.LayerNorm, norm.operand(0), norm.operand(1), bias, **norm.attributes)


@NORMALIZATION.on(ops.Add)
def distributed_layer_norm(b: Builder, node: Node) -> Value | None:
    """Match x * r + (bias - mean * r) with r = rsqrt(variance + epsilon), optionally times a constant scale."""
    found = standardized(node.result, distributed=True)
    if found is None:
        return None
    bias, scale = (*found.vectors, constant(np.ones((), found.x.dtype.numpy)))[:2]
    vectors = [_vector(v, found) for v in (scale, bias)]
    return None if None in vectors else b(ops.LayerNorm, found.x, *vectors, axis=found.axes[0], epsilon=found.epsilon)


@NORMALIZATION.on(ops.Mul, ops.Div)
def bare_norm(b: Builder, node: Node) -> Value | None:
    """Match a standardization without scale over all axes after the features, or over trailing axes."""
    found = standardized(node.result)
    if found is None or _scaled_later(node.result, found, b.graph):
        return None
    features = [a for a in range(1, found.x.rank) if a not in found.axes]
    single = 0 not in found.axes and len(features) == 1
    count = found.x.shape[features[0]] if single else None
    sizes = known_sizes(found.x.shape[found.axes[0] :])
    most = min(LARGEST_SCALE, size_or(count, LARGEST_SCALE))
    if _is_trailing(found) and len(sizes) == len(found.axes) and math.prod(sizes) <= most:
        ones = constant(np.ones(sizes, found.x.dtype.numpy))
        return b(ops.LayerNorm, found.x, ones, None, axis=found.axes[0], epsilon=found.epsilon)
    if not isinstance(count, int):
        return None
    one, none = (constant(np.full(count, n, found.x.dtype.numpy)) for n in (1, 0))
    return b(ops.InstanceNorm, found.x, one, none, epsilon=found.epsilon, feature_index=features[0])


@NORMALIZATION.on(ops.Mul)
def group_norm(b: Builder, node: Node) -> Value | None:
    """Match a standardization by statistics of groups of features."""
    found = _grouped(node.result)
    if found is None:
        return None
    x, axis, count, epsilon = found
    one, none = (constant(np.full(x.size(axis), n, x.dtype.numpy)) for n in (1, 0))
    return b(ops.GroupNorm, x, one, none, num_groups=count, epsilon=epsilon, feature_index=axis)


def _grouped(value: Value) -> tuple[Value, int, int, float] | None:
    """x, its feature axis, the number of groups, and epsilon of a product of difference and Rsqrt(variance + epsilon),
    of which each statistic is `mean_of_groups`; None for other values.
    """
    product = made_by(value, ops.Mul)
    factors = [] if product is None else [made_by(v, ops.Sub, ops.Rsqrt) for v in product.operands]
    by_op = {node.op: node for node in factors if node is not None}
    if len(by_op) < 2:
        return None
    x, mean = by_op[ops.Sub].operands
    total = made_by(by_op[ops.Rsqrt].operand(0), ops.Add)
    parts = None if total is None else with_constant(total)
    epsilon = None if parts is None else splat_value(parts[1])
    means = [mean_of_groups(v) for v in (mean, parts[0] if parts is not None else None)]
    if epsilon is None or epsilon < 0 or means[0] is None or means[1] is None or means[0][0] is not x:
        return None
    square = made_by(means[1][0], ops.Mul)
    is_variance = square is not None and [*square.operands] == [by_op[ops.Sub].result] * 2
    return (*means[0], epsilon) if is_variance and means[0][1:] == means[1][1:] else None


def mean_of_groups(value: Value | None) -> tuple[Value, int, int] | None:
    """x, the feature axis and the number of groups, for means of x over groups of features and all axes but the batch;
    None for other values.

    Either the mean of all features, or Reshape(BroadcastTo(mean of Reshape(%m: [n, .., c, ..]) [n, groups, size])),
    where %m has the mean of each feature.
    """
    spread = made_by(value, ops.Reshape)
    each = value if spread is None else repeated(spread.operand(0))
    of_group = _mean(each)
    groups = made_by(of_group.operand(0), ops.Reshape) if of_group is not None and spread is not None else of_group
    of_feature = _mean(groups.operand(0)) if groups is not None else None
    if of_group is None or groups is None or of_feature is None or of_feature.operand(0).tensor_type.shape is None:
        return None
    x, reduced = of_feature.operand(0), reduced_axes(of_group)
    kept = [a for a in range(x.rank) if a not in (reduced_axes(of_feature) or ())]
    if len(kept) != 2 or kept[0] != 0 or not isinstance(x.shape[kept[1]], int):
        return None
    if spread is None:
        return (x, kept[1], 1) if reduced == (kept[1],) else None
    grouped = groups.result.tensor_type.shape
    shapes = [v.tensor_type.shape for v in (spread.operand(0), spread.result, of_feature.result)]
    if grouped is None or len(grouped) != 3 or reduced != (2,) or shapes[0] != grouped or shapes[1] != shapes[2]:
        return None
    return (x, kept[1], grouped[1]) if grouped[0] == x.shape[0] and isinstance(grouped[1], int) else None


def _mean(value: Value | None) -> Node | None:
    """The node of a mean that keeps the axes with size 1."""
    node = made_by(value, ops.Reduce)
    return node if node is not None and node.attr("kind") == "mean" and node.attr("keepdims") else None


def _scaled_later(value: Value, found: Standard, graph: Graph) -> bool:
    """Whether the only user multiplies by a scale that a layer norm accepts."""
    users = value.users()
    if len(users) != 1 or users[0].op is not ops.Mul or not single_use(value, graph):
        return False
    parts = with_constant(users[0])
    return parts is not None and _vector(parts[1], found) is not None


@NORMALIZATION.on(ops.Add, ops.Sub)
def batch_norm(b: Builder, node: Node) -> Value | None:
    """Match x * vector + vector along one axis, if not fused into a convolution, as BatchNormInference."""
    parts = with_constant(node)
    product = made_by(parts[0], ops.Mul) if parts is not None else None
    inner = with_constant(product) if product is not None else None
    if parts is None or inner is None or (node.op is ops.Sub and parts[2] == 0):
        return None
    x = inner[0]
    if not single_use(parts[0], b.graph) or x.type != node.result.type or not x.dtype.is_float or x.rank < 3:
        return None
    for axis in range(1, x.rank):
        scale, bias = (_along(v, x, axis) for v in (inner[1], parts[1]))
        if scale is None or bias is None or _size(inner[1]) * _size(parts[1]) == 1:
            continue
        zero, one = np.zeros_like(scale), np.ones_like(scale)
        vectors = (scale, bias if node.op is ops.Add else -bias, zero, one)
        return b(ops.BatchNormInference, x, *vectors, epsilon=0.0, feature_index=axis)
    return None


_MOST_FEATURES = 1 << 20


def _along(value: Value, x: Value, axis: int) -> Array | None:
    size = x.shape[axis]
    vector = along_axis(value, x.rank, axis, size) if at_most(size, _MOST_FEATURES) else None
    return None if vector is None else np.ascontiguousarray(vector)


def _size(value: Value) -> int:
    return value.data.size if value.data is not None else 0
