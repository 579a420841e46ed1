"""Ops whose kernels fail without rows, on a number of rows that is known only at run time and may be 0::

    %y = Conv(%x: Nx8x8x3, %w)   ->   %z = Conv(Pad(%x) [(0, 1), (0, 0), ...]: (N + 1)x8x8x3, %w); %y = %z[:-1]

N may be the number of objects that were found, or of regions on one level of a pyramid: 0 is usual there.
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_nonnegative, is_static, symbols
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import made_by
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.shown_sizes import is_of_inputs
from onnxtfl.ir.types import TensorType

_LAST = (1 << 31) - 1
"""A limit after the last element of any axis."""


def may_lack_rows(node: Node) -> bool:
    """Whether the first axis of the first operand and of the result is of a size computed at run time, maybe 0, that no
    other operand has: each of its elements is computed by itself.
    """
    value, *others = node.operands
    if value is None or len(node.results) != 1 or not all(isinstance(v.type, TensorType) for v in (value, node.result)):
        return False
    shape, result = value.tensor_type.shape, node.result.tensor_type.shape
    if not shape or not result or shape[0] != result[0] or is_static(shape[:1]):
        return False
    found = set(symbols(shape[0]))
    is_alone = not any(found & set(symbols(d)) for v in others if v is not None for d in v.tensor_type.shape or ())
    return is_alone and not is_nonnegative(shape[0] - 1) and not is_of_inputs(shape[0]) and not _has_another(value)


def _has_another(value: Value) -> bool:
    """Whether padding adds a row, which the expression of the number of rows need not tell: (n - 1) // 3 + 2."""
    padded = made_by(value, ops.Pad)
    rows = None if padded is None else static_ints(padded.operand(1))
    return rows is not None and min(rows[:2]) >= 0 < max(rows[:2])


def with_another_row(builder: Builder, node: Node) -> list[Value]:
    """The result of `node` on operands with one more row, without that row."""
    value, *others = node.operands
    assert value is not None
    padding = np.zeros((value.rank, 2), np.int64)
    padding[0, 1] = 1
    (result,) = builder.remade(node, builder(ops.Pad, value, padding), *others)
    starts, ends, steps = ([first, *[other] * (result.rank - 1)] for first, other in ((0, 0), (-1, _LAST), (1, 1)))
    return [builder(ops.Slice, result, starts, ends, steps)]
