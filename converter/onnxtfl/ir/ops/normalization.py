"""Normalization by given statistics (BatchNormInference) or computed ones (batch, layer, instance, group, LRN)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from onnxtfl.ir.attributes import Axis, Float, Integer
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim, differ, known_of
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.formula import Formula, Term, by_expansion, by_formula
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import FLOATS, Operand, SharedAxes
from onnxtfl.ir.ops.broadcasting import BroadcastTo
from onnxtfl.ir.ops.pooling import AveragePool
from onnxtfl.ir.reshape import dim_vector, reshape
from onnxtfl.ir.shapes import broadcast_shapes, check_features, check_spreads, normalize_axis
from onnxtfl.ir.spatial import LARGEST_WINDOW


def standardized(x: Term, axes: Iterable[int], epsilon: float) -> tuple[Term, Term, Term]:
    """(x - mean) / sqrt(variance + epsilon) over `axes`, the mean, and 1 / sqrt(variance + epsilon)."""
    axes = list(axes)
    mean, difference, inverse = _statistics(x, lambda v: v.mean(axes), epsilon)
    return difference * inverse, mean, inverse


def _statistics(x: Term, mean_of: Callable[[Term], Term], epsilon: float) -> tuple[Term, Term, Term]:
    """The mean, x - mean, and 1 / sqrt(variance + epsilon)."""
    mean = mean_of(x)
    difference = x - mean
    return mean, difference, (mean_of(difference * difference) + epsilon).rsqrt()


def _scaled(
    x: Term, mean_of: Callable[[Term], Term], epsilon: float, scale: Term, bias: Term, feature_index: int
) -> Term:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, where statistics have as many elements as features."""
    _, difference, inverse = _statistics(x, mean_of, epsilon)
    factor, offset = (v.along(feature_index, x.rank) for v in (scale, bias))
    return difference * (inverse * factor) + offset


class BatchNormInference(Formula):
    """output = (input - mean) / sqrt(variance + epsilon) * scale + bias, each a vector along `feature_index`.

    The vectors may be of another float type than the input (ONNX BatchNormalization-15). Source: neutral-ops 3.14.
    """

    core = True
    operands = (
        *(Operand(name, FLOATS) for name in ("input", "scale", "bias", "mean")),
        Operand("variance", FLOATS, likely=(0.5, 1.5)),
    )
    attributes = {"epsilon": Float(1e-5), "feature_index": Axis()}
    shared_axes = SharedAxes(attributes=("feature_index",))

    @staticmethod
    def shape(x: Value, *vectors: Value, feature_index: int) -> Dims:
        if not 0 <= feature_index < x.rank:
            raise ValueError(f"feature axis {feature_index} of a tensor of rank {x.rank}")
        return check_features(x, feature_index, *vectors)

    @classmethod
    def formula(
        cls, x: Term, scale: Term, bias: Term, mean: Term, variance: Term, epsilon: float, feature_index: int
    ) -> Term:
        """x * a + c, where a and c are constant if all vectors are."""
        factor = scale.to(variance.dtype) / (variance + epsilon).sqrt()
        offset = bias.to(variance.dtype) - mean.to(variance.dtype) * factor
        along = (v.to(x.dtype).along(feature_index, x.rank) for v in (factor, offset))
        return x * next(along) + next(along)


