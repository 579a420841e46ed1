"""The rows of a table that a decoder reads at its last positions."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.data import Array
from onnxtfl.ir.dependencies import needed_nodes
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.interpret import evaluate_node


def last_row(graph: Graph, indices: Value, positions: Value, last: Array, rows: int) -> int:
    """The largest row in `indices`, which depend on `positions` only, where these are `last`.

    Indices that wrap around at the end of the table of `rows` rows, as negative ones do, are taken as they are.
    """
    values = {positions: last}
    needed = needed_nodes([indices], set(graph.nodes))
    for node in graph.nodes:
        if node not in needed:
            continue
        read = [None if v is None else v.stored() if v.is_constant else values[v] for v in node.operands]
        wraps = node.op is ops.FloorMod and read[1] is not None and (read[1] == rows).all()
        first = read[0]
        if wraps and first is not None:
            values[node.result] = first
        else:
            values |= zip(node.results, evaluate_node(node, read), strict=True)
    return int(np.max(values[indices], initial=0))
