"""Normalization.

==============  =============================================================================================
ONNX            BatchNormalization 1 6 7 9 14 15, InstanceNormalization 1 6 22, LayerNormalization 17,
                GroupNormalization 18 21, RMSNormalization 23, MeanVarianceNormalization 9 13, LpNormalization 1 22,
                LRN 1 13, com.microsoft SkipLayerNormalization, (Skip)SimplifiedLayerNormalization
TFLite          L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION
==============  ============================================================================================="""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.rules import *

# --- InstanceNorm -----------------------------------------------------------------------------------------------------


@lower_onnx(ops.InstanceNorm)
def _instance_norm_form(node: Node, opset: int) -> Form | None:
    if (node.attr("batch_index"), node.attr("feature_index")) != (0, 1):
        return None
    return Form("InstanceNormalization", tuple(node.operands), {"epsilon": float(node.attr("epsilon"))})


def _lies_otherwise(node: Node) -> bool:
    return (node.attr("batch_index"), node.attr("feature_index")) != (0, 1)


@decompose_late(ops.InstanceNorm, "onnx", when=_lies_otherwise)
@decompose(ops.InstanceNorm)
def _instance_norm_apart(b: Builder, node: Node) -> Value:
    x, feature = Term(b, node.operand(0)), node.attr("feature_index")
    axes = [a for a in range(x.value.rank) if a not in (node.attr("batch_index"), feature)]
    apart = x - Term(b, b(ops.Reduce, x.value, axes, kind="mean", keepdims=True))
    variance = Term(b, b(ops.Reduce, (apart * apart).value, axes, kind="mean", keepdims=True))
    scale, bias = (_along(b, node.operand(i), x.value.rank - 1 - feature) for i in (1, 2))
    return ((apart / (variance + float(node.attr("epsilon"))).sqrt()) * scale + bias).value


def _along(b: Builder, vector: Value, behind: int) -> Term:
    return Term(b, reshape(b, vector, (*vector.shape, *[1] * behind)))


@upgrade("BatchNormalization", since=(1, 6, 7, 9))
def _batch_norm_9(b: Builder, node: Node) -> None:
    """Version 1 and 6 say with is_test, 7 and 9 with the number of results, whether this is training.

    `spatial` 0 (statistics for each element rather than channel) went with version 9.
    """
    if not node.attr("spatial", 1):
        raise UnsupportedError("spatial = 0", hint="convert the model to opset 9 or newer first")
    old = node.op.version in (1, 6)
    training = not node.attr("is_test", 0) if old else len(node.results) > 1
    used = any(r.uses or (node.graph is not None and r in node.graph.output_set()) for r in node.results[1:])
    node.attributes["training_mode"] = int(bool(training and used))


@lift_onnx("BatchNormalization", since=(14, 15))
def _batch_norm(b: Builder, node: Node) -> list[Value]:
    if node.attr("training_mode", 0):
        return _batch_norm_training(b, node)
    epsilon = float(node.attr("epsilon", 1e-5))
    return [b(ops.BatchNormInference, *node.operands[:5], epsilon=epsilon, feature_index=1)]


def _batch_norm_training(b: Builder, node: Node) -> list[Value]:
    """With the batch's own statistics; the second and third result are the running ones, moved on by `momentum`."""
    x, scale, bias, mean, variance = (node.operand(i) for i in range(5))
    axes, keep = [a for a in range(x.rank) if a != 1], float(node.attr("momentum", 0.9))
    own_mean = b(ops.Reduce, x, axes, kind="mean", keepdims=True)
    apart = Term(b, x) - Term(b, own_mean)
    own_variance = b(ops.Reduce, (apart * apart).value, axes, kind="mean", keepdims=True)
    flat = [reshape(b, v, (x.shape[1],)) for v in (own_mean, own_variance)]
    epsilon = float(node.attr("epsilon", 1e-5))
    result = b(ops.BatchNormInference, x, scale, bias, *flat, epsilon=epsilon, feature_index=1)
    running = [
        (Term(b, old) * keep + Term(b, _cast(b, new, old.dtype)) * (1 - keep)).value
        for old, new in zip((mean, variance), flat, strict=True)
    ]
    return [result, *running][: len(node.results)]


def _cast(b: Builder, x: Value, dtype: DType) -> Value:
    return x if x.dtype is dtype else b(ops.Convert, x, dtype=dtype)


