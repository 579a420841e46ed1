"""Comparisons, also with infinity and NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from onnxtfl.build.operands import align_by_axis, formula
from onnxtfl.build.rows import row
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.quantization import limits
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.types import DType
from onnxtfl.kernels.comparisons import in_units_of_1_256
from onnxtfl.rewriting.registry import decompose, lift_tfl, upgrade
from onnxtfl.rewriting.stored_integers import integers_of

_COMPARISONS = (
    ("EQ", "Equal", (7, 11, 13, 19), "EQUAL"),
    ("GT", "Greater", (7, 9, 13), "GREATER"),
    ("LT", "Less", (7, 9, 13), "LESS"),
    ("GE", "GreaterOrEqual", (12, 16), "GREATER_EQUAL"),
    ("LE", "LessOrEqual", (12, 16), "LESS_EQUAL"),
)
for _direction, _onnx, _since, _tfl in _COMPARISONS:
    row(ops.Compare, onnx=_onnx, since=_since, fixed={"comparison_direction": _direction})
for _old in ("Equal", "Greater", "Less"):
    upgrade(_old, since=(1,))(align_by_axis)


# --- TFLite's comparisons of quantized tensors ------------------------------------------------------------------------

_DIRECTIONS = {tfl: direction for direction, _, _, tfl in _COMPARISONS} | {"NOT_EQUAL": "NE"}
_FINE = 1.001 / 256
"""From this scale on, different stored integers also differ in units of 1/256."""


def _is_exact(node: Node) -> bool:
    """Whether the kernel distinguishes all values: it rounds to 1/256, except for the order of int16."""
    lhs, rhs = (quantization_of(node.operand(i)) for i in (0, 1))
    if lhs is None and rhs is None:
        return True
    orders = lhs is not None and lhs.storage == "int16" and node.attr("comparison_direction") not in ("EQ", "NE")
    return lhs == rhs and lhs is not None and (orders or lhs.scales[0] >= _FINE)


for _tfl, _direction in _DIRECTIONS.items():
    fixed = {"comparison_direction": _direction}
    row(ops.Compare, tfl=_tfl, fixed=fixed, when=_is_exact, lifts=False)


@lift_tfl(*_DIRECTIONS)
def _compare(b: Builder, node: Node) -> Value:
    """int8, uint8 and (in)equality of int16 are compared in units of 1/256; the order of int16 as stored.

    Source: LiteRT kernels/comparisons.cc, kernels/internal/reference/comparisons.h (ComparisonWithScaling).
    """
    direction = _DIRECTIONS[node.op.name_in_file]
    operands = [node.operand(i) for i in (0, 1)]
    types = [_stored_type(v) for v in operands]
    orders = types[0] is DType.INT16 and direction not in ("EQ", "NE")
    if types[0] not in (DType.INT8, DType.UINT8, DType.INT16) or types[0] is not types[1]:
        return b(ops.Compare, *operands, comparison_direction=direction)
    found = [quantization_of(v) for v in operands]
    if orders or (direction == "EQ" and types[0] is DType.INT16 and found[0] is None):
        operands = operands if found[0] == found[1] else [integers_of(b, v) for v in operands]
        return b(ops.Compare, *operands, comparison_direction=direction)
    tables = [in_units_of_1_256(v) for v in operands]
    if found[0] != found[1] or not (np.diff(tables[0]) > 0).all():
        operands = [_looked_up(b, v, table) for v, table in zip(operands, tables, strict=True)]
    return b(ops.Compare, *operands, comparison_direction=direction)


def _stored_type(value: Value) -> DType:
    quantization = quantization_of(value)
    return value.dtype if quantization is None else quantization.dtype


def _looked_up(b: Builder, value: Value, table: Array) -> Value:
    """Look up the stored integers of `value` in a table for all integers in ascending order."""
    low, _ = limits(_stored_type(value))
    index = Term(b, integers_of(b, value)).to(DType.INT32) - int(low)
    return b(ops.Gather, constant(table), index.value, axis=0)


@formula(ops.Compare, "onnx")
def _not_equal(lhs: Term, rhs: Term, *, comparison_direction: str) -> Term | None:
    return lhs.equals(rhs).apply(ops.Not) if comparison_direction == "NE" else None


# --- StableHLO -------------------------------------------------------------------------------------------------------


@lift_tfl("STABLEHLO_COMPARE")
def _stablehlo_compare(b: Builder, node: Node) -> Value:
    """Compare numbers or bools; floats also in their total order, complex numbers for equality."""
    lhs, rhs = Term(b, node.operand(0)), Term(b, node.operand(1))
    direction = str(node.attr("comparison_direction", "EQ")).rpartition("_")[2]
    total = str(node.attr("compare_type", "")).endswith("FLOAT_TOTAL_ORDER")
    if lhs.dtype.is_complex:
        return _compare_complex(lhs, rhs, direction).value
    if lhs.dtype is DType.BOOL and direction not in ("EQ", "NE"):
        lhs, rhs = lhs.to(DType.UINT8), rhs.to(DType.UINT8)
    if not (total and lhs.dtype.is_float):
        return lhs.compared(direction, rhs).value
    if is_canonical(lhs.value) and is_canonical(rhs.value):
        return _compare_canonical(lhs, rhs, direction).value
    return total_order(lhs).compared(direction, total_order(rhs)).value


def _compare_complex(lhs: Term, rhs: Term, direction: str) -> Term:
    if direction not in ("EQ", "NE"):
        raise ValueError(f"complex numbers have no order for {direction}")
    real, imaginary = (lhs.apply(part).compared(direction, rhs.apply(part)) for part in (ops.Real, ops.Imag))
    return real & imaginary if direction == "EQ" else real | imaginary


_INTEGERS = {16: DType.INT16, 32: DType.INT32, 64: DType.INT64}


def total_order(x: Term) -> Term:
    """Integers in the order -NaN < -inf < ... < -0 < 0 < ... < inf < NaN of floats: bits, reversed for a set sign."""
    bits = x.bits(_INTEGERS[x.dtype.bits])
    return (bits < 0).choose(((1 << x.dtype.bits - 1) - 1) - bits, bits)


def is_canonical(value: Value) -> bool:
    """Whether all zeros of `value` are positive and all NaN equal and positive, as in the comparators of JAX's sort.

    ::

        Select(x != x, NaN, Select(x == 0, 0, x))
    """
    outer = value.producer
    if outer is None or outer.op is not ops.Select or not _is_positive(outer.operand(1), np.isnan):
        return False
    inner = outer.operand(2).producer
    if inner is None or inner.op is not ops.Select or not _is_positive(inner.operand(1), lambda x: x == 0):
        return False
    x = inner.operand(2)
    compared = (_comparison(outer.operand(0), "NE"), _comparison(inner.operand(0), "EQ"))
    zero = (
        compared[1] is not None and compared[1][0] is x and _is_positive(compared[1][1], lambda v: v == 0, sign=False)
    )
    return compared[0] == (x, x) and zero


def _comparison(value: Value, direction: str) -> tuple[Value, Value] | None:
    """The operands of the Compare in this `direction` that computes `value`."""
    node = value.producer
    found = node is not None and node.op is ops.Compare and node.attr("comparison_direction") == direction
    return (node.operand(0), node.operand(1)) if found and node is not None else None


def _is_positive(value: Value, holds: Callable[[Array], Any], sign: bool = True) -> bool:
    """Whether a constant satisfies `holds`, without a sign bit (`sign`)."""
    known = value.numpy() if value.data is not None else None
    return known is not None and bool(np.all(holds(known))) and not (sign and bool(np.any(np.signbit(known))))


def _compare_canonical(lhs: Term, rhs: Term, direction: str) -> Term:
    """Compare with NaN as the largest value, equal to itself; zeros have no sign."""
    if direction in ("GT", "LE"):
        swapped = _compare_canonical(rhs, lhs, "LT")
        return swapped if direction == "GT" else swapped.apply(ops.Not)
    nan = lhs.is_nan(), rhs.is_nan()
    if direction in ("EQ", "NE"):
        equal = lhs.equals(rhs) | (nan[0] & nan[1])
        return equal if direction == "EQ" else equal.apply(ops.Not)
    less = (lhs < rhs) | (nan[1] & nan[0].apply(ops.Not))
    return less if direction == "LT" else less.apply(ops.Not)


row(ops.IsNaN, onnx="IsNaN", since=(9, 13, 20))
row(ops.IsInf, onnx="IsInf", since=(10, 20), attributes="detect_positive detect_negative")
_SWAPPED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}


def _is_from_the_left(node: Node) -> bool:
    return node.operand(0).is_constant and not node.operand(1).is_constant


@decompose(ops.Compare, "gpu", order="operands", when=_is_from_the_left)
def _constant_on_the_right(b: Builder, node: Node) -> Value:
    """Compare the other way round: the accelerator reads integer constants on the right only."""
    direction = _SWAPPED[str(node.attr("comparison_direction"))]
    return b(ops.Compare, node.operand(1), node.operand(0), comparison_direction=direction)


formula(ops.IsNaN, "tfl")(lambda x: x.differs(x))
formula(ops.IsNaN, "gpu")(lambda x: (x <= math.inf).apply(ops.Not))  # it does not compare a value with itself


@formula(ops.IsInf, "tfl")
def _is_inf(x: Term, *, detect_positive: bool, detect_negative: bool) -> Term:
    if detect_positive:
        return (x.abs() if detect_negative else x).equals(math.inf)
    return x.equals(-math.inf) if detect_negative else x < -math.inf
