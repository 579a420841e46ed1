"""Order along an axis: STABLEHLO_SORT, BUCKETIZE."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnxtfl.mappings.tensor.comparators import sorted_order

from onnxtfl.build.stablehlo import body_as_it_is
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import unsqueezed
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_tfl, regions_of


@lift_tfl("BUCKETIZE")
def _bucketize(b: Builder, node: Node) -> Value:
    """Return the number of boundaries <= x; all for NaN.

    Source: LiteRT kernels/bucketize.cc (std::upper_bound).
    """
    x, boundaries = Term(b, node.operand(0)), np.asarray(node.attr("boundaries") or (), np.float32)
    real = x if x.dtype.is_float else x.to(DType.FLOAT32)
    below = Term(b, unsqueezed(b, real.value, [x.rank])) < Term(b, constant(boundaries, real.dtype))
    return (below.to(DType.INT32) * -1 + 1).reduce("sum", [x.rank], keepdims=False).value


# --- StableHLO -------------------------------------------------------------------------------------------------------


regions_of("tfl.STABLEHLO_SORT")(body_as_it_is)


@lift_tfl("STABLEHLO_SORT")
def _stablehlo_sort(b: Builder, node: Node) -> Sequence[Value]:
    """Sort all operands along `dimension` in the order of a comparator; always stable."""
    values = [node.operand(i) for i in range(len(node.operands))]
    shape = values[0].shape
    axis = normalize_axis(int(node.attr("dimension", -1)), len(shape)) if shape else 0
    if not shape or 0 in shape or shape[axis] == 1:
        return values
    order = sorted_order(b, values, node.attr("comparator_subgraph_index"), axis)
    return [b(ops.GatherElements, v, order, axis=axis) for v in values]
