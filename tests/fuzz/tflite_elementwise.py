"""Elementwise ops, reductions and products for random TFLite graphs: each function adds an op, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.fuzz.drawing import fits_product
from tests.fuzz.tflite_drawing import TfliteDrawing

Step = Callable[[TfliteDrawing], Any]
FLOATS = ("float32",) * 8 + ("float16",)
INTEGERS = ("int32",) * 4 + ("int64",) * 3 + ("int16", "int8", "uint8", "uint32")
NUMBERS = FLOATS * 2 + INTEGERS
WIDE = (*FLOATS * 2, *("int32",) * 4, *("int64",) * 3, "uint32")
"""Without the types that kernels of some ops take to be quantized."""
ALL = (*NUMBERS, "bool", "bool", "bool")
ACTIVATIONS = ("NONE",) * 4 + ("RELU", "RELU6", "RELU_N1_TO_1", "TANH", "SIGN_BIT")

_FLOAT_UNARY = ("COS", "ELU", "EXP", "HARD_SWISH", "LOGISTIC", "SIN", "TANH")
_ANY_UNARY = (
    "ABS", "CEIL", "FLOOR", "NEG", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "ROUND", "SIGN", "SQUARE",
    "ZEROS_LIKE",
)  # fmt: skip
_ARITHMETIC = ("ADD", "DIV", "MUL", "SUB")
_BINARY = (
    "FLOOR_DIV", "FLOOR_MOD", "SQUARED_DIFFERENCE",
)  # fmt: skip
_STABLEHLO = ("STABLEHLO_ADD", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM", "STABLEHLO_MULTIPLY")
_COMPARE = ("EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL")
_REDUCE = ("MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM")


def _unary(op: str, dtypes: Sequence[str], **options: Sequence[Any]) -> Step:
    return lambda g: g.op(op, [g.value(dtypes)], **{name: g.choose(values) for name, values in options.items()})


def _root(op: str) -> Step:
    return lambda g: g.op(op, [g.new(g.choose(FLOATS), g.shape(), 0.25, 4)])


def _pow(g: TfliteDrawing) -> None:
    dtype = g.choose((*FLOATS, "int32"))
    x = g.new(dtype, g.shape(), 0.25 if dtype.startswith("float") else -3, 4)
    g.op("POW", [x, g.new(dtype, g.array(x).shape[g.below(g.rank(x) + 1) :], 0, 3)])


def pair(g: TfliteDrawing, dtypes: Sequence[str]) -> list[str]:
    """Two values that broadcast, in any order."""
    x = g.value(dtypes)
    found = [x, g.partner(x)]
    return found if g.below(2) else found[::-1]


def _binary(op: str, dtypes: Sequence[str], *results: str) -> Step:
    return lambda g: g.op(op, pair(g, dtypes), *results)


def _arithmetic(op: str) -> Step:
    return lambda g: g.op(op, pair(g, WIDE), fused_activation_function=g.choose(ACTIVATIONS))


def _equal_shapes(op: str, dtypes: Sequence[str]) -> Step:
    """Of kernels that do not broadcast, and do not refuse it."""

    def step(g: TfliteDrawing) -> None:
        x = g.value(dtypes)
        y = g.value((str(g.array(x).dtype),), shape=g.array(x).shape)
        if op == "ATAN2" and any(n not in (*g.inputs, *g.constants) and not g.array(n).all() for n in (x, y)):
            return  # signs of zeros that were computed differ
        g.fix(x)
        g.fix(y)
        g.op(op, [x, y])

    return step


def _log_softmax(g: TfliteDrawing) -> None:
    """Without axes, LiteRT writes no result."""
    g.op("LOG_SOFTMAX", [g.value(FLOATS, (1, 2, 3, 4, 5))])


def _logical(g: TfliteDrawing) -> None:
    g.op(g.choose(("LOGICAL_AND", "LOGICAL_OR")), pair(g, ("bool",)))


def _xor(g: TfliteDrawing) -> None:
    g.op("BITWISE_XOR", pair(g, (*INTEGERS, "bool")))


def _shift(op: str) -> Step:
    def step(g: TfliteDrawing) -> None:
        x = g.value(INTEGERS)
        g.fix(x)
        dtype = str(g.array(x).dtype)
        g.op(op, [x, g.weight(dtype, g.array(x).shape, 0, 7)])

    return step


def _prelu(g: TfliteDrawing) -> None:
    x = g.value(FLOATS)
    g.op("PRELU", [x, g.partner(x)])


def _select(op: str) -> Step:
    def step(g: TfliteDrawing) -> None:
        x = g.value(ALL)
        shape = g.array(x).shape
        g.fix(x) if op == "SELECT" else None
        y = g.weight(str(g.array(x).dtype), shape) if op == "SELECT" else g.partner(x)
        condition = (
            g.value(("bool",), shape=g.choose((shape, shape[:1], ()))) if op == "SELECT" else g.partner(x, "bool")
        )
        rank = max(g.rank(name) for name in (condition, x, y))  # of one element each, the result has the file's shape
        g.op(op, [condition, x, y], str(g.array(x).dtype), rank=rank)

    return step


def _add_n(g: TfliteDrawing) -> None:
    x = g.value(("float32", "int32"))
    others = [g.value((str(g.array(x).dtype),), shape=g.array(x).shape) for _ in range(g.below(3))]
    g.op("ADD_N", [x, *others])


def _softmax(g: TfliteDrawing) -> None:
    g.op("SOFTMAX", [g.value(FLOATS)], beta=g.choose((1.0, 1.0, 0.5, 2.0)))


def _l2_normalization(g: TfliteDrawing) -> None:
    g.op("L2_NORMALIZATION", [g.value(FLOATS)], fused_activation_function=g.choose(ACTIVATIONS))


def axes(g: TfliteDrawing, rank: int) -> list[int]:
    """Some axes, in any order, some negative, in a few cases one of them twice."""
    found = [int(a) for a in g.random.permutation(rank)[: g.below(rank + 1)]]
    found = [a - rank * g.below(2) for a in found]
    return [*found, found[0] % rank] if found and g.chance(0.15) else found


def _reduce(op: str, dtypes: Sequence[str]) -> Step:
    def step(g: TfliteDrawing) -> None:
        x = g.value(dtypes)
        if op == "REDUCE_PROD" and not fits_product(g.array(x)):
            return
        rank = g.rank(x)
        named = axes(g, rank) if rank or g.below(2) else [g.choose((0, -1))]
        others = [[(a + 1) % rank for a in named]] if rank else []
        if len(named) == 1 and g.chance(0.3):
            named, others = np.asarray(named[0]), []  # type: ignore[assignment]
        twice = np.size(named) != len({int(a) % max(rank, 1) for a in np.ravel(named)})
        g.op(op, [x, g.choice(named, *others, share=0.0 if twice else 0.2)], keep_dims=bool(g.below(2)))

    return step


def _arg(op: str) -> Step:
    def step(g: TfliteDrawing) -> None:
        x = g.value((*NUMBERS, "bool"), (1, 2, 3, 4, 5))
        axis, dtype = g.axis(x), g.choose(("int32", "int64"))
        which = g.choice(g.choose((axis, [axis])), dtype=g.choose(("int32", "int64")))
        g.op(op, [x, which], dtype, output_type=dtype.upper())

    return step


def _cumsum(g: TfliteDrawing) -> None:
    x = g.value(NUMBERS, (1, 2, 3, 4, 5))
    g.op("CUMSUM", [x, g.choice(g.axis(x), g.axis(x))], exclusive=bool(g.below(2)), reverse=bool(g.below(2)))


def _top_k(g: TfliteDrawing) -> None:
    x = g.value(NUMBERS, (1, 2, 3, 4))
    k, dtype = g.below(g.array(x).shape[-1] + 1), g.choose(("int32", "int32", "int16"))
    g.op("TOPK_V2", [x, g.choice(k, dtype=dtype)], str(g.array(x).dtype), g.choose(("int32", dtype)))


def _segment_sum(g: TfliteDrawing) -> None:
    x = g.value(("float32", "int32"), (1, 2, 3, 4))
    g.fix(x, 0)
    ids = np.cumsum([0, *(g.below(3) == 0 for _ in range(g.array(x).shape[0]))])[: g.array(x).shape[0]]
    g.op("SEGMENT_SUM", [x, g.choice(ids, 0 * ids)])


def _unsorted_segment(op: str) -> Step:
    def step(g: TfliteDrawing) -> None:
        x = g.value(("float32", "int32"), (1, 2, 3, 4))
        shape = g.array(x).shape[: 1 + g.below(g.rank(x))]
        g.fix(x)
        count = 1 + g.below(5)
        ids = g.random.integers(-1 if g.below(4) == 0 else 0, count, shape)
        g.op(op, [x, g.choice(ids, ids[::-1]), g.choice(count, count + 2)])

    return step


def _bucketize(g: TfliteDrawing) -> None:
    x = g.value(("float32", "int32", "int64", "float64"))
    g.op("BUCKETIZE", [x], "int32", boundaries=sorted({g.below(9) / 2 - 2 for _ in range(g.below(5))}))


def _fully_connected(g: TfliteDrawing) -> None:
    x = g.value(("float32",), (1, 2, 2, 3, 4, 5))
    shape = g.array(x).shape
    depth = shape[-1] if g.chance(0.8) else int(np.prod(shape[1:]))
    g.fix(x, *((-1,) if depth == shape[-1] else ()))
    units = g.size()
    if not depth:  # LiteRT writes no result
        return
    bias = g.choose(("", g.weight("float32", [units])))
    act = g.choose(ACTIVATIONS)
    inputs = [x, g.weight("float32", [units, depth]), bias]
    keep = bool(g.below(2))
    g.op("FULLY_CONNECTED", inputs[: 3 if bias or g.below(2) else 2], keep_num_dims=keep, fused_activation_function=act)


def _batch_matmul(g: TfliteDrawing) -> None:
    dtype = g.choose(("float32", "float32", "float32", "int32", "int64", "float16"))
    x = g.value((dtype,), (2, 2, 3, 3, 4, 5))
    shape = g.array(x).shape
    adj_x, adj_y = bool(g.below(2)), bool(g.below(2))
    depth, columns = shape[-2] if adj_x else shape[-1], g.size()
    g.fix(x)
    batch = [1 if g.chance(0.2) else n for n in shape[:-2]][g.below(len(shape) - 1) if g.chance(0.3) else 0 :]
    y = g.new(dtype, [*batch, *([columns, depth] if adj_y else [depth, columns])])
    g.op("BATCH_MATMUL", [x, y], adj_x=adj_x, adj_y=adj_y)


def _fake_quant(g: TfliteDrawing) -> None:
    low, high = g.choose(((-1.0, 1.0), (0.0, 3.0), (-2.3, 0.5), (0.5, 2.0)))
    narrow = bool(g.below(2))
    g.op("FAKE_QUANT", [g.value()], min=low, max=high, num_bits=g.choose((8, 8, 4, 16)), narrow_range=narrow)


STEPS: dict[str, Step] = {
    "LOG_SOFTMAX": _log_softmax,
    **{op: _unary(op, FLOATS) for op in _FLOAT_UNARY},
    **{op: _unary(op, WIDE) for op in _ANY_UNARY},
    **{op: _root(op) for op in ("LOG", "RSQRT", "SQRT")},
    "GELU": _unary("GELU", FLOATS, approximate=(False, True)),
    "LEAKY_RELU": _unary("LEAKY_RELU", FLOATS, alpha=(0.1, 0.5, -0.5, 1.5)),
    "LOGICAL_NOT": _unary("LOGICAL_NOT", ("bool",)),
    "LOGICAL_AND": _logical,
    "LOGICAL_OR": _logical,
    **{op: _arithmetic(op) for op in _ARITHMETIC},
    **{op: _binary(op, WIDE) for op in _BINARY},
    "ATAN2": _equal_shapes("ATAN2", (*FLOATS, "float64")),
    "POW": _pow,
    "MAXIMUM": _binary("MAXIMUM", NUMBERS),
    "MINIMUM": _binary("MINIMUM", NUMBERS),
    **{op: _binary(op, (*WIDE, "bool", "int16"), "bool") for op in _COMPARE if op != "NOT_EQUAL"},
    "NOT_EQUAL": _binary("NOT_EQUAL", (*WIDE, "bool"), "bool"),
    "BITWISE_XOR": _xor,
    **{op: _equal_shapes(op, WIDE) for op in _STABLEHLO},
    "STABLEHLO_AND": _equal_shapes("STABLEHLO_AND", (*INTEGERS, "bool")),
    "RIGHT_SHIFT": _shift("RIGHT_SHIFT"),
    "STABLEHLO_SHIFT_LEFT": _shift("STABLEHLO_SHIFT_LEFT"),
    "PRELU": _prelu,
    "SELECT": _select("SELECT"),
    "SELECT_V2": _select("SELECT_V2"),
    "ADD_N": _add_n,
    "SOFTMAX": _softmax,
    "L2_NORMALIZATION": _l2_normalization,
    **{op: _reduce(op, WIDE) for op in _REDUCE},
    **{op: _reduce(op, ("bool",)) for op in ("REDUCE_ALL", "REDUCE_ANY")},
    "ARG_MAX": _arg("ARG_MAX"),
    "ARG_MIN": _arg("ARG_MIN"),
    "CUMSUM": _cumsum,
    "TOPK_V2": _top_k,
    "SEGMENT_SUM": _segment_sum,
    **{
        f"UNSORTED_SEGMENT_{kind}": _unsorted_segment(f"UNSORTED_SEGMENT_{kind}")
        for kind in ["MAX", "MIN", "PROD", "SUM"]
    },
    "BUCKETIZE": _bucketize,
    "FULLY_CONNECTED": _fully_connected,
    "BATCH_MATMUL": _batch_matmul,
    "FAKE_QUANT": _fake_quant,
}
