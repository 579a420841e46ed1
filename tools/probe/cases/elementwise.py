"""Elementwise ops on one tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from tools.probe.case import ALL, FLOATS, INTEGERS, NUMBERS, Array, Case, draw, draw_small, evaluated, sizes
from tools.probe.registry import probe

from onnxtfl.ir.types import DType

Evaluate = Callable[[Array], Array]
MANY = 24
"""Elements of the operands of rank 1."""
_erf = np.vectorize(math.erf, otypes=[np.float64])


def _gelu(x: Array) -> Array:
    return np.asarray(x * 0.5 * (1 + _erf(x / math.sqrt(2))))


def _gelu_tanh(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


_FLOAT_OPS: dict[str, tuple[Evaluate, float, float]] = {
    "CEIL": (np.ceil, -9, 9),
    "COS": (np.cos, -9, 9),
    "ELU": (lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), -6, 6),
    "EXP": (np.exp, -6, 4),
    "FLOOR": (np.floor, -9, 9),
    "HARD_SWISH": (lambda x: x * np.clip(x + 3, 0, 6) / 6, -5, 5),
    "LOG": (np.log, 0.01, 9),
    "LOGISTIC": (lambda x: 1 / (1 + np.exp(-x)), -9, 9),
    "ROUND": (np.round, -9, 9),
    "RSQRT": (lambda x: 1 / np.sqrt(x), 0.01, 9),
    "SIN": (np.sin, -9, 9),
    "SQRT": (np.sqrt, 0.01, 9),
    "TANH": (np.tanh, -5, 5),
}
_NUMBER_OPS: dict[str, Evaluate] = {
    "ABS": np.abs,
    "NEG": np.negative,
    "RELU": lambda x: np.maximum(x, 0),
    "RELU6": lambda x: np.clip(x, 0, 6),
    "RELU_0_TO_1": lambda x: np.clip(x, 0, 1),
    "SIGN": np.sign,
    "SQUARE": lambda x: x * x,
    "ZEROS_LIKE": np.zeros_like,
}


def _unary(
    op: str, elements: tuple[str, ...], evaluate: Evaluate, operand: Callable[[str, Any], Array]
) -> Iterator[Case]:
    for element in elements:
        for rank in (1, 2, 3, 4, 0, 5, 6, 7, 8):
            x = operand(element, (MANY,) if rank == 1 else sizes(rank))  # a few elements may all be clipped
            yield evaluated(op, {"T": element}, [x], partial(_rounded, evaluate))


def _rounded(evaluate: Evaluate, x: Array) -> list[Array]:
    """The result of `evaluate`, for 16-bit floats computed in float32."""
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iub" else x
    with np.errstate(all="ignore"):
        return [np.asarray(evaluate(wide)).astype(x.dtype)]


@probe(*_FLOAT_OPS)
def float_ops(op: str) -> Iterator[Case]:
    """Ops for floats (quantized cases are made from these)."""
    evaluate, low, high = _FLOAT_OPS[op]
    yield from _unary(op, FLOATS, evaluate, lambda e, s: draw(e, s, seed=op, low=low, high=high))


@probe(*_NUMBER_OPS)
def number_ops(op: str) -> Iterator[Case]:
    """Ops for all numeric types."""
    yield from _unary(op, NUMBERS, _NUMBER_OPS[op], lambda e, s: draw(e, s, seed=op))


@probe("RELU_N1_TO_1")
def relu_n1_to_1(op: str) -> Iterator[Case]:
    """Clips to [-1, 1]; signed types only."""
    elements = tuple(e for e in NUMBERS if not e.startswith("u"))
    yield from _unary(op, elements, lambda x: np.clip(x, -1, 1), lambda e, s: draw(e, s, seed=op))


@probe("LOGICAL_NOT")
def logical_not(op: str) -> Iterator[Case]:
    """Bools."""
    yield from _unary(op, ("bool",), np.logical_not, draw)


@probe("GELU")
def gelu(op: str) -> Iterator[Case]:
    """Exact and tanh approximation."""
    for approximate, evaluate in ((False, _gelu), (True, _gelu_tanh)):
        for case in _unary(op, FLOATS, evaluate, draw):
            case.options, case.extra = {"approximate": approximate}, {"approximate": approximate}
            yield case


@probe("LEAKY_RELU")
def leaky_relu(op: str) -> Iterator[Case]:
    """Slopes below 0, below 1 and above 1."""
    for alpha in (0.2, 1.5, -0.5):
        for case in _unary(op, FLOATS, lambda x, a=alpha: np.where(x > 0, x, x * a), draw):  # type: ignore[misc]
            case.options = {"alpha": alpha}
            yield case


@probe("CAST")
def cast(op: str) -> Iterator[Case]:
    """Every pair of element types; fractions are truncated, all values are in the range of the target."""
    elements = tuple(e for e in ALL if e != "string")
    for source in elements:
        for target in elements:
            for rank in (1, 0, 4, 6, 8):
                x = _fitting(source, target, rank)
                yield Case(op, {"T": source, "U": target}, [x], [_converted(x, target)])


def _fitting(source: str, target: str, rank: int) -> Array:
    """Values of `source` in the range of `target`."""
    if source in FLOATS:
        x = draw(source, sizes(rank), low=0 if target.startswith("u") else -100, high=100)
        return np.where(np.abs(x.astype(np.float32)) < 1, x.dtype.type(0), x).astype(x.dtype)
    if source == "bool" or target not in INTEGERS:
        return draw_small(source, sizes(rank)) if target == "bool" else draw(source, sizes(rank))
    bounds, own = np.iinfo(target), np.iinfo(source)
    low, high = max(int(bounds.min), int(own.min)), min(int(bounds.max), int(own.max))
    return np.clip(draw(source, sizes(rank)), low // 2, high // 2).astype(source)


def _converted(x: Array, target: str) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(x != 0) if target == "bool" else np.asarray(x).astype(DType(target).numpy)


@probe("DEQUANTIZE")
def dequantize(op: str) -> Iterator[Case]:
    """float16 to float32. (XNNPACK refuses a constant whose only use is this op.)"""
    for rank in (1, 0, 2, 3, 4, 5, 6, 7, 8):
        x = draw("float16", sizes(rank))
        yield Case(op, {"T": "float16", "U": "float32"}, [x], [x.astype(np.float32)])


@probe("BITCAST")
def bitcast(op: str) -> Iterator[Case]:
    """Types of equal width, 64-bit integers as pairs of words, and complex numbers as pairs of floats."""
    widths = {8: ("int8", "uint8"), 16: ("int16", "uint16", "float16"), 32: ("int32", "uint32", "float32")}
    widths[64] = ("int64", "uint64", "float64")
    for elements in widths.values():
        for source in elements:
            for target in elements:
                for rank in (1, 0, 2, 4, 6, 8) if source != target else ():
                    x = draw(source, sizes(rank))
                    yield Case(op, {"T": source, "U": target}, [x], [np.asarray(x).view(target)])
    for element in ("int64", "uint64"):
        for rank in (1, 0, 2, 4, 6, 7):
            x = draw(element, sizes(rank))
            words = np.frombuffer(x.tobytes(), np.int32).reshape(*x.shape, 2)
            yield Case(op, {"T": element, "U": "int32"}, [x], [words])
            yield Case(op, {"T": "int32", "U": element}, [words], [x])
    for rank in (1, 0, 2, 4, 6, 7):
        pairs = draw("float32", (*sizes(rank), 2))
        yield Case(op, {"T": "float32", "U": "complex64"}, [pairs], [pairs.view(np.complex64)[..., 0]])


@probe("FAKE_QUANT")
def fake_quant(op: str) -> Iterator[Case]:
    """8 bits over [-4, 4], the range adjusted so that zero is exact."""
    options = {"min": -4.0, "max": 4.0, "num_bits": 8, "narrow_range": False}
    scale = 8.0 / 255
    zero = round(4.0 / scale)

    def evaluate(x: Array) -> Array:
        return (np.clip(np.round(x / scale + zero), 0, 255) - zero) * scale

    for case in _unary(op, ("float32",), evaluate, draw):
        case.options, case.tolerance = options, 5e-2
        yield case
