"""Concatenations between reshapes have at most the four axes that GPUs take, where unit axes can be left out.

::

    %a = Reshape(%x) [1, 8, 1, 9, 3]                      %a = Reshape(%x) [8, 1, 9, 3]
    %b = Reshape(%z) [1, 8, 1, 9, 3]                      %b = Reshape(%z) [8, 1, 9, 3]
    %y = Reshape(Concatenate(%a, %b)) [1, 16, 9, 3]  ->   %y = Reshape(Concatenate(%a, %b)) [1, 16, 9, 3]

An axis along which tensors of one element each are joined is left out likewise: they are joined along the next one.
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.matching import made_by, single_use
from onnxtfl.ir.reshape import reshape

MOST_AXES = 4


def leave_out_unit_axes(graph: Graph) -> None:
    """Join tensors of four axes where a reshape before and one after the concatenation inserts and removes others."""
    for node in list(graph.nodes):
        if node.op is ops.Concatenate and (left_out := _left_out(graph, node)):
            user = node.result.users()[0]
            graph.replace(user, [_joined(graph, node, user, left_out)])


def _left_out(graph: Graph, node: Node) -> set[int]:
    """The unit axes to leave out; empty where there are too few, or no reshapes."""
    values = [v for v in (*node.operands, node.result) if v is not None]
    rank, is_static = values[-1].tensor_type.rank or 0, all(v.is_static for v in values)
    if rank <= MOST_AXES or not is_static or not single_use(node.result, graph):
        return set()
    if node.result.users()[0].op is not ops.Reshape or any(made_by(v, ops.Reshape) is None for v in values[:-1]):
        return set()
    axis = node.attr("axis") % rank
    has_next = axis + 1 < rank and all(v.shape[axis] == 1 for v in values[:-1])
    units = [*([axis] if has_next else []), *(i for i in range(rank) if i != axis and node.result.shape[i] == 1)]
    return set(units[: rank - MOST_AXES]) if len(units) >= rank - MOST_AXES else set()


def _joined(graph: Graph, node: Node, user: Node, left_out: set[int]) -> Value:
    b, parts = Builder(graph, node, cause=node, maker="few axes"), list[Value]()
    for value in node.operands:
        made = made_by(value, ops.Reshape)
        assert value is not None and made is not None
        parts.append(reshape(b, made.operand(0), [n for i, n in enumerate(value.shape) if i not in left_out]))
    axis = node.attr("axis") % node.result.rank
    joined = b(ops.Concatenate, *parts, axis=axis - sum(i < axis for i in left_out))
    return reshape(Builder(graph, user, cause=node, maker="few axes"), joined, user.result.shape)
