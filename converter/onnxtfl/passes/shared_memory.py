"""What runtimes compute in place, kept from tensors that are still read; tfl to tfl.

::

    %t = tfl.ADD(%a, %k)                       %t = tfl.ADD(%a, %k)
    %r = tfl.RESHAPE(%t)                       %r = tfl.RESHAPE(%t)
    %d = tfl.DIV(%one, %r)             ->      %c = tfl.SLICE(%r)  of everything
    %s = tfl.SIN(%t)                           %d = tfl.DIV(%one, %c)
                                               %s = tfl.SIN(%t)

LiteRT lets the result of some ops lie where an operand lies. It asks how often that operand, and the tensor whose
memory it is, are read, but not who else lies there: above %t lies in %a, which is read once, and so does %r; DIV then
writes over %t before SIN reads it. The builtin kernels of LiteRT and of tflite-runtime 2.14 get wrong numbers so.
Source: tflite/arena_planner.cc (IdentifyInPlaceTensors), inplace_operator in the registrations of the kernels.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import product
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.types import TensorType
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.rewriting.lower import lower
from onnxtfl.targets.table import OpEntry, entry, op_names
from onnxtfl.targets.tflite import TfliteTarget

_SCALAR = 4
"""Bytes up to which the runtime does not share memory."""
_ALL = np.iinfo(np.int32).max
"""The limit of a slice that goes to the end of its axis."""


def keep_memory_apart(graph: Graph, target: TfliteTarget) -> None:
    """Copy what an op would write over although it is read later."""
    if _Planner(graph).run():
        legalize(graph, target, late=True)
        lower(graph, target)


class _Planner:
    """Follows the runtime's planner: `home` is the tensor whose memory a value lies in, `lodgers` the reverse."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.place = {node: i for i, node in enumerate(graph.nodes)}
        self.inputs = {*graph.inputs, *(s.input for s in graph.states)}
        self.outputs = graph.output_set()
        self.home: dict[Value, Value] = {}
        self.lodgers: dict[Value, list[Value]] = {}
        self.copies: list[Value] = []

    def run(self) -> bool:
        """Insert neutral slices where something has to be copied; returns whether there are any."""
        for node in self.place:
            name = node.op.name.partition(".")[2]
            if name in op_names() and node.results:
                self._node(node, entry(name))
        return bool(self.copies)

    def _node(self, node: Node, known: OpEntry) -> None:
        if known.same_memory and self._free(node.operands[0], node.results[0]):
            self._lodge(node.results[0], node.operand(0))
        for i in known.in_place:
            operand = node.optional(i)
            if operand is not None and self._written(operand, node.results[0]):
                self._write(node, i, operand)
                return

    def _write(self, node: Node, index: int, operand: Value) -> None:
        """`node` writes its result where its operand lies."""
        home = self.home.get(operand, operand)
        if self._reads(home) > 1:
            return
        beside = [v for v in (home, *self.lodgers.get(home, ())) if v is not operand]
        if any(self._read_behind(v, node) for v in beside):
            node.set_operand(index, self._copied(operand, node))
        else:
            self._lodge(node.results[0], operand)

    def _lodge(self, result: Value, operand: Value) -> None:
        home = self.home.get(operand, operand)
        self.home[result] = home
        self.lodgers.setdefault(home, []).append(result)

    def _free(self, operand: Value | None, result: Value) -> bool:
        """Whether the memory of `operand` may be lent to `result` at all."""
        return (
            operand is not None
            and not operand.is_constant
            and operand not in self.inputs
            and result not in self.outputs
        )

    def _written(self, operand: Value, result: Value) -> bool:
        return self._free(operand, result) and self._reads(operand) == 1 and _same_bytes(operand, result)

    def _reads(self, value: Value) -> int:
        return len(value.uses) + (value in self.outputs)

    def _read_behind(self, value: Value, node: Node) -> bool:
        return any(self.place.get(user, -1) > self.place[node] for user, _ in value.uses)

    def _copied(self, value: Value, node: Node) -> Value:
        """`value` in memory of its own: all of it, sliced."""
        rank = value.rank
        copy = Builder(self.graph, node, maker="memory")(ops.Slice, value, [0] * rank, [_ALL] * rank, [1] * rank)
        copy.type = value.type
        self.copies.append(copy)
        return copy


def _same_bytes(operand: Value, result: Value) -> bool:
    """Whether both take the same number of bytes, or may; the runtime shares nothing else, and no single numbers."""
    sizes = list(_bytes(operand, result))
    return len(sizes) < 2 or (sizes[0] == sizes[1] and sizes[0] > _SCALAR)


def _bytes(*values: Value) -> Iterator[int]:
    for value in values:
        if isinstance(value.type, TensorType) and value.type.is_static:
            yield int(product(value.shape)) * value.type.storage.bits // 8  # type: ignore[arg-type]
