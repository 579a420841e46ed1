"""Ops whose kernels fail without rows, on a number of rows that is known only at run time and may be 0::

    %y = Conv(%x: Nx8x8x3, %w)   ->   %z = Conv(Pad(%x) [(0, 1), (0, 0), ...]: (N + 1)x8x8x3, %w); %y = %z[:-1]

N may be the number of objects that were found, or of regions on one level of a pyramid: 0 is usual there.
"""

from __future__ import annotations

import numpy as np

from onnxtfl.errors import OnnxtflError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_nonnegative, is_static
from onnxtfl.ir.graph import Node, Value, attributes_of
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
    if is_nonnegative(shape[0] - 1) or is_of_inputs(shape[0]) or _has_another(value):
        return False
    return not any(_may_share_rows(node, place) for place, v in enumerate(others, 1) if v is not None)


def _may_share_rows(node: Node, place: int) -> bool:
    """Whether an axis of another operand may have to be of the size of the first axis: as that of the lengths of a
    ReverseSequence, which no symbol has to show.
    """
    shape = node.operand(place).tensor_type.shape
    if not is_static(shape):
        return True
    first = node.operand(0).tensor_type
    wider = Value(first.with_shape((1 + max(shape, default=0), *(first.shape or ())[1:])))
    try:
        node.op.result_types([wider, *node.operands[1:]], attributes_of(node))
    except (OnnxtflError, TypeError, ValueError):
        return True
    return False


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
