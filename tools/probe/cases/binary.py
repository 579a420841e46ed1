"""Elementwise ops on two tensors, and selects, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from tools.probe.case import ALL, FLOATS, INTEGERS, NUMBERS, Array, Case, draw, draw_small, evaluated, sizes
from tools.probe.registry import probe

Shape = tuple[int, ...]
Pair = tuple[str, Shape, Shape]
Evaluate = Callable[[Any, Any], Any]
RANKS = (1, 2, 3, 4, 0, 5, 6, 7, 8)


def pairs(rank: int) -> Iterator[Pair]:
    """(mode, shapes of two operands) whose result has this rank."""
    full = sizes(rank)
    yield "equal", full, full
    if rank == 0:
        return
    for one in ((), (1,) * rank):
        yield "scalar", full, one
        yield "scalar", one, full
    if rank == 1:
        return
    even = tuple(1 if i % 2 == 0 else d for i, d in enumerate(full))
    odd = tuple(1 if i % 2 else d for i, d in enumerate(full))
    row, inner, outer = full[-1:], full[1:], (*full[:-1], 1)
    for a, b in ((full, row), (full, inner), (full, outer), (full, even), (even, odd), (odd, inner), (row, outer)):
        yield "broadcast", a, b
        yield "broadcast", b, a


def _two(
    op: str, elements: tuple[str, ...], evaluate: Evaluate, operands: Callable[[str, Shape, str], Array], **fields: Any
) -> Iterator[Case]:
    """The cases of one op: each pair of shapes with no constant operand, and with either one constant."""
    for element in elements:
        for rank in RANKS:
            for mode, left, right in pairs(rank):
                a, b = operands(element, left, "lhs"), operands(element, right, "rhs")
                expected = partial(_expected, evaluate)
                one_is_a_row = right == left[-1:] or left == right[-1:]
                for constants in ((), (1,), (0,)) if right in (left, ()) or one_is_a_row else ((),):
                    fixed = frozenset(constants)
                    yield evaluated(op, {"T": element}, [a, b], expected, mode=mode, constants=fixed, **fields)


def _expected(evaluate: Evaluate, a: Array, b: Array) -> list[Array]:
    narrow = a.dtype.itemsize == 2 and a.dtype.kind not in "iub"
    with np.errstate(all="ignore"):
        result = np.asarray(evaluate(a.astype(np.float32), b.astype(np.float32)) if narrow else evaluate(a, b))
    return [result if result.dtype == np.bool_ else result.astype(a.dtype)]


def _truncated(a: Any, b: Any) -> Any:
    if a.dtype.kind not in "iu":
        return a / b
    quotient = np.floor_divide(a, b)
    inexact = np.multiply(quotient, b) != a
    return (quotient + (inexact & ((a < 0) != (b < 0)))).astype(a.dtype)


_NONZERO = lambda e, s, seed: _divisor(draw(e, s, seed=seed), seed)  # noqa: E731


def _divisor(x: Array, seed: str) -> Array:
    """Small divisors without zero; dividends (other seeds than "rhs") unchanged."""
    if seed != "rhs":
        return x
    if x.dtype.kind in "iu":
        divisors = np.asarray(x % 7 + 1)
        return np.where(x < 0, np.negative(divisors), divisors).astype(x.dtype) if x.dtype.kind == "i" else divisors
    return np.where(np.abs(x.astype(np.float32)) < 0.3, x.dtype.type(0.7), x).astype(x.dtype)


def _full_range(element: str, shape: Shape, seed: str) -> Array:
    return draw(element, shape, seed=seed)


def _no_overflow(element: str, shape: Shape, seed: str) -> Array:
    return draw(element, shape, seed=seed) if element in FLOATS else draw_small(element, shape, seed=seed)


_ARITHMETIC: dict[str, tuple[Evaluate, Callable[[str, Shape, str], Array]]] = {
    "ADD": (np.add, _full_range),
    "SUB": (np.subtract, _full_range),
    "MUL": (np.multiply, _no_overflow),
    "DIV": (_truncated, _NONZERO),
    "FLOOR_DIV": (np.floor_divide, _NONZERO),
    "FLOOR_MOD": (np.mod, _NONZERO),
    "MAXIMUM": (np.maximum, _full_range),
    "MINIMUM": (np.minimum, _full_range),
    "SQUARED_DIFFERENCE": (lambda a, b: np.square(a - b), lambda e, s, seed: _no_overflow(e, s, "same")),
}


@probe(*_ARITHMETIC)
def arithmetic(op: str) -> Iterator[Case]:
    """All numeric types; integers do not overflow, but differences of unsigned ones wrap."""
    evaluate, operands = _ARITHMETIC[op]
    fused = {"fused_activation_function": "NONE"} if op in ("ADD", "SUB", "MUL", "DIV") else {}
    yield from _two(op, NUMBERS, evaluate, operands, options=fused)


@probe("POW")
def power(op: str) -> Iterator[Case]:
    """Positive bases; small integers."""

    def operands(element: str, shape: Shape, seed: str) -> Array:
        if element in FLOATS:
            return draw(element, shape, seed=seed, low=0.3, high=3)
        return draw_small(element, shape, seed=seed, low=0 if seed == "rhs" else -3, high=4)

    yield from _two(op, (*FLOATS, *INTEGERS), np.power, operands)


@probe("ATAN2")
def atan2(op: str) -> Iterator[Case]:
    """Floats."""
    yield from _two(op, FLOATS, np.arctan2, _full_range)


_COMPARISONS: dict[str, Evaluate] = {
    "EQUAL": np.equal,
    "NOT_EQUAL": np.not_equal,
    "LESS": np.less,
    "LESS_EQUAL": np.less_equal,
    "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal,
}


@probe(*_COMPARISONS)
def comparisons(op: str) -> Iterator[Case]:
    """Values of which some are equal or nearly equal; equality of bools and strings too."""
    elements = ALL if op in ("EQUAL", "NOT_EQUAL") else NUMBERS

    def operands(element: str, shape: Shape, seed: str) -> Array:
        if element in ("bool", "string"):
            return draw(element, shape, seed=seed)
        return _nearly_equal(element, shape, seed)

    for case in _two(op, elements, _COMPARISONS[op], operands):
        if case.types["T"] != "string" or not case.constants:
            yield case


def _nearly_equal(element: str, shape: Shape, seed: str) -> Array:
    """Few different values; large integers that differ in their last bits only."""
    offsets = draw_small(element, shape, seed=seed, low=-2, high=2)
    base = {"uint64": (1 << 63) + (1 << 54), "int64": 1 << 60}.get(element, 0)
    if element in ("uint8", "uint16", "uint32"):
        base = int(np.iinfo(offsets.dtype).max) - 9
    return np.asarray(offsets + offsets.dtype.type(base))


@probe("LOGICAL_AND", "LOGICAL_OR")
def logical(op: str) -> Iterator[Case]:
    """Bools."""
    evaluate = np.logical_and if op == "LOGICAL_AND" else np.logical_or
    yield from _two(op, ("bool",), evaluate, _full_range)


@probe("BITWISE_XOR")
def bitwise_xor(op: str) -> Iterator[Case]:
    """Integers and bools."""
    yield from _two(op, (*INTEGERS, "bool"), np.bitwise_xor, _full_range)


@probe("RIGHT_SHIFT")
def right_shift(op: str) -> Iterator[Case]:
    """Arithmetic shift for signed types, by less than the width."""

    def operands(element: str, shape: Shape, seed: str) -> Array:
        return (
            draw_small(element, shape, seed=seed, low=0, high=6) if seed == "rhs" else draw(element, shape, seed=seed)
        )

    yield from _two(op, INTEGERS, np.right_shift, operands)


@probe("PRELU")
def prelu(op: str) -> Iterator[Case]:
    """Slopes that broadcast to the shape of the operand, constant and computed."""
    for element in NUMBERS:
        for rank in RANKS:
            for mode, left, right in pairs(rank):
                x, alpha = _no_overflow(element, left, "lhs"), _no_overflow(element, right, "rhs")
                for constants in ((), (1,)) if np.broadcast_shapes(left, right) == left else ():
                    yield evaluated(op, {"T": element}, [x, alpha], _prelu, mode=mode, constants=frozenset(constants))


def _prelu(x: Array, alpha: Array) -> list[Array]:
    return [np.where(x >= 0, x, x * alpha).astype(x.dtype)]


@probe("SELECT_V2")
def select_v2(op: str) -> Iterator[Case]:
    """All three operands broadcast."""
    for element in ALL:
        for rank in RANKS:
            for mode, left, right in pairs(rank):
                for shapes in ((left, right, right), (right, left, left), (left, left, right), (left, right, left)):
                    yield _selected(op, element, mode, shapes)


@probe("SELECT")
def select(op: str) -> Iterator[Case]:
    """Equal shapes."""
    for element in ALL:
        for rank in RANKS:
            yield _selected(op, element, "equal", (sizes(rank),) * 3)


def _selected(op: str, element: str, mode: str, shapes: tuple[Shape, ...]) -> Case:
    condition, x, y = draw("bool", shapes[0]), *(draw(element, s, seed=str(i)) for i, s in enumerate(shapes[1:]))
    return Case(op, {"C": "bool", "T": element}, [condition, x, y], [np.where(condition, x, y)], mode=mode)


@probe("ADD_N")
def add_n(op: str) -> Iterator[Case]:
    """Two to four operands of one shape."""
    for element in NUMBERS:
        for rank in RANKS:
            for count in (2, 3, 4):
                xs = [_no_overflow(element, sizes(rank), str(i)) for i in range(count)]
                yield Case(op, {"T": element}, xs, [sum(xs[1:], xs[0]).astype(xs[0].dtype)])
