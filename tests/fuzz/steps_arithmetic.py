"""Steps of random graphs: elementwise ops, reductions, matrix products, normalizations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.fuzz.building import BOOL, FLOAT, INT32, INT64, Builder

_UNARY = {
    "Relu": {}, "Sigmoid": {}, "Tanh": {}, "HardSwish": {}, "Abs": {}, "Neg": {}, "Softplus": {}, "Softsign": {},
    "Elu": {"alpha": 0.7}, "LeakyRelu": {"alpha": 0.2}, "Erf": {}, "Sin": {}, "Cos": {}, "Atan": {}, "Selu": {},
    "Celu": {"alpha": 1.5}, "HardSigmoid": {"alpha": 0.25}, "ThresholdedRelu": {"alpha": 0.3}, "Asinh": {},
    "Identity": {}, "Shrink": {"lambd": 0.2, "bias": 0.1},
}  # fmt: skip
_BINARY = ["Add", "Sub", "Mul", "Max", "Min", "Mean", "Sum"]


def _unary(b: Builder) -> None:
    op = b.choose(list(_UNARY))
    b.add(op, [b.pick()], **_UNARY[op])


def _newer_unary(b: Builder) -> None:
    if b.opset >= 20:
        b.add("Gelu", [b.pick()], approximate=b.choose(["none", "tanh"]))
    elif b.opset >= 18:
        b.add("Mish", [b.pick()])


def _positive(b: Builder) -> None:
    """Ops that need values above 0, or not too large."""
    x = b.pick()
    if y := b.add("Sigmoid", [x]):
        y = b.add("Add", [y, b.constant(0.25, np.float32)])
        op = b.choose(["Sqrt", "Log", "Reciprocal", "Exp"])
        if b.below(3):
            b.add(op, [y])
        elif b.below(2):
            b.add("Pow", [y, b.constant(b.choose([0.5, 2.0, -1.0, 3.0, 1.7]), np.float32)])
        else:
            b.add("Div", [x, y])


def _square(b: Builder) -> None:
    b.add("Pow", [b.pick(), b.constant(b.choose([2.0, 3.0, 2]))])


def _clip(b: Builder) -> None:
    low, high = b.choose([(0.0, 6.0), (-1.0, 1.0), (0.0, 1.0), (-0.3, 0.7), (0.5, None), (None, 0.5)])
    limits = ["" if v is None else b.constant(v, np.float32) for v in (low, high)]
    b.add("Clip", [b.pick(), *limits])


def _softmax(b: Builder) -> None:
    x = b.pick(1, 2, 3, 4, 5)
    b.add(b.choose(["Softmax", "Softmax", "LogSoftmax"]), [x], axis=b.below(len(b.shape(x))))


def _with_constant(b: Builder) -> None:
    x = b.pick()
    shape = b.shape(x)
    constant = [size if b.below(2) else 1 for size in shape][b.below(len(shape) + 1) :]
    if b.symbols and len(constant) == len(shape):
        constant[:1] = [1]
    if not b.below(5):
        constant = [b.choose([1, 2]), *constant]
    pair = [x, b.weight(*constant)]
    b.add(b.choose(_BINARY), pair if b.below(2) else pair[::-1])


def _binary(b: Builder) -> None:
    x = b.pick()
    fitting = [name for name in b.values() if _fit(b.shape(name), b.shape(x))]
    product = b.add(b.choose(_BINARY), [x, b.choose(fitting)])
    if product and b.below(2):
        b.add("Tanh", [product])


def _fit(*shapes: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def _where(b: Builder) -> None:
    x = b.pick()
    op = b.choose(["Greater", "Less", "GreaterOrEqual"])
    if condition := b.add(op, [x, b.constant(0.1, np.float32)]):
        other = b.weight(*b.shape(x)[-1:]) if b.below(2) else b.constant(-0.5, np.float32)
        b.add("Where", [condition, *((x, other) if b.below(2) else (other, x))])


def _integers(b: Builder) -> None:
    dtype = b.choose([INT64, INT32])
    x = b.pick(dtype=dtype)
    if not x:
        return
    kind = np.int64 if dtype == INT64 else np.int32
    constant = b.constant(1 + b.random.integers(0, 5, b.shape(x)[-1:]), kind)
    op = b.choose(["Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Equal", "Less", "Abs", "Neg", "Sign"])
    b.add(op, [x] if op in ("Abs", "Neg", "Sign") else [x, constant])


def _bools(b: Builder) -> None:
    x = b.pick(dtype=BOOL)
    if not x:
        return
    y = b.choose([n for n in b.values(dtype=BOOL) if _fit(b.shape(n), b.shape(x))])
    op = b.choose(["And", "Or", "Xor", "Not"])
    b.add(op, [x] if op == "Not" else [x, y])


def _cast(b: Builder) -> None:
    x = b.pick(dtype=b.choose([INT64, INT32, BOOL]))
    if x:
        b.add("Cast", [x], to=b.choose([FLOAT, FLOAT, INT64, INT32]))


def _arg(b: Builder) -> None:
    x = b.choose(b.inputs)  # of computed values, elements that are nearly equal would depend on rounding
    if b.types[x][0] == FLOAT and b.shape(x):
        axis = b.below(len(b.shape(x)))
        b.add(b.choose(["ArgMax", "ArgMin"]), [x], axis=axis, keepdims=b.below(2))


def _matmul(b: Builder) -> None:
    x = b.pick(1, 2, 3, 4, 5)
    if x:
        size, columns = b.shape(x)[-1], b.choose([2, 5])
        y = b.add("MatMul", [x, b.weight(size, columns, scale=size**-0.5)])
        if y and b.below(2):
            y = b.add("Add", [y, b.weight(columns)])
        if y and not b.below(3):
            b.add("Relu", [y])


def _matmul_batched(b: Builder) -> None:
    x = b.pick(2, 3, 4)
    if x:
        size = b.shape(x)[-2]
        batch = [b.choose([n, 1]) for n in b.shape(x)[:-2]][b.below(2) :]
        b.add("MatMul", [b.weight(*batch, b.choose([1, 3]), size, scale=size**-0.5), x])


def _attention(b: Builder) -> None:
    x = b.pick(3, 4)
    if x:
        rank = len(b.shape(x))
        transposed = b.add("Transpose", [x], perm=[*range(rank - 2), rank - 1, rank - 2])
        if transposed and (scores := b.add("MatMul", [x, transposed])):
            weights = b.add("Softmax", [b.add("Tanh", [scores])], axis=-1)
            b.add("MatMul", [weights, x])


def _gemm(b: Builder) -> None:
    x = b.pick(2)
    if x:
        trans_a, trans_b = b.below(2), b.below(2)
        size, columns = b.shape(x)[1 - trans_a], b.choose([3, 8])
        weight = b.weight(*((columns, size) if trans_b else (size, columns)), scale=size**-0.5)
        bias = [b.weight(*b.choose([(columns,), (1,), (1, columns)]))] if b.below(2) else []
        b.add("Gemm", [x, weight, *bias], transA=trans_a, transB=trans_b, alpha=b.choose([1.0, 0.5]), beta=0.75)


def _einsum(b: Builder) -> None:
    x = b.pick(3, 4)
    if x:
        letters = "abcd"[: len(b.shape(x))]
        summed = b.choose(letters)
        kept = [c for c in letters if c != summed]
        b.random.shuffle(kept)
        weight = b.weight(b.shape(x)[letters.index(summed)], 3, scale=0.5)
        b.add("Einsum", [x, weight], equation=f"{letters},{summed}z->{''.join(kept)}z")


def _reduce(b: Builder) -> None:
    x = b.pick(1, 2, 3, 4, 5)
    rank = len(b.shape(x))
    axes = sorted({b.below(rank) - rank * b.below(2) for _ in range(1 + b.below(2))}, key=lambda a: a % rank)
    if len({a % rank for a in axes}) < len(axes):
        axes = axes[:1]
    op = b.choose(["ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceL1", "ReduceSum", "ReduceLogSumExp"])
    as_input = b.opset >= 18 or op == "ReduceSum"
    inputs, attributes = ([x, b.ints(*axes)], {}) if as_input else ([x], {"axes": axes})
    b.add(op, inputs, keepdims=b.below(2), **attributes)


def _cumsum(b: Builder) -> None:
    x = b.pick(1, 2, 3, 4, 5)
    axis = b.constant(b.below(len(b.shape(x))), np.int64)
    b.add("CumSum", [x, axis], exclusive=b.below(2), reverse=b.below(2))


def _layer_norm(b: Builder) -> None:
    x = b.pick(2, 3, 4)
    if x and b.opset >= 17:
        axis = -1 - b.below(min(2, len(b.shape(x)) - 1))
        shape = b.shape(x)[axis:]
        b.add("LayerNormalization", [x, b.weight(*shape), b.weight(*shape)], axis=axis)


def _decomposed_layer_norm(b: Builder) -> None:
    """LayerNormalization as older exporters decompose it."""
    x = b.pick(2, 3, 4)
    axes = [b.choose([-1, 1])] if x else []
    if not x or b.opset >= 18:
        return
    mean = b.add("ReduceMean", [x], axes=axes, keepdims=1)
    centered = mean and b.add("Sub", [x, mean])
    square = centered and b.add("Pow", [centered, b.constant(2.0, np.float32)])
    variance = square and b.add("ReduceMean", [square], axes=axes, keepdims=1)
    if variance:
        root = b.add("Sqrt", [b.add("Add", [variance, b.constant(0.1, np.float32)])])
        b.add("Div", [centered, root])


def _norms(b: Builder) -> None:
    x = b.pick(3, 4)
    if not x:
        return
    channels = b.shape(x)[1]
    kind = b.below(5)
    if kind == 0:
        b.add("InstanceNormalization", [x, b.weight(channels), b.weight(channels)], epsilon=0.01)
    elif kind == 1:
        b.add("LpNormalization", [x], axis=b.below(len(b.shape(x))), p=b.choose([1, 2]))
    elif kind == 2 and len(b.shape(x)) == 4:
        b.add("LRN", [x], size=b.choose([3, 5]), alpha=0.1, beta=0.75, bias=1.0)
    elif kind == 3:
        variance = b.constant(b.random.random(channels).astype(np.float32) + 0.5)
        b.add("BatchNormalization", [x, b.weight(channels), b.weight(channels), b.weight(channels), variance])
    elif b.opset >= 21 and channels % 2 == 0:
        scale = [b.weight(channels), b.weight(channels)]
        b.add("GroupNormalization", [x, *scale], num_groups=2, epsilon=0.01, shape=b.shape(x))


def _prelu(b: Builder) -> None:
    x = b.pick(3, 4)
    if x:
        shape = b.choose([(b.shape(x)[1], *(1 for _ in b.shape(x)[2:])), (1,), b.shape(x)[-1:]])
        b.add("PRelu", [x, b.weight(*shape)])


def _silu(b: Builder) -> None:
    x = b.pick()
    if gate := b.add("Sigmoid", [x]):
        b.add("Mul", [x, gate] if b.below(2) else [gate, x])


STEPS: tuple[Callable[[Builder], None], ...] = (
    _unary, _unary, _newer_unary, _positive, _square, _clip, _softmax, _with_constant, _with_constant, _with_constant,
    _binary, _binary, _binary, _where, _integers, _bools, _cast, _arg, _matmul, _matmul, _matmul_batched, _attention,
    _gemm, _einsum, _reduce, _reduce, _cumsum, _layer_norm, _decomposed_layer_norm, _norms, _norms, _prelu, _silu,
)  # fmt: skip
