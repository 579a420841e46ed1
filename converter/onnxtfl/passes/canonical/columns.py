"""Columns of a matrix of few columns, such as the coordinates of boxes or of a sampling grid, for the CPU's kernels.

::

    %a = Slice(%x: [n, 4]) column 0            %t = Transpose(%x): [4, n]
    %b = Slice(%x: [n, 4]) column 1     ->     %a = Reshape(Slice(%t) row 0) [n, 1]
                                               %b = Reshape(Slice(%t) row 1) [n, 1]

Kernels copy a column element by element: 4 columns of 8400 rows take 95 us, transposed first 9 us.
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.quantized import may_match
from onnxtfl.ir.reshape import reshape, transposed
from onnxtfl.ir.shapes import normalize_axis, static_ints
from onnxtfl.ir.types import DType
from onnxtfl.targets import Target

MOST_AXES = 4


def transpose_columns(graph: Graph, target: Target) -> None:
    """Read the columns of a transposed matrix where that is faster in kernels of `target`."""
    for x in {node.operand(0): None for node in graph.nodes if _columns(node)}:
        readers = [node for node in x.users() if node.operand(0) is x and _columns(node)]
        if x.rank <= MOST_AXES and sum(len(_columns(node)) for node in readers) > 1:
            _transpose(graph, x, readers, target)


def _columns(node: Node) -> list[int]:
    """The columns that the results of `node` are, along the last axis of its operand; [] if they are none."""
    if node.op not in (ops.Slice, ops.Split) or not may_match(node, False) or not node.operand(0).tensor_type.rank:
        return []
    x, last = node.operand(0), node.operand(0).rank - 1
    shape = (*x.shape[:-1], 1)
    are_columns = x.is_static and all(r.tensor_type.shape == shape for r in node.results)
    if not are_columns or x.shape == shape or x.dtype not in (DType.FLOAT32, DType.INT32):
        return []
    if node.op is ops.Split:
        return list(range(len(node.results))) if normalize_axis(node.attr("axis"), x.rank) == last else []
    starts, steps = static_ints(node.operand(1)), static_ints(node.operand(3))
    return [] if starts is None or steps is None or set(steps) != {1} else [starts[-1] % x.size(last)]


def _transpose(graph: Graph, x: Value, readers: list[Node], target: Target) -> None:
    first = next(node for node in graph.nodes if node in readers)
    b, rank = Builder(graph, first, maker="columns"), x.rank
    rows = transposed(b, x, (rank - 1, *range(rank - 1)))
    made = dict[Node, list[Value]]()
    for node in readers:
        parts = []
        for column, result in zip(_columns(node), node.results, strict=True):
            limits = [column + 1, *rows.shape[1:]]
            row = b(ops.Slice, rows, [column, *[0] * (rank - 1)], limits, [1] * rank)
            parts.append(reshape(b, row, result.shape))
        made[node] = parts
    if not target.gains("columns", readers, b.created):
        b.undo()
        return
    for node, parts in made.items():
        graph.replace(node, parts)
