"""Sparse tensors: DENSIFY, SPARSE_TO_DENSE."""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import dim_vector, reshape
from onnxtfl.rewriting.registry import lift_tfl


@lift_tfl("DENSIFY")
def _densify(b: Builder, node: Node) -> Value:
    """The importer has converted sparse constants to dense ones."""
    return node.operand(0)


@lift_tfl("SPARSE_TO_DENSE")
def _sparse_to_dense(b: Builder, node: Node) -> Value:
    """Write values (or one value) at rows of positions into a tensor of the default."""
    indices, shape, values, default = (node.operand(i) for i in range(4))
    blank = b(ops.BroadcastTo, reshape(b, default, ()), shape)
    if indices.rank == 0:
        indices = reshape(b, indices, (1, 1))
    elif indices.rank == 1:
        indices = reshape(b, indices, (indices.shape[0], 1))
    if values.rank == 0:
        values = b(ops.BroadcastTo, values, dim_vector(b, indices.shape[:1], indices))
    return b(ops.ScatterND, blank, indices, values, kind="none")
