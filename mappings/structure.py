"""Ops that compute nothing: Identity, and the copies that outputs need."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.graph import Node
from onnxtfl.rules import Form, lower_onnx, lower_tfl


@lower_tfl(ops.Copy)
def copy_tfl(node: Node) -> Form | None:
    """A reshape to the same shape."""
    shape = node.result.shape
    if sum(not isinstance(d, int) for d in shape) > 1:
        return None
    sizes = np.asarray([d if isinstance(d, int) else -1 for d in shape], np.int32)
    return Form("RESHAPE", (node.operand(0), sizes), {"new_shape": tuple(sizes.tolist())})


@lower_tfl(ops.Copy)
def copy_by_slice_tfl(node: Node) -> Form | None:
    """A slice of everything, where several sizes are known at run time only."""
    rank = node.result.rank
    return Form("SLICE", (node.operand(0), np.zeros(rank, np.int32), np.full(rank, -1, np.int32)))


@lower_onnx(ops.Copy)
def copy_onnx(node: Node, opset: int) -> Form:
    """An Identity."""
    return Form("Identity", (node.operand(0),))
