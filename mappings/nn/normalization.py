"""Normalization.

==============  =============================================================================================
ONNX            BatchNormalization 1 6 7 9 14 15, InstanceNormalization 1 6 22, LayerNormalization 17,
                GroupNormalization 18 21, RMSNormalization 23, MeanVarianceNormalization 1 9 13, LpNormalization 1 22,
                LRN 1 13, com.microsoft SkipLayerNormalization, (Skip)SimplifiedLayerNormalization
TFLite          L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION
==============  =============================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.build.operands import on_terms
from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.build.rows import apply_activation, row
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.permutations import inverse
from onnxtfl.ir.reshape import broadcast, reshape, reshape_inferred, transpose_and_merge, transposed, unsqueezed
from onnxtfl.ir.shapes import check_spreads, normalize_axis
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import ANY_VERSION, decompose, decompose_late, expand, lift_onnx, lift_tfl, upgrade


def _channels_second(node: Node) -> bool:
    return bool(node.attr("feature_index") == 1 and node.attr("batch_index", 0) == 0)


def _channels_elsewhere(node: Node) -> bool:
    return not _channels_second(node)


row(ops.InstanceNorm, onnx="InstanceNormalization", since=(1, 6, 22), attributes="epsilon", when=_channels_second)
row(
    ops.LRN,
    onnx="LRN",
    since=(1, 13),
    attributes="size alpha beta bias",
    fixed={"axis": 1},
    when=lambda node: node.operand(0).tensor_type.rank == 4,  # ONNX Runtime's kernel
)
row(ops.LayerNorm, onnx="LayerNormalization", attributes="axis epsilon", lifts=False)
row(ops.GroupNorm, onnx="GroupNormalization", since=(21,), attributes="num_groups epsilon", lowers=False)
decompose_late(ops.InstanceNorm, "onnx", when=_channels_elsewhere)(expand)
decompose_late(ops.BatchNormInference, "onnx", when=_channels_elsewhere)(expand)


@decompose(ops.GroupNorm, "onnx", benefit=1)
def _instances_of_groups(b: Builder, node: Node) -> Value:
    """Normalize groups as single features, for which ONNX Runtime has a kernel::

    Reshape(InstanceNorm(Reshape(%x: [n, c, ..]) [n, num_groups, -1])) * %scale + %bias
    """
    rank, axis, count = node.result.rank, node.attr("feature_index"), node.attr("num_groups")
    order = (0, axis, *(a for a in range(1, rank) if a != axis))
    x = transposed(b, node.operand(0), order)
    one, none = (constant(np.full(count, n, x.dtype.numpy)) for n in (1, 0))
    groups = reshape_inferred(b, x, (x.shape[0], count, -1))
    normal = b(ops.InstanceNorm, groups, one, none, epsilon=node.attr("epsilon"))
    result = transposed(b, reshape(b, normal, x.shape, x), inverse(order))
    factor, offset = (Term(b, node.operand(i)).along(axis, rank) for i in (1, 2))
    return (Term(b, result) * factor + offset).value


@upgrade("BatchNormalization", since=(1, 6, 7, 9))
def _batch_norm_9(b: Builder, node: Node) -> None:
    """Training mode: is_test = 0 in versions 1 and 6, more than one result in 7 and 9.

    Versions before 9 have `spatial` = 0, with statistics per element, not per channel.
    """
    if not node.attr("spatial", 1):
        raise UnsupportedError("spatial = 0", hint="convert the model to opset 9 or newer first")
    old = node.op.version in (1, 6)
    training = not node.attr("is_test", 0) if old else len(node.results) > 1
    used = any(r.uses or (node.graph is not None and r in node.graph.output_set()) for r in node.results[1:])
    node.attributes["training_mode"] = int(bool(training and used))


@lift_onnx("BatchNormalization", since=(14, 15))
def _batch_norm(b: Builder, node: Node) -> list[Value]:
    """Axis 1 is the feature axis; an input of rank 1 is a batch with one feature."""
    x = node.operand(0)
    if x.rank == 1:
        node.set_operand(0, unsqueezed(b, x, [1]))
    results = _batch_norm_training(b, node) if node.attr("training_mode", 0) else [_batch_norm_inference(b, node)]
    return [reshape(b, results[0], x.shape, x), *results[1:]] if x.rank == 1 else results


def _batch_norm_inference(b: Builder, node: Node) -> Value:
    epsilon = float(node.attr("epsilon", 1e-5))
    return b(ops.BatchNormInference, *node.operands[:5], epsilon=epsilon, feature_index=1)


def _batch_norm_training(b: Builder, node: Node) -> list[Value]:
    """Normalize by the statistics of the batch; results 1 and 2 are the running statistics, updated by `momentum`."""
    x, scale, bias, *old = (Term(b, node.operand(i)) for i in range(5))
    axes, keep = [a for a in range(x.rank) if a != 1], float(node.attr("momentum", 0.9))
    mean = x.mean(axes)
    difference = x - mean
    variance = (difference * difference).mean(axes)
    own = [Term(b, reshape(b, v.value, (x.value.shape[1],))) for v in (mean, variance)]
    epsilon = float(node.attr("epsilon", 1e-5))
    result = x.apply(ops.BatchNormInference, scale, bias, *own, epsilon=epsilon, feature_index=1)
    running = [(o * keep + new.to(o.dtype) * (1 - keep)).value for o, new in zip(old, own, strict=True)]
    return [result.value, *running][: len(node.results)]


def _has_features_second(node: Node) -> bool:
    return node.attr("feature_index") == 1 and node.operand(0).tensor_type.rank not in (None, 1)


row(ops.BatchNormInference, onnx="BatchNormalization", attributes="epsilon", when=_has_features_second, lifts=False)


@lift_onnx("LayerNormalization", since=(17, ANY_VERSION))
@lift_onnx("LayerNormalization", since=(1,), domain=MICROSOFT)
def _layer_norm(b: Builder, node: Node) -> list[Value]:
    """Return the normalized x, the mean, and the inverse standard deviation.

    ONNX Runtime's optimizer writes the op into models before opset 17 too; the result then has the dtype of the scale.
    """
    x, axes, epsilon = Term(b, node.operand(0)), _axes(node), float(node.attr("epsilon", 1e-5))
    dtype = node.operand(1).dtype
    if len(node.results) == 1 and dtype == x.dtype:
        return [b(ops.LayerNorm, *node.operands, axis=axes[0], epsilon=epsilon)]
    result, mean, inverse = ops.standardized(x.to(_stash(node)), axes, epsilon)
    scaled = _affine(result.to(dtype), node.operand(1), node.optional(2))
    return [scaled.value, mean.value, inverse.value][: len(node.results)]


def _axes(node: Node) -> list[int]:
    """Return the axes from `axis` to the last one."""
    x = node.operand(0)
    return list(range(normalize_axis(int(node.attr("axis", -1)), x.rank), x.rank))


def _stash(node: Node) -> DType:
    """Return the dtype of the statistics: `stash_type`, by default float32 for smaller floats."""
    dtype = node.operand(0).dtype
    return DType.FLOAT32 if dtype.bits < 32 and node.attr("stash_type", 1) == 1 else dtype


def _affine(x: Term, scale: Value | None, bias: Value | None) -> Term:
    """Return x * scale + bias, either of which may be absent."""
    check_spreads(x.value, scale, bias)
    x = x if scale is None else x.apply(ops.Mul, scale)
    return x if bias is None else x.apply(ops.Add, bias)


@lift_onnx("SimplifiedLayerNormalization", since=(ANY_VERSION,))
@lift_onnx("SimplifiedLayerNormalization", since=(1,), domain=MICROSOFT)
@lift_onnx("RMSNormalization", since=(23,))
def _rms_norm(b: Builder, node: Node) -> list[Value]:
    return list(_root_mean_square(Term(b, node.operand(0)), node, node.operand(1)))[: len(node.results)]


def _root_mean_square(x: Term, node: Node, scale: Value) -> tuple[Value, Value]:
    """Return x / sqrt(mean(x**2) + epsilon) * scale in the dtype of scale, and the inverse square root."""
    wide = x.to(_stash(node))
    inverse = ((wide * wide).mean(_axes(node)) + float(node.attr("epsilon", 1e-5))).rsqrt()
    return _affine((wide * inverse).to(scale.dtype), scale, None).value, inverse.value


@lift_onnx("SkipLayerNormalization", since=(1,), domain=MICROSOFT)
def _skip_layer_norm(b: Builder, node: Node) -> list[Value]:
    """Return the output, the mean and inverse standard deviation (float32), and the sum before normalization."""
    x = _sum(b, node, 4)
    result, mean, inverse = ops.standardized(x.to(_stash(node)), [x.rank - 1], float(node.attr("epsilon", 1e-12)))
    scaled = _affine(result.to(x.dtype), node.optional(2), node.optional(3))
    return [scaled.value, mean.value, inverse.value, x.value][: len(node.results)]


def _sum(b: Builder, node: Node, extra: int) -> Term:
    """Return the sum of the first two operands and, if present, operand `extra`."""
    total = Term(b, node.operand(0)) + Term(b, node.operand(1))
    third = node.optional(extra)
    return total if third is None else total.apply(ops.Add, third)


@lift_onnx("SkipSimplifiedLayerNormalization", since=(1,), domain=MICROSOFT)
def _skip_rms_norm(b: Builder, node: Node) -> list[Value]:
    """Return the same results as SkipLayerNormalization; the mean is not computed (0 in ONNX Runtime)."""
    x = _sum(b, node, 3)
    result, inverse = _root_mean_square(x, node, node.operand(2))
    mean = Term(b, inverse) * 0.0
    return [result, mean.value, inverse, x.value][: len(node.results)]


@upgrade("GroupNormalization", since=(18,))
def _group_norm_18(b: Builder, node: Node) -> None:
    """Version 18 has one scale and bias per group, version 21 per channel."""
    x, groups = node.operand(0), int(node.attr("num_groups"))
    for i in (1, 2):
        rows = broadcast(b, unsqueezed(b, node.operand(i), [1]), (groups, x.shape[1] // groups), x)
        node.set_operand(i, reshape(b, rows, (x.shape[1],), x))


@lift_onnx("MeanVarianceNormalization", since=(9, 13))
@on_terms
def _mean_variance_norm(x: Term, *, axes: Sequence[int] = (0, 2, 3)) -> Term:
    """Return (x - mean) / (standard deviation + 1e-9). Source: the function body of the op.

    Axes beyond the rank of the input are ignored, as in ONNX Runtime.
    """
    return _standardized(x, axes)


def _standardized(x: Term, axes: Sequence[int], divided: bool = True) -> Term:
    axes = [axis for axis in axes if axis < x.rank]
    difference = x - x.mean(axes)
    return difference / ((difference * difference).mean(axes).sqrt() + 1e-9) if divided else difference


@lift_onnx("MeanVarianceNormalization", since=tuple(range(1, 9)))
@on_terms
def _mean_variance_norm_1(x: Term, *, across_channels: int = 0, normalize_variance: int = 1) -> Term:
    """The experimental op before version 9. Source: ONNX Runtime, contrib_defs.cc and mean_variance_normalization.h."""
    axes = [axis for axis in range(x.rank) if axis != 1 or across_channels]
    return _standardized(x, axes, bool(normalize_variance))


@lift_onnx("LpNormalization", since=(1, 22))
def _lp_norm(b: Builder, node: Node) -> Value:
    """Return x / norm(x) along an axis; 0 if the norm is 0."""
    x = Term(b, node.operand(0))
    smallest = float(np.finfo(np.float32 if x.dtype.bits >= 32 else np.float16).tiny)
    return _over_norm(x, _axes(node)[0], "l1" if node.attr("p", 2) == 1 else "l2", smallest).value


def _over_norm(x: Term, axis: int, kind: str, smallest: float) -> Term:
    norm = x.apply(ops.FunctionReduce, np.asarray([axis]), kind=kind, keepdims=True)
    return x / norm.max(smallest)


@lift_tfl("L2_NORMALIZATION")
def _tfl_l2_norm(b: Builder, node: Node) -> Value:
    """Return x / max(norm(x), 1e-6) along the last axis. Source: LiteRT l2normalization.h."""
    x = Term(b, node.operand(0))
    return apply_activation(b, _over_norm(x, x.rank - 1, "l2", 1e-6).value, node)


_LRN_DEFAULTS = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0}


@lift_tfl("LOCAL_RESPONSE_NORMALIZATION")
def _tfl_lrn(b: Builder, node: Node) -> Value:
    """TFLite multiplies the sum over the window by alpha, the neutral op the mean."""
    x, size = node.operand(0), 2 * int(node.attr("radius")) + 1
    numbers = {name: float(node.attr(name)) for name in _LRN_DEFAULTS}
    numbers["alpha"] *= size
    return b(ops.LRN, x, axis=x.rank - 1, size=size, **numbers)


@decompose(ops.LRN)
def _lrn(b: Builder, node: Node) -> Value:
    """Return x / (bias + alpha * mean(x**2 over a window of channels)) ** beta.

    The mean is a pool over [batch, 1, other axes, channels], padded with zeros. The other axes may be dynamic.
    """
    x, axis, size = node.operand(0), node.attr("axis"), node.attr("size")
    others = [a for a in range(1, x.rank) if a != axis]
    flat = transpose_and_merge(b, b(ops.Mul, x, x), [[0], [], others, [axis]])
    low = (size - 1) // 2
    window = {"kernel_shape": (1, size), "strides": (1, 1), "dilations": (1, 1), "padding": (0, low, 0, size - 1 - low)}
    mean = b(ops.AveragePool, flat, dims=(2, 3), **window, count_include_pad=True)
    order = [0, *others, axis]
    back = transposed(b, reshape(b, mean, [x.shape[a] for a in order], x), inverse(order))
    alpha, beta, bias = (float(node.attr(name)) for name in _LRN_DEFAULTS)
    return (Term(b, x) * (Term(b, back) * alpha + bias).power(-beta)).value
