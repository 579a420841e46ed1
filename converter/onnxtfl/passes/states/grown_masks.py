"""Masks of new tokens that fit their scores only while the caches of a decoder are empty.

A mask [.., N, N] of N tokens is added to scores [.., N, P + N] after P others: for P > 0 the source runs with N = 1
only. If the mask has one element up to the diagonal and another after it, its meaning for P > 0 is that of a causal
mask::

    %m: [1, 1, N, P + N] = Add(%a: [1, 1, N, P + N], triangle [N, N])
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import infer
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Symbol, symbol
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.types import TensorType


def grown_masks(graph: Graph, filled: Symbol, new: int) -> dict[Value, tuple[Array, Array]]:
    """Replace masks of `new` tokens by values [.., new, filled + new], which have no producer yet.

    Returns the elements of each up to the diagonal and after it. The types of all results that depend on them are
    inferred again.
    """
    found: dict[Value, tuple[Array, Array]] = {}
    changed: set[Value] = set()
    for node in graph.nodes if new > 1 else ():
        for index, value in _triangles(node, filled, new):
            rows = value.numpy()
            grown = Value(value.tensor_type.with_shape((*value.shape[:-1], symbol(filled) + new)))
            found[grown] = rows[..., -1:, :1], rows[..., :1, -1:]
            node.set_operand(index, grown)
            changed.add(grown)
        if not changed.isdisjoint(node.present_operands):
            for result, type_ in zip(node.results, infer(node), strict=True):
                if isinstance(type_, TensorType) and type_ != result.type:
                    result.type = type_
                    changed.add(result)
    return found


def _triangles(node: Node, filled: Symbol, new: int) -> list[tuple[int, Value]]:
    """The operands of a sum that are masks of `new` tokens, where the others have a column for each place."""
    if node.op is not ops.Add:
        return []
    whole = symbol(filled) + new
    pairs = ((0, node.operand(0), node.operand(1)), (1, node.operand(1), node.operand(0)))
    return [(i, v) for i, v, other in pairs if _is_triangle(v, new) and other.rank and other.shape[-1] == whole]


def _is_triangle(value: Value, new: int) -> bool:
    if not value.is_constant or not value.dtype.is_float or value.rank < 2 or value.shape[-2:] != (new, new):
        return False
    rows = value.numpy()
    return np.array_equal(rows, np.where(np.tri(new, dtype=np.bool_), rows[..., -1:, :1], rows[..., :1, -1:]))
