"""Tables with constant contents: Lookup."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.dims import size_or
from onnxtfl.ir.formula import Derived
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import Operand
from onnxtfl.ir.ops.comparison import Compare
from onnxtfl.ir.ops.concatenation import Concatenate
from onnxtfl.ir.ops.gathering import Gather
from onnxtfl.ir.ops.reductions import Reduce
from onnxtfl.ir.ops.reshape import Unsqueeze
from onnxtfl.ir.ops.selection import Select
from onnxtfl.ir.shapes import check_agree
from onnxtfl.ir.types import DType

KEYS = frozenset({DType.INT32, DType.INT64, DType.FLOAT32, DType.FLOAT64, DType.STRING})


class Lookup(Derived):
    """`values[i]` for elements of `query` equal to `keys[i]` (the first of equal keys; NaN never), else `default`.

    keys [n], values [n, ...], default [...]: [*query, ...]. Source: TFLite HASHTABLE_FIND, ONNX LabelEncoder (added).
    """

    operands = (
        Operand("query", KEYS),
        Operand("keys", KEYS, like="query"),
        Operand("values"),
        Operand("default", like="values"),
    )
    results = (Operand("output", like="values"),)

    @staticmethod
    def shape(query: Value, keys: Value, values: Value, default: Value) -> Dims:
        if keys.rank != 1 or values.rank < 1 or default.rank != values.rank - 1:
            raise ValueError(
                f"keys of rank {keys.rank}, values of rank {values.rank}, a default of rank {default.rank}"
            )
        check_agree(keys.shape, values.shape[:1], "the number of keys and that of values")
        return (*query.shape, *values.shape[1:])

    @staticmethod
    def expand(b: Builder, query: Value, keys: Value, values: Value, default: Value) -> Value:
        rows = b(Concatenate, values, b(Unsqueeze, default, [0]), axis=0)
        count = size_or(keys.shape[0], 0)
        if not count:
            raise ValueError("a table of unknown size, or without contents")
        equal = b(Compare, b(Unsqueeze, query, [-1]), keys, comparison_direction="EQ")
        places = b(Select, equal, np.arange(count, dtype=np.int32), np.asarray(count, np.int32))
        return b(Gather, rows, b(Reduce, places, [-1], kind="min", keepdims=False), axis=0)
