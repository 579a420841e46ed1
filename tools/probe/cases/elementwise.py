"""Ops on one tensor, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from tools.probe.case import ALL, FLOATS, INTEGERS, NUMBERS, Array, Case, meant, numbers, sizes, small
from tools.probe.registry import probe

from onnxtfl.ir.types import DType

Meaning = Callable[[Array], Array]
_erf = np.vectorize(math.erf, otypes=[np.float64])


def _gelu(x: Array) -> Array:
    return np.asarray(x * 0.5 * (1 + _erf(x / math.sqrt(2))))


def _gelu_tanh(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


_FLOAT_OPS: dict[str, tuple[Meaning, float, float]] = {
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
_NUMBER_OPS: dict[str, Meaning] = {
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
    op: str, elements: tuple[str, ...], meaning: Meaning, operand: Callable[[str, Any], Array]
) -> Iterator[Case]:
    for element in elements:
        for rank in (1, 2, 3, 4, 0, 5, 6, 7, 8):
            x = operand(element, sizes(rank))
            yield meant(op, {"T": element}, [x], partial(_rounded, meaning))


def _rounded(meaning: Meaning, x: Array) -> list[Array]:
    """Small floats are computed in float32."""
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iub" else x
    with np.errstate(all="ignore"):
        return [np.asarray(meaning(wide)).astype(x.dtype)]


@probe(*_FLOAT_OPS)
def float_ops(op: str) -> Iterator[Case]:
    """Ops that only floats have; quantized ones come later."""
    meaning, low, high = _FLOAT_OPS[op]
    yield from _unary(op, FLOATS, meaning, lambda e, s: numbers(e, s, seed=op, low=low, high=high))


@probe(*_NUMBER_OPS)
def number_ops(op: str) -> Iterator[Case]:
    """Ops that all numbers have."""
    yield from _unary(op, NUMBERS, _NUMBER_OPS[op], lambda e, s: numbers(e, s, seed=op))


@probe("RELU_N1_TO_1")
def relu_n1_to_1(op: str) -> Iterator[Case]:
    """Clipped to [-1, 1], which unsigned numbers do not have."""
    elements = tuple(e for e in NUMBERS if not e.startswith("u"))
    yield from _unary(op, elements, lambda x: np.clip(x, -1, 1), lambda e, s: numbers(e, s, seed=op))


@probe("LOGICAL_NOT")
def logical_not(op: str) -> Iterator[Case]:
    """Bools."""
    yield from _unary(op, ("bool",), np.logical_not, numbers)


@probe("GELU")
def gelu(op: str) -> Iterator[Case]:
    """Exact, and by tanh."""
    for approximate, meaning in ((False, _gelu), (True, _gelu_tanh)):
        for case in _unary(op, FLOATS, meaning, numbers):
            case.options, case.extra = {"approximate": approximate}, {"approximate": approximate}
            yield case


@probe("LEAKY_RELU")
def leaky_relu(op: str) -> Iterator[Case]:
    """With a slope below and above 1."""
    for alpha in (0.2, 1.5, -0.5):
        for case in _unary(op, FLOATS, lambda x, a=alpha: np.where(x > 0, x, x * a), numbers):  # type: ignore[misc]
            case.options = {"alpha": alpha}
            yield case


@probe("CAST")
def cast(op: str) -> Iterator[Case]:
    """Every pair of element types; fractions are cut, what does not fit is not asked."""
    elements = tuple(e for e in ALL if e != "string")
    for source in elements:
        for target in elements:
            for rank in (1, 0, 4, 6, 8):
                x = _fitting(source, target, rank)
                yield Case(op, {"T": source, "U": target}, [x], [_converted(x, target)])


def _fitting(source: str, target: str, rank: int) -> Array:
    """Numbers of `source` that `target` has, cut or rounded."""
    if source in FLOATS:
        x = numbers(source, sizes(rank), low=0 if target.startswith("u") else -100, high=100)
        return np.where(np.abs(x.astype(np.float32)) < 1, x.dtype.type(0), x).astype(x.dtype)
    if source == "bool" or target not in INTEGERS:
        return small(source, sizes(rank)) if target == "bool" else numbers(source, sizes(rank))
    bounds, own = np.iinfo(target), np.iinfo(source)
    low, high = max(int(bounds.min), int(own.min)), min(int(bounds.max), int(own.max))
    return np.clip(numbers(source, sizes(rank)), low // 2, high // 2).astype(source)


def _converted(x: Array, target: str) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(x != 0) if target == "bool" else np.asarray(x).astype(DType(target).numpy)


@probe("DEQUANTIZE")
def dequantize(op: str) -> Iterator[Case]:
    """float16 to float32. (A constant that goes through this op alone to an output is refused by XNNPACK.)"""
    for rank in (1, 0, 2, 3, 4, 5, 6, 7, 8):
        x = numbers("float16", sizes(rank))
        yield Case(op, {"T": "float16", "U": "float32"}, [x], [x.astype(np.float32)])


@probe("BITCAST")
def bitcast(op: str) -> Iterator[Case]:
    """Types of one width, and 64-bit numbers as pairs of words."""
    widths = {8: ("int8", "uint8"), 16: ("int16", "uint16", "float16"), 32: ("int32", "uint32", "float32")}
    widths[64] = ("int64", "uint64", "float64")
    for elements in widths.values():
        for source in elements:
            for target in elements:
                for rank in (1, 0, 2, 4, 6, 8) if source != target else ():
                    x = numbers(source, sizes(rank))
                    yield Case(op, {"T": source, "U": target}, [x], [np.asarray(x).view(target)])
    for element in ("int64", "uint64"):
        for rank in (1, 0, 2, 4, 6, 7):
            x = numbers(element, sizes(rank))
            words = np.frombuffer(x.tobytes(), np.int32).reshape(*x.shape, 2)
            yield Case(op, {"T": element, "U": "int32"}, [x], [words])
            yield Case(op, {"T": "int32", "U": element}, [words], [x])


@probe("FAKE_QUANT")
def fake_quant(op: str) -> Iterator[Case]:
    """Eight bits over [-4, 4], nudged so that zero is exact."""
    options = {"min": -4.0, "max": 4.0, "num_bits": 8, "narrow_range": False}
    scale = 8.0 / 255
    zero = round(4.0 / scale)

    def meaning(x: Array) -> Array:
        return (np.clip(np.round(x / scale + zero), 0, 255) - zero) * scale

    for case in _unary(op, ("float32",), meaning, numbers):
        case.options, case.tolerance = options, 5e-2
        yield case