@lower_onnx(ops.BatchNormInference)
def _onnx_batch_norm(node: Node, opset: int) -> Form | None:
    """The feature axis second; vectors of another type from version 15 on."""
    x = node.operand(0)
    same = all(node.operand(i).dtype is x.dtype for i in range(1, 5))
    if node.attr("feature_index") != 1 or x.tensor_type.rank in (None, 1) or not (same or opset >= 15):
        return None
    return Form("BatchNormalization", tuple(node.operands), {"epsilon": float(node.attr("epsilon"))})


@decompose_late(ops.BatchNormInference, "onnx", when=lambda node: node.attr("feature_index") != 1)
@decompose(ops.BatchNormInference)
def _batch_norm_apart(b: Builder, node: Node) -> Value:
    """x * a + c with a = scale / sqrt(variance + epsilon) and c = bias - mean * a, which fold if they are constant."""
    x, scale, bias, mean, variance = (node.operand(i) for i in range(5))
    wide = variance.dtype
    scale, bias, mean = (v if v.dtype is wide else b(ops.Convert, v, dtype=wide) for v in (scale, bias, mean))
    deviation = b(ops.Sqrt, b(ops.Add, variance, b.scalar(float(node.attr("epsilon")), variance)))
    factor = b(ops.Div, scale, deviation)
    offset = b(ops.Sub, bias, b(ops.Mul, mean, factor))
    if x.dtype is not wide:
        factor, offset = (b(ops.Convert, v, dtype=x.dtype) for v in (factor, offset))
    rank = x.rank - node.attr("feature_index")
    factor, offset = (reshape(b, v, (*v.shape, *[1] * (rank - 1))) for v in (factor, offset))
    return b(ops.Add, b(ops.Mul, x, factor), offset)


def standardized(b: Builder, x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value, Value]:
    """(x - mean) / sqrt(variance + epsilon) over `axes`, the mean, and 1 / sqrt(variance + epsilon)."""
    mean = b(ops.Reduce, x, list(axes), kind="mean", keepdims=True)
    apart = b(ops.Sub, x, mean)
    variance = b(ops.Reduce, b(ops.Mul, apart, apart), list(axes), kind="mean", keepdims=True)
    inverse = b(ops.Rsqrt, b(ops.Add, variance, b.scalar(epsilon, x)))
    return b(ops.Mul, apart, inverse), mean, inverse


def _stash(node: Node, x: Value) -> DType:
    """The type that statistics are made in: float32 for the smaller floats, unless `stash_type` says otherwise."""
    return DType.FLOAT32 if x.dtype.bits < 32 and node.attr("stash_type", 1) == 1 else x.dtype


def _known_rank(x: Value) -> int:
    if x.tensor_type.shape is None:
        raise UnsupportedError("the rank of the operand is not known", hint="give --input-shape")
    return x.rank


def _affine(b: Builder, x: Value, scale: Value | None, bias: Value | None, behind: int = 0) -> Value:
    """x * scale + bias; these have `behind` axes fewer at the end."""
    if scale is not None:
        x = b(ops.Mul, x, _widened(b, scale, behind))
    return x if bias is None else b(ops.Add, x, _widened(b, bias, behind))


def _widened(b: Builder, vector: Value, behind: int) -> Value:
    return reshape(b, vector, (*vector.shape, *[1] * behind)) if behind else vector


@upgrade("InstanceNormalization", since=(1,))
def _instance_norm_1(b: Builder, node: Node) -> None:
    """Only consumed_inputs went."""
    node.attributes.pop("consumed_inputs", None)


@lift_onnx("InstanceNormalization", since=(6, 22))
def _instance_norm(b: Builder, node: Node) -> Value:
    x = node.operand(0)
    axes = range(2, _known_rank(x))
    result, _, _ = standardized(b, x, axes, float(node.attr("epsilon", 1e-5)))
    return _affine(b, result, node.operand(1), node.operand(2), len(axes))


