"""Ops of com.microsoft that ONNX Runtime's CPU runs, for random ONNX graphs: each function adds a node, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.fuzz.drawing import FLOATS
from tests.fuzz.graphs_networks import window_of
from tests.fuzz.graphs_onnx import Drawing

Step = Callable[[Drawing], Any]
_SOME = (1, 2, 3, 4, 5)
_QUANTIZED = ("int8", "uint8")


def _add(g: Drawing, op: str, inputs: Sequence[str], results: int = 1, **attributes: Any) -> list[str]:
    return g.node(op, inputs, results, domain="com.microsoft", **attributes)


def _last(g: Drawing, x: str) -> int:
    """The size of the last axis, which weights have too."""
    g.fix(x, -1)
    return int(g.array(x).shape[-1])


def _float(g: Drawing, ranks: Sequence[int] = (), shape: Sequence[int] | None = None) -> str:
    return g.value(("float32",), ranks, shape=shape)


def _features(g: Drawing, shape: Sequence[int], open_axes: int = 1) -> str:
    """A new value of which the first axes only may be open: others are features, whose count the weights have."""
    name = g.new("float32", shape)
    g.fix(name)
    if name in g.inputs:
        given = g.inputs[name]
        g.inputs[name] = replace(given, dims=(*given.dims[:open_axes], *shape[open_axes:]))
    return name


def _random(g: Drawing, shape: Sequence[int], low: float = -1, high: float = 1) -> str:
    return g.constant(g.random.uniform(low, high, tuple(shape)).astype(np.float32))


# --- activations, norms, gates ---------------------------------------------------------------------------------------


def _unary(op: str) -> Step:
    return lambda g: _add(g, op, [g.value(FLOATS, _SOME)])


def _quick_gelu(g: Drawing) -> None:
    _add(g, "QuickGelu", [_float(g, _SOME)], alpha=g.choose((1.702, 1.0, -0.5)))


def _bias_gelu(op: str) -> Step:
    def step(g: Drawing) -> None:
        x = _float(g, _SOME)
        _add(g, op, [x, g.weight("float32", [_last(g, x)])])

    return step


def _skip_norm(op: str) -> Step:
    def step(g: Drawing) -> None:
        x = _float(g, (2, 3))
        g.fix(x)
        shape = g.array(x).shape
        weights = [g.weight("float32", shape[-1:]) for _ in range(3)]
        skip = g.new("float32", shape)
        g.fix(skip)
        given = weights if op == "SkipLayerNormalization" else weights[:2]
        _add(g, op, [x, skip, *given[: 1 + g.below(len(given))]], epsilon=0.01)

    return step


def _gated_add(g: Drawing) -> None:
    x = _float(g, (3,))
    g.fix(x)
    shape = g.array(x).shape
    y, gate = g.new("float32", shape), g.new("float32", [*shape[:-1], 1])
    g.fix(y)
    g.fix(gate)
    _add(g, "GatedAdd", [x, y, gate])


def _scaled_silu(g: Drawing) -> None:
    scale = [g.weight("float32", ())] if g.below(2) else []
    _add(g, "ScaledSiLU", [_float(g, _SOME), *scale], alpha=g.choose((1.0, 1.7, -0.5)))


def _gated_norm(g: Drawing) -> None:
    x = _float(g, (2, 3))
    g.fix(x)
    gate = g.new("float32", g.array(x).shape)
    g.fix(gate)
    activation = g.choose(("silu", "swish", "sigmoid"))
    _add(g, "GatedRMSNorm", [x, g.weight("float32", [_last(g, x)]), gate], activation=activation, epsilon=0.01)


def _branchwise(g: Drawing) -> None:
    count = 1 + g.below(3)
    x = _features(g, [g.size(), count * (1 + g.below(4))])
    features = _last(g, x) // count
    scale = g.choose(([], [g.weight("float32", [features])], [g.weight("float32", [count, features])]))
    _add(g, "BranchwiseRMSNorm", [x, *scale], num_branches=count, epsilon=0.01)


def _attention_gate(g: Drawing) -> None:
    a = _float(g, (3,))
    g.fix(a)
    size, both = _last(g, a), bool(g.below(2))
    inputs = [a, g.weight("float32", [size]), _random(g, [size], -2, -0.1)]
    if both:
        inputs.append(g.new("float32", g.array(a).shape))
        g.fix(inputs[-1])
    _add(g, "LinearAttentionGate", inputs, 1 + both)


def _pre_mix(g: Drawing) -> None:
    rows, count = g.size(), 1 + g.below(3)
    x = _features(g, [rows, count * (1 + g.below(4))])
    gates = _features(g, [rows, count])
    _add(g, "HyperConnectionPreMix", [x, gates], num_branches=count, reduction_scale=g.choose((1.0, 0.7)))


def _post_mix(g: Drawing) -> None:
    rows, count, features = g.size(), 1 + g.below(3), 1 + g.below(4)
    shapes = [[rows, count, features], [rows, features], [rows, count], [rows, count, count]]
    values = [_features(g, shape) for shape in shapes[: 3 + g.below(2)]]
    _add(g, "HyperConnectionPostMix", values)


def _engram(g: Drawing) -> None:
    b, s, count, features = g.size(), g.size(), 1 + g.below(2), 1 + g.below(4)
    values = [_features(g, [b, s, *sizes], 2) for sizes in ([count, features], [count, features], [features])]
    scales = [g.weight("float32", [count, features]) for _ in range(2 + g.below(2))]
    _add(g, "EngramGate", [*values, *scales], len(scales) - 1, epsilon=0.01)


# --- products and windows --------------------------------------------------------------------------------------------


def _fused_matmul(op: str) -> Step:
    def step(g: Drawing) -> None:
        x = _float(g, (2, 3, 4))
        shape, left, right = g.array(x).shape, g.below(2), g.below(2)
        g.fix(x)
        inner, columns = shape[-2] if left else shape[-1], g.size()
        y = g.new("float32", [*shape[:-2], *([columns, inner] if right else [inner, columns])])
        g.fix(y)
        _add(g, op, [x, y], transA=left, transB=right, alpha=g.choose((1.0, 0.5)))

    return step


def _activation(g: Drawing) -> tuple[str, list[float]]:
    return g.choose(  # type: ignore[no-any-return]
        (("Relu", []), ("Tanh", []), ("Sigmoid", []), ("LeakyRelu", [0.2]), ("HardSigmoid", [0.2, 0.4]))
    )


def _fused_gemm(g: Drawing) -> None:
    x = _float(g, (2,))
    g.fix(x)
    rows, inner = g.array(x).shape
    columns, right = g.size(), g.below(2)
    y = g.weight("float32", [columns, inner] if right else [inner, columns])
    bias = [g.weight("float32", g.choose(([columns], [rows, columns], [1])))] if g.below(2) else []
    name, values = _activation(g)
    more = dict(zip(("activation_alpha", "activation_beta"), values, strict=False))
    _add(g, "FusedGemm", [x, y, *bias], transB=right, alpha=g.choose((1.0, 0.5)), activation=name, **more)


def _fused_conv(g: Drawing) -> None:
    x = _float(g, (4,))
    g.fix(x, 1)
    options, outputs = window_of(g, g.array(x).shape[2:]), 1 + g.below(4)
    weight = g.weight("float32", [outputs, g.array(x).shape[1], *options["kernel_shape"]], -1, 1)
    name, values = _activation(g)
    more = {"activation_params": values} if values else {}
    bias = [g.weight("float32", [outputs])] if g.below(2) else []
    _add(g, "FusedConv", [x, weight, *bias], activation=name, **more, **options)


def _transposed_conv(g: Drawing) -> None:
    x = g.new("float32", [1 + g.below(2), 1 + g.below(3), 1 + g.below(4), 1 + g.below(4)])
    g.fix(x, 1)
    weight = g.weight("float32", [g.array(x).shape[1], 1 + g.below(3), 3, 3], -1, 1)
    pads = g.constant([g.below(2) for _ in range(4)], np.int64)
    _add(g, "ConvTransposeWithDynamicPads", [x, weight, pads], strides=[1 + g.below(2), 1 + g.below(2)])


def _causal_conv(g: Drawing) -> None:
    x = g.new("float32", [1 + g.below(2), 1 + g.below(4), 1 + g.below(5)])
    g.fix(x)
    channels, taps = g.array(x).shape[1], 1 + g.below(4)
    bias = g.weight("float32", [channels]) if g.below(2) else ""
    inputs = [x, g.weight("float32", [channels, 1, taps]), bias]
    _add(g, "CausalConvWithState", inputs, 2, activation=g.choose(("none", "silu", "swish")))


def _distances(g: Drawing) -> None:
    x = _float(g, (2,))
    y = g.new("float32", [g.size(), _last(g, x)])
    g.fix(y, 1)
    _add(g, "CDist", [x, y], metric=g.choose(("euclidean", "sqeuclidean")))


def _inverse(g: Drawing) -> None:
    size = 1 + g.below(3)
    matrix = np.eye(size) * 4 + g.random.uniform(-1, 1, [*g.shape((0, 1)), size, size])
    _add(g, "Inverse", [g.constant(matrix.astype(np.float32))])


def _unfold(g: Drawing) -> None:
    x = g.value((*FLOATS, "int32", "int64"), _SOME)
    axis = g.axis(x)
    size = 1 + g.below(max(g.array(x).shape[axis], 1))
    g.fix(x, axis)
    _add(g, "UnfoldTensor", [x], dim=axis, size=size, step=1 + g.below(3))


def _crops(g: Drawing) -> None:
    x = _features(g, [1 + g.below(2), g.size(), 2 + g.below(4), 5])
    count = g.size()
    boxes = np.sort(g.random.uniform(-0.1, 1.1, [count, 2, 2]), axis=1).reshape(count, 4).astype(np.float32)
    which = g.random.integers(0, g.array(x).shape[0], count).astype(np.int32)
    size = g.constant([1 + g.below(4), 1 + g.below(4)], np.int32)
    inputs = [x, g.constant(boxes), g.constant(which), size]
    _add(g, "CropAndResize", inputs, mode=g.choose(("bilinear", "nearest")), extrapolation_value=0.5)


def _nhwc_max_pool(g: Drawing) -> None:
    x = g.value(_QUANTIZED, (3, 4))
    _add(g, "NhwcMaxPool", [x], **window_of(g, g.array(x).shape[1:-1]))


# --- movement --------------------------------------------------------------------------------------------------------


def _expand_dims(g: Drawing) -> None:
    x = g.value(("float32", "int32", "int64"))
    rank = g.rank(x)
    _add(g, "ExpandDims", [x, g.constant(g.below(rank + 1) - (rank + 1) * g.below(2), np.int32)])


def _trilu(g: Drawing) -> None:
    x = g.value(("float32", "int64"), (2, 3, 4))
    _add(g, "Trilu", [x, g.constant(g.below(5) - 2, np.int64)], upper=g.below(2))


def _pad(g: Drawing) -> None:
    x = _float(g, (1, 2, 3, 4))
    amounts = [g.below(2) for _ in range(2 * g.rank(x))]
    _add(g, "Pad", [x, g.constant(amounts, np.int64)], mode=g.choose(("constant", "edge", "reflect")))


def _gather_nd(g: Drawing) -> None:
    x = g.value(("float32", "int32", "int64"), _SOME)
    g.fix(x)
    depth = 1 + g.below(g.rank(x))
    least = min(g.array(x).shape[:depth])
    _add(g, "GatherND", [x, g.weight("int64", [*g.shape((1, 2)), depth], 0, max(least - 1, 0))])


def _range(g: Drawing) -> None:
    dtype = g.choose(("float32", "int64", "int32"))
    start, stop, step = g.choose(((0, 5, 1), (1, 8, 2), (5, 0, -1)))
    _add(g, "Range", [g.given(start, dtype), g.given(stop, dtype), g.constant(step, dtype)])


def _unique(g: Drawing) -> None:
    _add(g, "Unique", [_float(g, (1,))], 3)


def _grid_sample(g: Drawing) -> None:
    x = _float(g, (4,))
    grid = g.new("float32", [g.array(x).shape[0], g.size(), g.size(), 2], -1.2, 1.2)
    g.fix(x, 0)
    g.fix(grid, 0, 3)
    modes = {"mode": g.choose(("bilinear", "nearest")), "padding_mode": g.choose(("zeros", "border"))}
    _add(g, "GridSample", [x, grid], align_corners=g.below(2), **modes)


# --- quantized -------------------------------------------------------------------------------------------------------


def _scale(g: Drawing, dtype: str) -> list[str]:
    low = 0 if dtype == "uint8" else -3
    return [g.constant(g.choose((0.0625, 0.1, 0.03)), np.float32), g.constant(low + g.below(7), dtype)]


def _stored(g: Drawing, dtype: str, ranks: Sequence[int] = (1, 2, 3, 4), shape: Sequence[int] | None = None) -> str:
    chosen = g.shape(ranks) if shape is None else shape
    return g.new(dtype, chosen, 0 if dtype == "uint8" else -100, 120)


def _q_binary(op: str) -> Step:
    def step(g: Drawing) -> None:
        dtype = g.choose(_QUANTIZED)
        x = _stored(g, dtype)
        y = g.partner(x, dtype)
        _add(g, op, [x, *_scale(g, dtype), y, *_scale(g, dtype), *_scale(g, dtype)])

    return step


def _q_unary(op: str) -> Step:
    def step(g: Drawing) -> None:
        dtype = g.choose(_QUANTIZED)
        more = {"alpha": g.choose((0.1, 0.5))} if op == "QLinearLeakyRelu" else {}
        _add(g, op, [_stored(g, dtype), *_scale(g, dtype), *_scale(g, dtype)], **more)

    return step


def _q_softmax(g: Drawing) -> None:
    dtype = g.choose(_QUANTIZED)
    x = _stored(g, dtype, (1, 2, 3, 4))
    scale = [g.constant(1 / 256, np.float32), g.constant(0 if dtype == "uint8" else -128, dtype)]
    _add(g, "QLinearSoftmax", [x, *_scale(g, dtype), *scale], axis=g.axis(x), opset=13)


def _q_pool(g: Drawing) -> None:
    dtype = g.choose(_QUANTIZED)
    x = _stored(g, dtype, (3, 4))
    options = window_of(g, g.array(x).shape[2:], dilate=False)
    inputs = [x, *_scale(g, dtype), *_scale(g, dtype)]
    _add(g, "QLinearAveragePool", inputs, count_include_pad=g.below(2), **options)


def _q_global_pool(g: Drawing) -> None:
    dtype = g.choose(_QUANTIZED)
    inputs = [_stored(g, dtype, (3, 4)), *_scale(g, dtype), *_scale(g, dtype)]
    _add(g, "QLinearGlobalAveragePool", inputs, channels_last=g.below(2))


def _q_concat(g: Drawing) -> None:
    dtype = g.choose(_QUANTIZED)
    x = _stored(g, dtype)
    y = _stored(g, dtype, shape=g.array(x).shape)
    g.fix(x)
    g.fix(y)
    _add(g, "QLinearConcat", [*_scale(g, dtype), x, *_scale(g, dtype), y, *_scale(g, dtype)], axis=g.axis(x))


def _q_where(g: Drawing) -> None:
    dtype = g.choose(_QUANTIZED)
    x = _stored(g, dtype)
    condition, y = g.partner(x, "bool"), g.partner(x, dtype)
    _add(g, "QLinearWhere", [condition, x, *_scale(g, dtype), y, *_scale(g, dtype), *_scale(g, dtype)])


def _q_gemm(g: Drawing) -> None:
    dtype, right = g.choose(_QUANTIZED), g.below(2)
    x = _stored(g, dtype, shape=[g.size(), 1 + g.below(5)])
    inner, columns = _last(g, x), 1 + g.below(4)
    w = g.weight(dtype, [columns, inner] if right else [inner, columns], 0, 20)
    bias = g.constant(g.random.integers(-99, 99, [columns]), np.int32) if g.below(2) else ""
    result = _scale(g, dtype) if g.below(2) else []
    _add(g, "QGemm", [x, *_scale(g, dtype), w, *_scale(g, dtype), bias, *result], transB=right)


def _linear(name: str) -> Step:
    def step(g: Drawing) -> None:
        dtype = g.choose(_QUANTIZED)
        x, scale = (_float(g), _scale(g, dtype)) if name[0] == "Q" else (_stored(g, dtype), _scale(g, dtype))
        _add(g, name, [x, *scale])

    return step


def _dynamic_matmul(g: Drawing) -> None:
    x = _float(g, (2, 3))
    columns, dtype = 1 + g.below(4), g.choose(_QUANTIZED)
    w = g.weight(dtype, [_last(g, x), columns], 0, 20)
    bias = ["", g.weight("float32", [columns])] if g.below(2) else []
    _add(g, "DynamicQuantizeMatMul", [x, w, g.constant(0.03, np.float32), *bias])


def _integer_matmul(g: Drawing) -> None:
    dtype = g.choose(_QUANTIZED)
    x = _stored(g, dtype, (2, 3))
    columns = 1 + g.below(4)
    w = g.weight(dtype, [_last(g, x), columns], 0, 20)
    scales = [g.constant(v, np.float32) for v in (0.1, 0.03)]
    zeros = [g.constant(3, dtype)] if g.below(2) else []
    _add(g, "MatMulIntegerToFloat", [x, w, *scales, *zeros])


def _matmul_16(g: Drawing) -> None:
    x = g.new("int16", [g.size(), 1 + g.below(5)], -50, 50)
    y = g.new("int16", [_last(g, x), g.size()], -50, 50)
    g.fix(y, 0)
    _add(g, "MatMulInteger16", [x, y])


def _few_bits(g: Drawing) -> None:
    rows, block = 1 + g.below(4), 16
    inner = block * (1 + g.below(2))
    x = g.new("float32", [*g.shape((1, 2)), inner])
    g.fix(x, -1)
    blocks = inner // block
    codes = g.constant(g.random.integers(0, 256, [rows, blocks, block // 2]), np.uint8)
    zeros = [g.constant(g.random.integers(0, 256, [rows * -(-blocks // 2)]), np.uint8)] if g.below(2) else []
    scales = _random(g, [rows * blocks], 0.01, 0.1)
    _add(g, "MatMulNBits", [x, codes, scales, *zeros], K=inner, N=rows, bits=4, block_size=block)


# --- attention -------------------------------------------------------------------------------------------------------


def _attention(g: Drawing) -> None:
    heads, size = 1 + g.below(2), 1 + g.below(3)
    x = g.new("float32", [1 + g.below(2), 1 + g.below(4), 1 + g.below(5)])
    hidden = heads * size
    weights = [_random(g, [_last(g, x), 3 * hidden]), _random(g, [3 * hidden])]
    _add(g, "Attention", [x, *weights], num_heads=heads, unidirectional=g.below(2))


def _heads(g: Drawing) -> None:
    heads, batch, keys = 1 + g.below(2), 1 + g.below(2), 1 + g.below(4)
    hidden = heads * (1 + g.below(4))
    values = [_features(g, [batch, n, hidden], 2) for n in (1 + g.below(4), keys, keys)]
    bias = [_random(g, [3 * hidden])] if g.below(2) else []
    _add(g, "MultiHeadAttention", [*values, *bias], num_heads=heads)


def _rotary(g: Drawing) -> None:
    batch, length, heads, half = 1 + g.below(2), 1 + g.below(4), 1 + g.below(2), 4
    x = _features(g, [batch, heads, length, 2 * half])
    angles = g.random.uniform(0, 6, [8, half])
    tables = [g.constant(f(angles).astype(np.float32)) for f in (np.cos, np.sin)]
    ids = g.weight("int64", [batch, length], 0, 7)
    _add(g, "RotaryEmbedding", [x, ids, *tables], interleaved=g.below(2))


def _embedding(g: Drawing) -> None:
    batch, length, hidden = 1 + g.below(2), 1 + g.below(4), 1 + g.below(6)
    ids = [g.new("int32", [batch, length], 0, 5) for _ in range(2)]
    for name in ids:
        g.fix(name)
    tables = [_random(g, [n, hidden]) for n in (6, 8, 6)]
    norm = [_random(g, [hidden]) for _ in range(2)]
    _add(g, "EmbedLayerNormalization", [*ids, *tables, *norm], 2, epsilon=0.01)


STEPS: dict[str, Step] = {
    **{f"com.microsoft {op}": _unary(op) for op in ("Gelu", "FastGelu", "SampleOp")},
    **{f"com.microsoft {op}": _fused_matmul(op) for op in ("FusedMatMul", "TransposeMatMul")},
    **{f"com.microsoft {op}": _q_binary(op) for op in ("QLinearAdd", "QLinearMul")},
    **{f"com.microsoft {op}": _q_unary(op) for op in ("QLinearLeakyRelu", "QLinearSigmoid")},
    **{f"com.microsoft {op}": _linear(op) for op in ("QuantizeLinear", "DequantizeLinear")},
    **{
        f"com.microsoft {op}": _skip_norm(op) for op in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
    },
    **{
        f"com.microsoft {op}": step
        for op, step in {
            "QuickGelu": _quick_gelu, "BiasGelu": _bias_gelu("BiasGelu"), "GatedAdd": _gated_add,
            "ScaledSiLU": _scaled_silu, "GatedRMSNorm": _gated_norm, "BranchwiseRMSNorm": _branchwise,
            "LinearAttentionGate": _attention_gate, "HyperConnectionPreMix": _pre_mix,
            "HyperConnectionPostMix": _post_mix, "EngramGate": _engram, "FusedGemm": _fused_gemm,
            "FusedConv": _fused_conv, "ConvTransposeWithDynamicPads": _transposed_conv,
            "CausalConvWithState": _causal_conv, "CDist": _distances, "Inverse": _inverse, "UnfoldTensor": _unfold,
            "CropAndResize": _crops, "NhwcMaxPool": _nhwc_max_pool, "ExpandDims": _expand_dims, "Trilu": _trilu,
            "Pad": _pad, "GatherND": _gather_nd, "Range": _range, "Unique": _unique, "GridSample": _grid_sample,
            "QLinearSoftmax": _q_softmax, "QLinearAveragePool": _q_pool, "QLinearGlobalAveragePool": _q_global_pool,
            "QLinearConcat": _q_concat, "QLinearWhere": _q_where, "QGemm": _q_gemm,
            "DynamicQuantizeMatMul": _dynamic_matmul, "MatMulIntegerToFloat": _integer_matmul,
            "MatMulInteger16": _matmul_16, "MatMulNBits": _few_bits, "Attention": _attention,
            "MultiHeadAttention": _heads, "RotaryEmbedding": _rotary, "EmbedLayerNormalization": _embedding,
        }.items()
    },
}  # fmt: skip
ELSEWHERE = {
    "no kernel in ONNX Runtime's CPU, in tests/unit/test_microsoft_*.py, test_qlinear.py, test_experts.py": "BiasAdd "
    "BiasDropout BiasSoftmax BiasSplitGelu Irfft LayerNormalization MoEGroupRouter NhwcConv NhwcFusedConv "
    "QLinearReduceMean Rfft SimplifiedLayerNormalization",
    "caches and states, in tests/unit/test_*_attention.py": "DecoderMaskedMultiHeadAttention GatedDeltaNet "
    "GroupQueryAttention LinearAttention MRotaryEmbedding",
    "quantized layers, in tests/unit/test_attention.py, test_microsoft_ops.py, test_qlinear.py, test_recurrence.py, "
    "test_stored_weights.py": "DynamicQuantizeLSTM GatherBlockQuantized MatMulBnb4 QAttention "
    "QEmbedLayerNormalization QLinearConv",
    "experts, in tests/unit/test_experts.py": "MoE QMoE",
    "masks of one form, in tests/unit/test_microsoft_layers.py": "MaxpoolWithMask",
    "token ids, in tests/unit/test_microsoft_ops.py": "NGramRepeatBlock",
}
"""Why and where the other ops that convert are tested."""
