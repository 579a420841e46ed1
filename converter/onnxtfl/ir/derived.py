"""Ops that are defined by core ops: types and values are those of the expansion, built in a separate graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.interpret import run
from onnxtfl.ir.op import Op
from onnxtfl.ir.types import Type, dtype_of


class Derived(Op, register=False):
    """An op that is defined by `expand`. Its types are those of the expansion, quantized ones too, unless it declares
    the `shape` of its results.
    """

    expands = True

    @classmethod
    def expand(cls, b: Builder, node: Node) -> list[Value]:
        """The results of `node`, made with core ops."""
        raise NotImplementedError

    @staticmethod
    def shape(*operands: Any, **attributes: Any) -> Any:
        raise NotImplementedError

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        if cls.shape is not Derived.shape:
            return super().infer(node)
        graph = Graph()
        stand_ins = [None if v is None else _stand_in(graph, v) for v in node.operands]
        results = cls.expand(Builder(graph), Node(node.op, stand_ins, node.attributes))
        return [r.type for r in results if r.type is not None]

    @classmethod
    def compute(cls, *operands: Array | None, **attributes: Any) -> Array | tuple[Array, ...]:
        graph = Graph()
        given = [None if x is None else constant(x, dtype_of(x.dtype)) for x in operands]
        graph.outputs = cls.expand(Builder(graph), Node(cls, given, attributes))
        results = run(graph, [])
        return results[0] if len(results) == 1 else tuple(results)


def _stand_in(graph: Graph, value: Value) -> Value:
    if value.data is not None:
        return constant(value.data, type_=value.type)
    copy = graph.add_input(value.type)
    copy.known = value.known
    return copy