@lift_onnx("LayerNormalization", since=(17,))
@lift_onnx("LayerNormalization", since=(1,), domain="com.microsoft")
def _layer_norm(b: Builder, node: Node) -> list[Value]:
    x = node.operand(0)
    axes = range(normalize_axis(int(node.attr("axis", -1)), _known_rank(x)), x.rank)
    wide = _cast(b, x, _stash(node, x))
    result, mean, inverse = standardized(b, wide, axes, float(node.attr("epsilon", 1e-5)))
    scaled = _affine(b, _cast(b, result, x.dtype), node.optional(1), node.optional(2))
    return [scaled, mean, inverse][: len(node.results)]


@lift_onnx("SimplifiedLayerNormalization", since=(ANY_VERSION,))
@lift_onnx("SimplifiedLayerNormalization", since=(1,), domain="com.microsoft")
@lift_onnx("RMSNormalization", since=(23,))
def _rms_norm(b: Builder, node: Node) -> list[Value]:
    return list(_root_mean_square(b, node, node.operand(0), node.optional(1)))[: len(node.results)]


def _root_mean_square(b: Builder, node: Node, x: Value, scale: Value | None) -> tuple[Value, Value]:
    """x / sqrt(mean of squares + epsilon) * scale, and the inverse root."""
    axes = list(range(normalize_axis(int(node.attr("axis", -1)), _known_rank(x)), x.rank))
    wide = Term(b, _cast(b, x, _stash(node, x)))
    square = Term(b, b(ops.Reduce, (wide * wide).value, axes, kind="mean", keepdims=True))
    inverse = (square + float(node.attr("epsilon", 1e-5))).apply(ops.Rsqrt)
    return _affine(b, _cast(b, (wide * inverse).value, x.dtype), scale, None), inverse.value


@lift_onnx("SkipLayerNormalization", since=(1,), domain="com.microsoft")
def _skip_layer_norm(b: Builder, node: Node) -> list[Value]:
    """Results: output, mean, inverse deviation, and the sum that was normalized."""
    x = b(ops.Add, node.operand(0), node.operand(1))
    extra = node.optional(4)
    x = x if extra is None else b(ops.Add, x, extra)
    result, mean, inverse = standardized(b, x, [x.rank - 1], float(node.attr("epsilon", 1e-12)))
    return [_affine(b, result, node.optional(2), node.optional(3)), mean, inverse, x][: len(node.results)]


@lift_onnx("SkipSimplifiedLayerNormalization", since=(1,), domain="com.microsoft")
def _skip_rms_norm(b: Builder, node: Node) -> list[Value]:
    x = b(ops.Add, node.operand(0), node.operand(1))
    extra = node.optional(3)
    x = x if extra is None else b(ops.Add, x, extra)
    result, inverse = _root_mean_square(b, node, x, node.optional(2))
    return [result, inverse, inverse, x][: len(node.results)]


