"""What stands around a matmul with a constant matrix goes into it.

::

    Add(DotGeneral(x, w), c)         ->  DotGeneralBias(x, w, c)
    DotGeneral(Reshape(x), w)        ->  DotGeneral(x, w) over several axes, so that x may lie in any order
"""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.passes.matching import (
    along_axis,
    made_by,
    only_for,
)
from onnxtfl.rewriting.patterns import Patterns

MATMULS = Patterns()


@MATMULS.on(ops.Add)
def bias_into_dot(b: Builder, node: Node) -> Value | None:
    """A vector along the last axis is the bias of a matmul with a constant matrix."""
    for place in (0, 1):
        dot, other = made_by(node.operand(place), ops.DotGeneral), node.operand(1 - place)
        if dot is None or not only_for(dot.result, b.graph) or not dot.operand(1).is_constant:
            continue
        if dot.attr("rhs_batching_dimensions") or dot.attr("output_permutation"):
            continue
        if dot.operand(1).rank - len(dot.attr("rhs_contracting_dimensions")) != 1 or not dot.result.dtype.is_float:
            continue
        size = dot.result.shape[-1]
        vector = along_axis(other, dot.result.rank, dot.result.rank - 1, size) if isinstance(size, int) else None
        if vector is not None and other.dtype is dot.result.dtype:
            return b(ops.DotGeneralBias, dot.operand(0), dot.operand(1), np.ascontiguousarray(vector), **dot.attributes)
    return None


@MATMULS.on(ops.DotGeneral, ops.DotGeneralBias)
def flatten_into_dot(b: Builder, node: Node) -> Value | None:
    """Contract the axes that a Reshape merged; the constant matrix gets as many."""
    flat, matrix = made_by(node.operand(0), ops.Reshape), node.operand(1)
    lhs_axes, rhs_axes = node.attr("lhs_contracting_dimensions"), node.attr("rhs_contracting_dimensions")
    if flat is None or matrix.data is None or node.attr("lhs_batching_dimensions") or len(rhs_axes) != 1:
        return None
    before, after = flat.operand(0).tensor_type.shape, flat.result.tensor_type.shape
    if before is None or after is None or len(after) != 2 or lhs_axes != (1,) or len(before) < 3:
        return None
    merged = [d for d in before[1:] if isinstance(d, int)]
    if before[0] != after[0] or len(merged) < len(before) - 1 or math.prod(merged) != after[1]:
        return None
    (axis,) = rhs_axes
    shape = matrix.data.shape
    weights = constant(matrix.data.reshape((*shape[:axis], *merged, *shape[axis + 1 :])))
    axes = {
        "lhs_contracting_dimensions": tuple(range(1, len(before))),
        "rhs_contracting_dimensions": tuple(range(axis, axis + len(merged))),
    }
    return b(node.op, flat.operand(0), weights, *node.operands[2:], **{**node.attributes, **axes})
