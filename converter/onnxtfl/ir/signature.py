"""What an op declares: operands with element types, effects, and how it changes when its operands are permuted."""

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
    """What running an op does besides giving results; only pure ops may be removed, merged or folded."""

    PURE = "pure"
    RANDOM = "random"
    READS = "reads"
    WRITES = "writes"


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand or result: its name, the element types it takes, and whether it may be absent or is many."""

    name: str
    dtypes: frozenset[DType] = ANY
    optional: bool = False
    variadic: bool = False


@dataclass(frozen=True, slots=True)
class Relabeled:
    """How an op reads when its operands lie in memory with permuted axes.

    `operands[i]` and `results[i]`: the permutation under which that value lies (None: as it is). `attributes`: those
    that change. `vectors[i]`: operand i is a vector with an entry an axis (pads, sizes, starts) and its entries are
    permuted so. `axes[i]`: operand i holds axis numbers, which become those of the same axes under this permutation.
    """

    operands: tuple[Permutation | None, ...]
    results: tuple[Permutation | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    vectors: Mapping[int, Permutation] = field(default_factory=dict)
    axes: Mapping[int, Permutation] = field(default_factory=dict)


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = _Required()
