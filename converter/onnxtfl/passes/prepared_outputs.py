"""Copies of outputs of branches that kernels compute before the first run; tfl to tfl.

::

    then_branch:  %p = tfl.RESHAPE(%constant) -> (%p)     ->     %p = tfl.RESHAPE(%constant) %q = tfl.SLICE(%p) -> (%q)

Some kernels of LiteRT compute a result that depends on constants only while they are prepared, and own its memory. IF
lets the outputs of its branches write to the memory of its own results, so that the second run frees memory that the
branch does not own, and crashes (measured on LiteRT 2.3, builtin kernels).
Source: SetTensorToPersistentRo in reshape.cc, shape.cc, ...; Eval_static in if.cc.
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.reshape import reshape
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.rewriting.lower import lower
from onnxtfl.targets.tflite import TfliteTarget

_ALL = np.iinfo(np.int32).max
"""The limit of a slice that goes to the end of its axis."""


def copy_prepared(region: Graph, target: TfliteTarget) -> None:
    """Copy each output of `region` that may be computed before it runs."""
    builder, known = Builder(region, maker="memory"), dict[Value, bool]()
    for i, value in enumerate(region.outputs):
        if value.producer is not None and _is_prepared(value, known):
            builder.cause = value.producer
            region.outputs[i] = _copied(builder, value)
    if builder.created:
        legalize(region, target, late=True)
        lower(region, target)


def _is_prepared(value: Value, known: dict[Value, bool]) -> bool:
    """Whether `value` depends on constants and shapes only."""
    if value.is_constant:
        return True
    node = value.producer
    if node is None or node.regions:
        return False
    if value not in known:
        is_shape = node.lowered_from is ops.Shape
        known[value] = is_shape or all(v is None or _is_prepared(v, known) for v in node.operands)
    return known[value]


def _copied(b: Builder, value: Value) -> Value:
    """A slice of the whole tensor, which has memory of its own.

    Vectors of integers get a second axis: their slices are STRIDED_SLICE, which is computed before the run too.
    """
    value.known = None  # known elements would make the copy a constant
    added = [1] * (2 - value.rank if value.dtype.is_integer else 1 - value.rank)
    rows = reshape(b, value, [*added, *value.shape]) if added else value
    rank = rows.rank
    copy = b(ops.Slice, rows, [0] * rank, [_ALL] * rank, [1] * rank)
    copy.type = rows.type
    result = reshape(b, copy, value.shape) if added else copy
    result.type, result.origins = value.type, value.origins
    return result
