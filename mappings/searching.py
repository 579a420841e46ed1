"""TFLite's BUCKETIZE: between which of some boundaries each number lies."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.types import DType
from onnxtfl.rules import lift_tfl, unsqueezed


@lift_tfl("BUCKETIZE")
def _bucketize(b: Builder, node: Node) -> Value:
    """How many boundaries are not above the number. Source: LiteRT kernels/bucketize.cc (std::upper_bound)."""
    x, boundaries = node.operand(0), np.asarray(node.attr("boundaries") or (), np.float32)
    wide = x if x.dtype.is_float else b(ops.Convert, x, dtype=DType.FLOAT32)
    reached = b(
        ops.Compare,
        unsqueezed(b, wide, [x.rank]),
        boundaries.astype(wide.dtype.numpy),
        comparison_direction="GE",
    )
    counted = b(ops.Convert, reached, dtype=DType.INT32)
    return b(ops.Reduce, counted, [x.rank], kind="sum", keepdims=False)
