"""Elementwise ops, reductions and products for random ONNX graphs: each function adds a node, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.drawing import ALL, FLOATS, INTEGERS, NUMBERS, fits_product
from tests.fuzz.graphs_onnx import Drawing

Step = Callable[[Drawing], Any]

_FLOAT_UNARY = (
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "HardSwish", "Log",
    "Mish", "Reciprocal", "Round", "Sigmoid", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "IsNaN",
    "IsInf",
)  # fmt: skip
_ANY_UNARY = ("Abs", "Neg", "Sign", "Relu", "Identity")
_WITH_ALPHA = ("Elu", "LeakyRelu", "Celu", "ThresholdedRelu")
_ARITHMETIC = ("Add", "Sub", "Mul", "Div")
_VARIADIC = ("Max", "Min", "Sum", "Mean")
_COMPARE = ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
_REDUCE = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip


def _unary(op: str, dtypes: tuple[str, ...]) -> Step:
    return lambda g: g.node(op, [g.value(dtypes)])


def _alpha(op: str) -> Step:
    return lambda g: g.node(op, [g.value(FLOATS)], alpha=g.choose((0.1, 0.5, 1.0, 1.5)))


def _binary(op: str, dtypes: tuple[str, ...], **attributes: Any) -> Step:
    def step(g: Drawing) -> None:
        x = g.value(dtypes)
        pair = [x, g.partner(x)]
        g.node(op, pair if g.below(2) else pair[::-1], **attributes)

    return step


def _variadic(op: str) -> Step:
    def step(g: Drawing) -> None:
        x = g.value(NUMBERS if op in ("Max", "Min") else FLOATS)
        g.node(op, [x, *(g.partner(x) for _ in range(g.below(3)))])

    return step


def _hard_sigmoid(g: Drawing) -> None:
    g.node("HardSigmoid", [g.value(FLOATS)], alpha=g.choose((0.2, 1 / 6)), beta=0.5)


def _gelu(g: Drawing) -> None:
    g.node("Gelu", [g.value(FLOATS)], approximate=g.choose(("none", "tanh")))


def _shrink(g: Drawing) -> None:
    g.node("Shrink", [g.value(FLOATS)], lambd=0.5, bias=g.choose((0.0, 0.25)))


def _selu(g: Drawing) -> None:
    g.node("Selu", [g.value(FLOATS)])


def _pow(g: Drawing) -> None:
    x = g.value(NUMBERS)
    real = g.array(x).dtype.kind == "f"  # a root of an integer may be NaN, which as an integer is anything
    dtype = g.choose((str(g.array(x).dtype), "int64", "int32", *(["float32"] if real else [])))
    powers = (0, 1, 2, 3, 0.5, -1) if real else (0, 1, 2, 3)
    exponent = g.constant(g.choose(powers), dtype) if g.below(2) else g.new(dtype, g.array(x).shape[-1:], 0, 3)
    g.node("Pow", [x, exponent])


def _mod(g: Drawing) -> None:
    x = g.value(NUMBERS)
    dtype = str(g.array(x).dtype)
    divisor = g.new(dtype, g.array(x).shape[g.below(g.rank(x) + 1) :], 1, 5)
    g.node(g.choose(("Mod", "Mod", "Div")), [x, divisor]) or g.node("Mod", [x, divisor], fmod=1)


def _clip(g: Drawing) -> None:
    x = g.value(NUMBERS)
    dtype = str(g.array(x).dtype)
    low, high = (g.given(limit, dtype) if g.chance(0.7) else "" for limit in (1, 3))
    g.node("Clip", [x, low, high] if high else [x, low] if low else [x])


def _where(g: Drawing) -> None:
    condition = g.value(("bool",))
    x = g.partner(condition, g.choose(ALL))
    g.node("Where", [condition, x, g.partner(x)])


def _cast(g: Drawing) -> None:
    from onnx import helper

    x = g.value(ALL)
    to = g.choose(ALL)
    if not to.startswith("uint") or g.array(x).dtype.kind != "f":
        g.node("Cast", [x], to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))


def _shift(g: Drawing) -> None:
    x = g.value(("uint8", "uint16", "uint32", "uint64"))
    amount = g.new(str(g.array(x).dtype), g.array(x).shape, 0, 5)
    g.node("BitShift", [x, amount], direction=g.choose(("LEFT", "RIGHT")))


def _prelu(g: Drawing) -> None:
    x = g.value(FLOATS)
    shape = [size if g.chance(0.6) else 1 for size in g.array(x).shape][g.below(g.rank(x) + 1) :]
    g.node("PRelu", [x, g.new(str(g.array(x).dtype), shape)])


def _softmax(op: str) -> Step:
    def step(g: Drawing) -> None:
        x = g.value(FLOATS, (1, 2, 3, 4, 5))
        g.node(op, [x], axis=g.axis(x))

    return step


def _reduce(op: str) -> Step:
    def step(g: Drawing) -> None:
        x = g.value(FLOATS if op.startswith("ReduceLog") else (*FLOATS, "int32", "int64", "int8", "uint8"))
        if op == "ReduceProd" and not fits_product(g.array(x)):
            return
        rank = g.rank(x)
        chosen = sorted({g.below(rank) for _ in range(g.below(rank) + 1)} if rank else ())
        axes = [a - rank * g.below(2) for a in chosen]
        attributes: dict[str, Any] = {"keepdims": g.below(2)}
        inputs = [x]
        if g.chance(0.85) and axes:
            if op == "ReduceSum" or g.opset >= (20 if op in ("ReduceMax", "ReduceMin") else 18):
                inputs.append(g.constant(axes, np.int64))
            else:
                attributes["axes"] = axes
        elif g.chance(0.3) and (op == "ReduceSum" or g.opset >= 18):
            attributes["noop_with_empty_axes"] = 1
        g.node(op, inputs, **attributes)

    return step


def _arg(op: str) -> Step:
    def step(g: Drawing) -> None:
        x = g.value((*FLOATS, "int32", "int64", "int8", "uint8"), (1, 2, 3, 4, 5))
        g.node(op, [x], axis=g.axis(x), keepdims=g.below(2), select_last_index=int(g.chance(0.2)))

    return step


def _cumsum(g: Drawing) -> None:
    x = g.value((*FLOATS, "int32", "int64"), (1, 2, 3, 4, 5))
    g.node("CumSum", [x, g.constant(g.axis(x), np.int64)], exclusive=g.below(2), reverse=g.below(2))


def _matmul(g: Drawing) -> None:
    x = g.value((*FLOATS, "int32", "int64"), (1, 2, 3, 4, 5))
    shape = g.array(x).shape
    batch = [size if g.chance(0.6) else 1 for size in shape[:-2]][g.below(max(len(shape) - 1, 1)) :]
    other = [*batch, shape[-1], g.size()] if g.below(5) else [shape[-1]]
    g.node("MatMul", [x, g.value((str(g.array(x).dtype),), shape=other)])


def _gemm(g: Drawing) -> None:
    x = g.value(FLOATS, (2,))
    left, right = g.below(2), g.below(2)
    inner, columns = g.array(x).shape[1 - left], g.size()
    dtype = str(g.array(x).dtype)
    y = g.value((dtype,), shape=(columns, inner) if right else (inner, columns))
    rows = g.array(x).shape[left]
    bias = g.choose(((), (1,), (columns,), (1, columns), (rows, 1), (rows, columns)))
    third = [g.new(dtype, bias)] if g.below(2) else []
    g.node("Gemm", [x, y, *third], transA=left, transB=right, alpha=g.choose((1.0, 0.5)), beta=g.choose((1.0, 0.25)))


def _einsum(g: Drawing) -> None:
    x = g.value(("float32",), (1, 2, 3, 4))
    letters = "abcd"[: g.rank(x)]
    summed = g.below(len(letters))
    kept = [c for i, c in enumerate(letters) if i != summed]
    g.random.shuffle(kept)
    other = g.new("float32", [g.array(x).shape[summed], g.size()])
    g.node("Einsum", [x, other], equation=f"{letters},{letters[summed]}z->{''.join(kept)}z")


def _integer_matmul(g: Drawing) -> None:
    x = g.value(("uint8", "int8"), (2, 3))
    y = g.new(g.choose(("uint8", "int8")), [g.array(x).shape[-1], g.size()])
    zeros = [g.constant(g.choose((0, 1, 3)), g.array(n).dtype) for n in (x, y)]
    g.node("MatMulInteger", [x, y, *zeros[: g.below(3)]])


def _layer_norm(g: Drawing) -> None:
    x = g.value(("float32",), (1, 2, 3, 4, 5))
    if g.opset < 17:  # before, the op is ONNX Runtime's own
        return
    axis = g.axis(x)
    weights = [g.weight("float32", g.array(x).shape[axis:]) for _ in range(1 + g.below(2))]
    g.node("LayerNormalization", [x, *weights], axis=axis, epsilon=0.01)


def _norms(g: Drawing) -> None:
    x = g.value(("float32",), (2, 3, 4, 5))
    channels = g.array(x).shape[1]
    kind = g.below(6)
    if kind == 0:
        g.node("InstanceNormalization", [x, *(g.weight("float32", [channels]) for _ in range(2))], epsilon=0.01)
    elif kind == 1:
        g.node("LpNormalization", [x], axis=g.axis(x), p=g.choose((1, 2)))
    elif kind == 2:
        g.node("LRN", [x], size=g.choose((1, 3, 5)), alpha=0.1, beta=0.75, bias=1.0)
    elif kind == 3:
        others = [g.weight("float32", [channels]) for _ in range(3)]
        g.node("BatchNormalization", [x, *others, g.constant(g.random.uniform(0.5, 2, channels).astype(np.float32))])
    elif kind == 4 and channels:  # a scale of a group, before opset 21, broadcasts to no channels
        groups = g.choose([n for n in range(1, channels + 1) if channels % n == 0])
        sides = channels if g.opset >= 21 else groups
        scale = [g.weight("float32", [sides]) for _ in range(2)]
        g.node("GroupNormalization", [x, *scale], num_groups=groups, epsilon=0.01)
    else:
        g.node("MeanVarianceNormalization", [x], axes=sorted({g.below(g.rank(x)) for _ in range(3)}))


def _quantize(g: Drawing) -> None:
    x = g.value(("float32",))
    scale = g.constant(g.choose((0.0625, 0.1, 0.03)), np.float32)
    zero = g.constant(g.choose((0, 0, 3, 7)), g.choose(("int8", "uint8")))
    if quantized := g.node("QuantizeLinear", [x, scale, zero]):
        g.node("DequantizeLinear", [quantized[0], scale, zero])


def _dynamic_quantize(g: Drawing) -> None:
    g.node("DynamicQuantizeLinear", [g.value(("float32",))], 3)


STEPS: dict[str, Step] = {
    **{op: _unary(op, FLOATS) for op in _FLOAT_UNARY},
    **{op: _unary(op, NUMBERS) for op in _ANY_UNARY},
    **{op: _alpha(op) for op in _WITH_ALPHA},
    **{op: _binary(op, NUMBERS) for op in _ARITHMETIC},
    **{op: _variadic(op) for op in _VARIADIC},
    **{op: _binary(op, NUMBERS if op != "Equal" else ALL) for op in _COMPARE},
    **{op: _binary(op, ("bool",)) for op in ("And", "Or", "Xor")},
    **{op: _binary(op, INTEGERS) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    **{op: _reduce(op) for op in _REDUCE},
    **{op: _arg(op) for op in ("ArgMax", "ArgMin")},
    **{op: _softmax(op) for op in ("Softmax", "LogSoftmax", "Hardmax")},
    "Not": _unary("Not", ("bool",)), "BitwiseNot": _unary("BitwiseNot", INTEGERS), "HardSigmoid": _hard_sigmoid,
    "Gelu": _gelu, "Shrink": _shrink, "Selu": _selu, "Pow": _pow, "Mod": _mod, "Clip": _clip, "Where": _where,
    "Cast": _cast, "BitShift": _shift, "PRelu": _prelu, "CumSum": _cumsum, "MatMul": _matmul, "Gemm": _gemm,
    "Einsum": _einsum, "MatMulInteger": _integer_matmul, "LayerNormalization": _layer_norm,
    "BatchNormalization": _norms,
    "InstanceNormalization": _norms, "GroupNormalization": _norms, "LRN": _norms, "LpNormalization": _norms,
    "MeanVarianceNormalization": _norms, "QuantizeLinear": _quantize, "DequantizeLinear": _quantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
}  # fmt: skip
