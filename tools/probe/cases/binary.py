"""Ops on two tensors (and selects), element by element, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from tools.probe.case import ALL, FLOATS, INTEGERS, NUMBERS, Array, Case, meant, numbers, sizes, small
from tools.probe.registry import probe

Shape = tuple[int, ...]
Pair = tuple[str, Shape, Shape]
Meaning = Callable[[Any, Any], Any]
RANKS = (1, 2, 3, 4, 0, 5, 6, 7, 8)


def pairs(rank: int) -> Iterator[Pair]:
    """Shapes of two operands whose result has that rank."""
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
    op: str, elements: tuple[str, ...], meaning: Meaning, operands: Callable[[str, Shape, str], Array], **fields: Any
) -> Iterator[Case]:
    """The cases of one op: each pair of shapes with both operands computed, and with either constant."""
    for element in elements:
        for rank in RANKS:
            for mode, left, right in pairs(rank):
                a, b = operands(element, left, "lhs"), operands(element, right, "rhs")
                meant_by = partial(_expected, meaning)
                for constants in ((), (1,), (0,)) if right in (left, (), left[-1:]) else ((),):
                    fixed = frozenset(constants)
                    yield meant(op, {"T": element}, [a, b], meant_by, mode=mode, constants=fixed, **fields)


def _expected(meaning: Meaning, a: Array, b: Array) -> list[Array]:
    narrow = a.dtype.itemsize == 2 and a.dtype.kind not in "iub"
    with np.errstate(all="ignore"):
        result = np.asarray(meaning(a.astype(np.float32), b.astype(np.float32)) if narrow else meaning(a, b))
    return [result if result.dtype == np.bool_ else result.astype(a.dtype)]


def _truncated(a: Any, b: Any) -> Any:
    if a.dtype.kind not in "iu":
        return a / b
    quotient = np.floor_divide(a, b)
    inexact = np.multiply(quotient, b) != a
    return (quotient + (inexact & ((a < 0) != (b < 0)))).astype(a.dtype)


_NONZERO = lambda e, s, seed: _away(numbers(e, s, seed=seed), seed)  # noqa: E731


def _away(x: Array, seed: str) -> Array:
    """Small divisors that are not zero; dividends as they are."""
    if seed != "rhs":
        return x
    if x.dtype.kind in "iu":
        small_numbers = np.asarray(x % 7 + 1)
        return (
            np.where(x < 0, np.negative(small_numbers), small_numbers).astype(x.dtype)
            if x.dtype.kind == "i"
            else small_numbers
        )
    return np.where(np.abs(x.astype(np.float32)) < 0.3, x.dtype.type(0.7), x).astype(x.dtype)


def _half(element: str, shape: Shape, seed: str) -> Array:
    return numbers(element, shape, seed=seed)


def _few(element: str, shape: Shape, seed: str) -> Array:
    return numbers(element, shape, seed=seed) if element in FLOATS else small(element, shape, seed=seed)


_ARITHMETIC: dict[str, tuple[Meaning, Callable[[str, Shape, str], Array]]] = {
    "ADD": (np.add, _half),
    "SUB": (np.subtract, _half),
    "MUL": (np.multiply, _few),
    "DIV": (_truncated, _NONZERO),
    "FLOOR_DIV": (np.floor_divide, _NONZERO),
    "FLOOR_MOD": (np.mod, _NONZERO),
    "MAXIMUM": (np.maximum, _half),
    "MINIMUM": (np.minimum, _half),
    "SQUARED_DIFFERENCE": (lambda a, b: np.square(a - b), lambda e, s, seed: _few(e, s, "same")),
}


@probe(*_ARITHMETIC)
def arithmetic(op: str) -> Iterator[Case]:
    """Arithmetic on every type of number; integers within what does not overflow, differences of unsigned ones wrap."""
    meaning, operands = _ARITHMETIC[op]
    fused = {"fused_activation_function": "NONE"} if op in ("ADD", "SUB", "MUL", "DIV") else {}
    yield from _two(op, NUMBERS, meaning, operands, options=fused)


@probe("POW")
def power(op: str) -> Iterator[Case]:
    """Positive bases; small integers."""

    def operands(element: str, shape: Shape, seed: str) -> Array:
        if element in FLOATS:
            return numbers(element, shape, seed=seed, low=0.3, high=3)
        return small(element, shape, seed=seed, low=0 if seed == "rhs" else -3, high=4)

    yield from _two(op, (*FLOATS, *INTEGERS), np.power, operands)


@probe("ATAN2")
def atan2(op: str) -> Iterator[Case]:
    """Floats."""
    yield from _two(op, FLOATS, np.arctan2, _half)


_COMPARISONS: dict[str, Meaning] = {
    "EQUAL": np.equal,
    "NOT_EQUAL": np.not_equal,
    "LESS": np.less,
    "LESS_EQUAL": np.less_equal,
    "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal,
}


@probe(*_COMPARISONS)
def comparisons(op: str) -> Iterator[Case]:
    """Numbers of which some are equal, and some only nearly; equality for bools and strings too."""
    elements = ALL if op in ("EQUAL", "NOT_EQUAL") else NUMBERS

    def operands(element: str, shape: Shape, seed: str) -> Array:
        if element in ("bool", "string"):
            return numbers(element, shape, seed=seed)
        return _nearly_equal(element, shape, seed)

    for case in _two(op, elements, _COMPARISONS[op], operands):
        if case.types["T"] != "string" or not case.constants:
            yield case


def _nearly_equal(element: str, shape: Shape, seed: str) -> Array:
    """Numbers out of few; big integers that differ only in their last bits."""
    few = small(element, shape, seed=seed, low=-2, high=2)
    far = {"uint64": (1 << 63) + (1 << 54), "int64": 1 << 60}.get(element, 0)
    if element in ("uint8", "uint16", "uint32"):
        far = int(np.iinfo(few.dtype).max) - 9
    return np.asarray(few + few.dtype.type(far))


@probe("LOGICAL_AND", "LOGICAL_OR")
def logical(op: str) -> Iterator[Case]:
    """Bools."""
    meaning = np.logical_and if op == "LOGICAL_AND" else np.logical_or
    yield from _two(op, ("bool",), meaning, _half)


@probe("BITWISE_XOR")
def bitwise_xor(op: str) -> Iterator[Case]:
    """Integers and bools."""
    yield from _two(op, (*INTEGERS, "bool"), np.bitwise_xor, _half)


@probe("RIGHT_SHIFT")
def right_shift(op: str) -> Iterator[Case]:
    """Arithmetic for signed numbers; by less than the width."""

    def operands(element: str, shape: Shape, seed: str) -> Array:
        return small(element, shape, seed=seed, low=0, high=6) if seed == "rhs" else numbers(element, shape, seed=seed)

    yield from _two(op, INTEGERS, np.right_shift, operands)


@probe("PRELU")
def prelu(op: str) -> Iterator[Case]:
    """The slope, nearly always constant, is no larger than the operand."""
    for element in NUMBERS:
        for rank in RANKS:
            for mode, left, right in pairs(rank):
                x, alpha = _few(element, left, "lhs"), _few(element, right, "rhs")
                for constants in ((), (1,)) if np.broadcast_shapes(left, right) == left else ():
                    yield meant(op, {"T": element}, [x, alpha], _prelu, mode=mode, constants=frozenset(constants))


def _prelu(x: Array, alpha: Array) -> list[Array]:
    return [np.where(x >= 0, x, x * alpha).astype(x.dtype)]


@probe("SELECT_V2")
def select_v2(op: str) -> Iterator[Case]:
    """All three broadcast."""
    for element in ALL:
        for rank in RANKS:
            for mode, left, right in pairs(rank):
                for shapes in ((left, right, right), (right, left, left), (left, left, right), (left, right, left)):
                    yield _selected(op, element, mode, shapes)


@probe("SELECT")
def select(op: str) -> Iterator[Case]:
    """No broadcasting but of a condition that is a scalar or has one entry a row."""
    for element in ALL:
        for rank in RANKS:
            yield _selected(op, element, "equal", (sizes(rank),) * 3)


def _selected(op: str, element: str, mode: str, shapes: tuple[Shape, ...]) -> Case:
    condition, x, y = numbers("bool", shapes[0]), *(numbers(element, s, seed=str(i)) for i, s in enumerate(shapes[1:]))
    return Case(op, {"C": "bool", "T": element}, [condition, x, y], [np.where(condition, x, y)], mode=mode)


@probe("ADD_N")
def add_n(op: str) -> Iterator[Case]:
    """Two to four operands of one shape."""
    for element in NUMBERS:
        for rank in RANKS:
            for count in (2, 3, 4):
                xs = [_few(element, sizes(rank), str(i)) for i in range(count)]
                yield Case(op, {"T": element}, xs, [sum(xs[1:], xs[0]).astype(xs[0].dtype)])
