"""If and While."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tools.probe.case import ALL, Array, Case, draw, int32, sizes
from tools.probe.registry import probe

from onnxtfl.ir.graph import Graph, Node, constant
from onnxtfl.ir.op import foreign_op
from onnxtfl.ir.types import TensorType, dtype_of

RANKS = (1, 0, 2, 3, 4, 5, 6, 7, 8)


@probe("IF")
def if_op(op: str) -> Iterator[Case]:
    """Both branches reshape their operand to its own shape."""
    for element in ALL:
        for condition in (False, True):
            for rank in RANKS:
                x = draw(element, sizes(rank))
                operands = [np.asarray(condition), x]
                options = {"then_subgraph_index": _reshaping(x), "else_subgraph_index": _reshaping(x)}
                yield Case(op, {"C": "bool", "T": element}, operands, [x], options)


@probe("WHILE")
def while_op(op: str) -> Iterator[Case]:
    """Count to five, with another loop-carried value."""
    for element in ALL:
        for rank in RANKS:
            x = draw(element, sizes(rank))
            options = {"cond_subgraph_index": _below(x), "body_subgraph_index": _counting(x)}
            yield Case(op, {"T": element}, [x, int32(0)], [x, int32(5)], options)


def _type(x: Array) -> TensorType:
    return TensorType(dtype_of(x.dtype), x.shape)


def _reshaping(x: Array) -> Graph:
    graph = Graph("branch")
    value = graph.add_input(_type(x), "x")
    node = graph.insert(Node(foreign_op("tfl", "RESHAPE"), [value], {"new_shape": x.shape}))
    graph.outputs = [node.add_result(value.type, "y")]
    return graph


def _below(x: Array) -> Graph:
    graph = Graph("below")
    graph.add_input(_type(x), "x")
    count = graph.add_input(_type(int32(0)), "count")
    five = constant(int32(5))
    node = graph.insert(Node(foreign_op("tfl", "LESS"), [count, five], {}))
    graph.outputs = [node.add_result(_type(np.asarray(True)), "go_on")]
    return graph


def _counting(x: Array) -> Graph:
    graph = Graph("counting")
    value = graph.add_input(_type(x), "x")
    count = graph.add_input(_type(int32(0)), "count")
    node = graph.insert(Node(foreign_op("tfl", "ADD"), [count, constant(int32(1))], {}))
    graph.outputs = [value, node.add_result(count.type, "next")]
    return graph
