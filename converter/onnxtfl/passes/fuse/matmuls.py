"""What stands around a matmul with a constant matrix goes into it.

::

    Add(DotGeneral(x, w), c)         ->  DotGeneralBias(x, w, c)
    Mul(DotGeneral(x, w), c)         ->  DotGeneral(x, w*c)
    DotGeneral(Reshape(x), w)        ->  DotGeneral(x, w) over several axes, so that x may lie in any order
"""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import (
    along_axis,
    made_by,
    single_use,
    with_constant,
)
from onnxtfl.rewriting.patterns import Patterns

MATMULS = Patterns()


@MATMULS.on(ops.Mul, ops.Div)
def factors_into_dot(b: Builder, node: Node) -> Value | None:
    """A factor for each column goes into the constant matrix, and into the bias."""
    found = with_constant(node)
    dot = made_by(found[0], ops.DotGeneral, ops.DotGeneralBias) if found is not None else None
    if found is None or dot is None:
        return None
    matrix, bias = dot.operand(1), dot.optional(2)
    free = [a for a in range(matrix.rank) if a not in dot.attr("rhs_contracting_dimensions")]
    plain = not dot.attr("rhs_batching_dimensions") and not dot.attr("output_permutation") and len(free) == 1
    divide = node.op is ops.Div
    if matrix.data is None or not plain or not single_use(dot.result, b.graph) or (divide and found[2] == 0):
        return None
    if not dot.result.dtype.is_float or (bias is not None and not bias.is_constant):
        return None
    vector = along_axis(found[1], dot.result.rank, dot.result.rank - 1, matrix.data.shape[free[0]])
    if vector is None or node.result.shape != dot.result.shape or (divide and not vector.all()):
        return None
    factors = (1 / vector if divide else vector).astype(vector.dtype)
    rest = [] if bias is None else [(bias.numpy() * factors).astype(vector.dtype)]
    return b(dot.op, dot.operand(0), constant(matrix.data.scale(factors, free[0])), *rest, **dot.attributes)


@MATMULS.on(ops.Add)
def bias_into_dot(b: Builder, node: Node) -> Value | None:
    """A vector along the last axis is the bias of a matmul with a constant matrix, or adds to the one it has."""
    for place in (0, 1):
        dot, other = made_by(node.operand(place), ops.DotGeneral, ops.DotGeneralBias), node.operand(1 - place)
        if dot is None or not _takes_bias(b, dot) or other.dtype is not dot.result.dtype:
            continue
        size, before = dot.result.shape[-1], dot.optional(2)
        vector = along_axis(other, dot.result.rank, dot.result.rank - 1, size) if isinstance(size, int) else None
        if vector is None or (before is not None and not before.is_constant):
            continue
        total = np.ascontiguousarray(vector if before is None else vector + before.numpy())
        return b(ops.DotGeneralBias, dot.operand(0), dot.operand(1), total, **dot.attributes)
    return None


def _takes_bias(b: Builder, dot: Node) -> bool:
    """Whether `dot` is a float matmul with one column of a constant matrix for each index of its last axis."""
    if not single_use(dot.result, b.graph) or not dot.operand(1).is_constant or not dot.result.dtype.is_float:
        return False
    if dot.attr("rhs_batching_dimensions") or dot.attr("output_permutation"):
        return False
    return dot.operand(1).rank - len(dot.attr("rhs_contracting_dimensions")) == 1


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
