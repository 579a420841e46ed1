"""Declarations of an op: operands with element types, effects, and the form for permuted operands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from onnxtfl.ir.types import DType

FLOATS = frozenset({DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64})
INTEGERS = frozenset(d for d in DType if d.is_integer)
NUMERIC = FLOATS | INTEGERS
BOOLS = frozenset({DType.BOOL})
INDICES = frozenset({DType.INT32, DType.INT64})
ANY = frozenset(DType)

Permutation = tuple[int, ...]
Attributes = Mapping[str, Any]


class Effect(Enum):
    """The side effect of an op; only pure ops may be removed, merged or folded."""

    PURE = "pure"
    RANDOM = "random"
    READS = "reads"
    WRITES = "writes"


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand or result: its name, its allowed element types, and whether it is optional or variadic.

    `like`: the operand (of a result: or the attribute) with the same element type; `becomes`: those that differ.
    A result of several element types is like the first operand; variadic results are each like their own operand.
    """

    name: str
    dtypes: frozenset[DType] = ANY
    optional: bool = False
    variadic: bool = False
    like: str = ""
    becomes: Mapping[DType, DType] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Permuted:
    """An op on operands with another axis order.

    `operands[i]` and `results[i]`: the axis order of that value (None: unchanged). `attributes`: those that change.
    `vectors[i]`: operand i is a vector with one entry per axis (pads, sizes, starts); its entries are permuted by this.
    `axes[i]`: operand i contains axes, which are renumbered for this axis order.
    """

    operands: tuple[Permutation | None, ...]
    results: tuple[Permutation | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    vectors: Mapping[int, Permutation] = field(default_factory=dict)
    axes: Mapping[int, Permutation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SharedAxes:
    """The trait of ops whose results have the axes of operands: permuting these permutes those.

    `operands`: how many leading operands (None: all) have the axes of the results; those of one element may have fewer.
    `attributes`: the names of those that are axes. `vectors` and `axes`: the indices of operands that have an entry
    for each axis, and of those that are axes, known before run time.
    """

    operands: int | None = 1
    attributes: tuple[str, ...] = ()
    vectors: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = _Required()