class LRN(Formula):
    """x / (bias + alpha / size * sum of squares) ^ beta, the sum over `size` neighbors along `axis`.

    The window begins (size - 1) // 2 channels before; channels outside are zeros. Source: ONNX LRN-13 (added).
    """

    core = True
    operands = (Operand("input", FLOATS),)
    attributes = {"axis": Axis(), "size": Integer(), "alpha": Float(1e-4), "beta": Float(0.75), "bias": Float(1.0)}
    shared_axes = SharedAxes(attributes=("axis",))

    @staticmethod
    def shape(x: Value, *, size: int) -> Dims:
        if not 1 <= size < LARGEST_WINDOW:
            raise ValueError(f"size {size}")
        return x.shape

    @classmethod
    def formula(cls, x: Term, axis: int, size: int, alpha: float, beta: float, bias: float) -> Term:
        window = {"kernel_shape": (size,), "strides": (1,), "padding": ((size - 1) // 2, size // 2), "dilations": (1,)}
        mean = (x * x).apply(AveragePool, dims=(axis % x.rank,), **window, count_include_pad=True)
        return x * (mean * alpha + bias).power(-beta)


_SCALED = tuple(Operand(name, FLOATS) for name in ("input", "scale", "bias"))


def _spread_over(x: Value, *others: Value | None) -> Dims:
    """Return the shape of `x`, to which scale and bias broadcast; they determine dynamic sizes."""
    check_spreads(x, *others)
    shape = broadcast_shapes(x.shape, *(v.tensor_type.shape for v in others if v is not None)) or x.shape
    return tuple(map(known_of, x.shape, shape))


def _by_feature(x: Value, *vectors: Value | None, feature_index: int) -> Dims:
    """Return the shape of `x`; `vectors` have one element per feature."""
    return check_features(x, feature_index, *vectors)


@by_formula(
    Formula,
    operands=(*_SCALED[:2], Operand("bias", FLOATS, optional=True)),
    shape=staticmethod(_spread_over),
)
def LayerNorm(x: Term, scale: Term, bias: Term | None, axis: int = -1, epsilon: float = 1e-5) -> Term:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, statistics over the axes from `axis` on.

    Source: neutral-ops 3.71.
    """
    result = standardized(x, range(normalize_axis(axis, x.rank), x.rank), epsilon)[0] * scale
    return result if bias is None else result + bias


@by_formula(
    Formula,
    operands=_SCALED,
    shape=staticmethod(_by_feature),
    shared_axes=SharedAxes(attributes=("batch_index", "feature_index"), independent=False),
)
def InstanceNorm(
    x: Term, scale: Term, bias: Term, epsilon: float = 1e-5, batch_index: int = 0, feature_index: int = 1
) -> Term:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, statistics over all axes but batch and features.

    `scale` and `bias` have an entry for each feature. Source: neutral-ops 3.68; ONNX InstanceNormalization-6.
    """
    axes = [a for a in range(x.rank) if a not in (batch_index, feature_index)]
    return _scaled(x, lambda v: v.mean(axes), epsilon, scale, bias, feature_index)


@by_formula(Formula, operands=_SCALED)
def GroupNorm(x: Term, scale: Term, bias: Term, num_groups: int, epsilon: float = 1e-5, feature_index: int = 1) -> Term:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, statistics over each of `num_groups` groups of features.

    Axis 0 is the batch; scale and bias have an entry for each feature. Source: neutral-ops 3.62; ONNX
    GroupNormalization-21.
    """
    shape, axis = x.value.shape, normalize_axis(feature_index, x.rank)
    check_features(x.value, axis, scale.value, bias.value)
    features = scale.value.shape[0] if shape[axis] != 1 and scale.value.shape[0] != 1 else shape[axis]
    if differ(features % num_groups, 0):
        raise ValueError(f"{features} features in {num_groups} groups")
    # a scale of one element is valid for any number of features: ONNX Runtime broadcasts it
    mean = partial(_mean_of_groups, axis=axis, count=num_groups, size=features // num_groups)
    return _scaled(x, mean, epsilon, scale, bias, axis)


def _mean_of_groups(x: Term, axis: int, count: int, size: Dim) -> Term:
    """The mean over each of `count` groups of `size` features along `axis` and all axes but the first, [n, .., c, ..].

    Each feature's mean is first: kernels do not have to go through the elements of `x` by group.
    """
    others = [a for a in range(1, x.rank) if a != axis]
    means = x.mean(others) if others else x
    if count == 1:
        return means.mean([axis])
    if size == 1:
        return means
    b, shape = x.b, means.value.shape
    groups = Term(b, reshape(b, means.value, (shape[0], count, size))).mean([2])
    each = groups.apply(BroadcastTo, dim_vector(b, (shape[0], count, size), means.value))
    return Term(b, reshape(b, each.value, shape, x.value))


@by_expansion(*_SCALED, results=tuple(Operand(name) for name in ("output", "mean", "variance")))
def BatchNormTraining(
    b: Builder, x: Value, scale: Value, bias: Value, epsilon: float = 1e-5, feature_index: int = 1
) -> list[Value]:
    """BatchNormInference by the statistics of the batch itself, which are the other results, both [features].

    mean and variance (not corrected) are over all axes but `feature_index`. Source: neutral-ops 3.15; XLA.
    """
    term, axis = Term(b, x), normalize_axis(feature_index, x.rank)
    axes = [a for a in range(x.rank) if a != axis]
    mean = term.mean(axes)
    difference = term - mean
    variance = (difference * difference).mean(axes)
    own = [reshape(b, v.value, (x.shape[axis],), x) for v in (mean, variance)]
    result = b(BatchNormInference, x, scale, bias, *own, epsilon=epsilon, feature_index=axis)
    return [result, *own]


@by_expansion(
    *(Operand(name, FLOATS) for name in ("input", "scale", "mean", "variance", "grad_output")),
    results=tuple(Operand(name) for name in ("grad_input", "grad_scale", "grad_bias")),
)
def BatchNormGrad(
    b: Builder,
    x: Value,
    scale: Value,
    mean: Value,
    variance: Value,
    grad_output: Value,
    epsilon: float = 1e-5,
    feature_index: int = 1,
) -> list[Value]:
    """The gradients of BatchNormTraining, whose output has the gradient g = `grad_output`.

    With n = (input - mean) / sqrt(variance + epsilon), sums and averages over all axes but `feature_index`::

        grad_input = scale / sqrt(variance + epsilon) * (g - average(g) - n * average(g * n))
        grad_scale = sum(g * n)        grad_bias = sum(g)

    Source: neutral-ops 3.13; XLA.
    """
    axis, g = normalize_axis(feature_index, x.rank), Term(b, grad_output)
    axes = [a for a in range(x.rank) if a != axis]
    factor, center, spread = (Term(b, v).along(axis, x.rank) for v in (scale, mean, variance))
    inverse = (spread + epsilon).rsqrt()
    n = (Term(b, x) - center) * inverse
    grad_input = factor * inverse * (g - g.mean(axes) - n * (g * n).mean(axes))
    return [grad_input.value, *(v.reduce("sum", axes, keepdims=False).value for v in (g * n, g))]