@lift_onnx("GroupNormalization", since=(18, 21))
def _group_norm(b: Builder, node: Node) -> Value:
    """Scale and bias are for each group in version 18, for each channel from 21 on."""
    x, groups = node.operand(0), int(node.attr("num_groups"))
    rank = _known_rank(x)
    wide = _cast(b, x, _stash(node, x) if node.op.version >= 21 else x.dtype)
    grouped = reshape(b, wide, (x.shape[0], groups, x.shape[1] // groups, product(x.shape[2:])))
    result, _, _ = standardized(b, grouped, (2, 3), float(node.attr("epsilon", 1e-5)))
    scale, bias = node.operand(1), node.operand(2)
    if node.op.version == 18:
        return reshape(b, _affine(b, result, scale, bias, 2), x.shape)
    return _affine(b, _cast(b, reshape(b, result, x.shape), x.dtype), scale, bias, rank - 2)


@lift_onnx("MeanVarianceNormalization", since=(9, 13))
def _mean_variance_norm(b: Builder, node: Node) -> Value:
    """(x - mean) / (deviation + 1e-9). Source: the function body of the op."""
    x, axes = Term(b, node.operand(0)), list(node.attr("axes", (0, 2, 3)))
    apart = x - Term(b, b(ops.Reduce, x.value, axes, kind="mean", keepdims=True))
    variance = Term(b, b(ops.Reduce, (apart * apart).value, axes, kind="mean", keepdims=True))
    return (apart / (variance.apply(ops.Sqrt) + 1e-9)).value


@lift_onnx("LpNormalization", since=(1, 22))
def _lp_norm(b: Builder, node: Node) -> Value:
    """x over its norm along an axis; zeros stay zeros."""
    x, p = node.operand(0), int(node.attr("p", 2))
    axis = [normalize_axis(int(node.attr("axis", -1)), _known_rank(x))]
    if p == 1:
        norm = b(ops.Reduce, b(ops.Abs, x), axis, kind="sum", keepdims=True)
    else:
        norm = b(ops.Sqrt, b(ops.Reduce, b(ops.Mul, x, x), axis, kind="sum", keepdims=True))
    smallest = float(np.finfo(np.float32 if x.dtype.bits >= 32 else np.float16).tiny)
    return b(ops.Div, x, b(ops.Max, norm, b.scalar(smallest, x)))


@lift_tfl("L2_NORMALIZATION")
def _tfl_l2_norm(b: Builder, node: Node) -> Value:
    """Along the last axis, the norm at least 1e-6. Source: LiteRT l2normalization.h."""
    x = Term(b, node.operand(0))
    square = Term(b, b(ops.Reduce, (x * x).value, [x.value.rank - 1], kind="sum", keepdims=True))
    norm = square.apply(ops.Sqrt).apply(ops.Max, 1e-6)
    return activated(b, (x / norm).value, node)


@lift_onnx("LRN", since=(1, 13))
def _lrn(b: Builder, node: Node) -> Value:
    size = int(node.attr("size"))
    numbers = {name: float(node.attr(name, default)) for name, default in _LRN_DEFAULTS.items()}
    return b(ops.LRN, node.operand(0), axis=1, size=size, **numbers)


_LRN_DEFAULTS = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0}


@lift_tfl("LOCAL_RESPONSE_NORMALIZATION")
def _tfl_lrn(b: Builder, node: Node) -> Value:
    """There alpha multiplies the sum, here the mean over the window's size."""
    x, size = node.operand(0), 2 * int(node.attr("radius")) + 1
    numbers = {name: float(node.attr(name)) for name in _LRN_DEFAULTS}
    numbers["alpha"] *= size
    return b(ops.LRN, x, axis=x.rank - 1, size=size, **numbers)


@lower_onnx(ops.LRN)
def _onnx_lrn(node: Node, opset: int) -> Form | None:
    if node.attr("axis") != 1:
        return None
    return Form("LRN", (node.operand(0),), {name: node.attr(name) for name in ("size", *_LRN_DEFAULTS)})


@decompose(ops.LRN)
def _lrn_apart(b: Builder, node: Node) -> Value:
    """x / (bias + alpha * mean of squares over a window of channels) ^ beta.

    The window is a pool over [batch, 1, other axes, channels], as the numbers lie where channels are last; what hangs
    over counts as zeros. The sizes of the other axes may be open.
    """
    x, axis, size = node.operand(0), node.attr("axis"), node.attr("size")
    others = [a for a in range(1, x.rank) if a != axis]
    square = b(ops.Mul, x, x)
    flat = merged(b, square, [[0], [], others, [axis]])
    low = (size - 1) // 2
    window = {"kernel_shape": (1, size), "strides": (1, 1), "dilations": (1, 1), "padding": (0, low, 0, size - 1 - low)}
    mean = b(ops.AveragePool, flat, dims=(2, 3), **window, count_include_pad=True)
    order = [0, *others, axis]
    ordered = reshape(b, mean, [x.shape[a] for a in order], x)
    back = transposed(b, ordered, [order.index(a) for a in range(x.rank)])
    alpha, beta, bias = (float(node.attr(name)) for name in _LRN_DEFAULTS)
    scale = (Term(b, back) * alpha + bias).apply(ops.Pow, -beta)
    return (Term(b, x) * scale).value


@lower_onnx(ops.LayerNorm)
def _onnx_layer_norm(node: Node, opset: int) -> Form | None:
    if opset < 17:
        return None
    operands = tuple(v for v in node.operands if v is not None)
    return Form("LayerNormalization", operands, {"axis": node.attr("axis"), "epsilon": float(node.attr("epsilon"))})


@decompose(ops.LayerNorm)
def _layer_norm_apart(b: Builder, node: Node) -> Value:
    x = node.operand(0)
    axes = range(normalize_axis(node.attr("axis"), x.rank), x.rank)
    return _affine(b, standardized(b, x, axes, float(node.attr("epsilon")))[0], node.operand(1), node.optional(2))
