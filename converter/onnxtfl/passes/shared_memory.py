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

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import product
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.types import TensorType
from onnxtfl.targets.table import OpEntry, entry, op_names
from onnxtfl.targets.tflite import TfliteTarget

_SCALAR = 4
"""Bytes up to which the runtime does not share memory."""


def keep_memory_apart(graph: Graph, target: TfliteTarget) -> None:
    """Copy what an op would write over although it is read later."""
    _Planner(graph, target).run()
    for node in graph.nodes:
        for inner in node.subgraphs():
            keep_memory_apart(inner, target)


class _Planner:
    """Follows the runtime's planner: `home` is the tensor whose memory a value lies in, `lodgers` the reverse."""

    def __init__(self, graph: Graph, target: TfliteTarget) -> None:
        self.graph, self.target = graph, target
        self.place = {node: i for i, node in enumerate(graph.nodes)}
        self.inputs = {*graph.inputs, *(s.input for s in graph.states)}
        self.outputs = graph.output_set()
        self.home: dict[Value, Value] = {}
        self.lodgers: dict[Value, list[Value]] = {}

    def run(self) -> None:
        for node in list(self.place):
            name = node.op.name.partition(".")[2]
            if name in op_names() and node.results:
                self._node(node, entry(name))

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
        """`value` in memory of its own."""
        builder = Builder(self.graph, node)
        copy = self._sliced(builder, value)
        if copy is not None:
            return copy
        sizes = [d if isinstance(d, int) else -1 for d in value.shape]
        if sizes.count(-1) > 1:
            raise UnsupportedError("is overwritten while it is read", node=value.name, type_=value.type)
        copy = self._sliced(builder, self._reshaped(builder, value, [-1], (product(value.shape),)))
        assert copy is not None
        return self._reshaped(builder, copy, sizes, value.shape)

    def _sliced(self, builder: Builder, value: Value) -> Value | None:
        rank = value.rank
        operands = [value, constant(np.zeros(rank, np.int32)), constant(np.full(rank, -1, np.int32))]
        result = Value(value.type)
        if self.target.refusal("SLICE", operands, [result], {}) is not None:
            return None
        version = self.target.op_version("SLICE", operands, [result], {})
        (copy,) = builder.foreign("tfl", "SLICE", operands, [value.type], version)
        return copy

    def _reshaped(self, builder: Builder, value: Value, sizes: list[int], shape: tuple[object, ...]) -> Value:
        operands = [value, constant(np.asarray(sizes, np.int32))]
        type_ = value.tensor_type.with_shape(shape)  # type: ignore[arg-type]
        (result,) = builder.foreign("tfl", "RESHAPE", operands, [type_], new_shape=tuple(sizes))
        return result


def _same_bytes(operand: Value, result: Value) -> bool:
    """Whether both take the same number of bytes, or may; the runtime shares nothing else, and no single numbers."""
    sizes = list(_bytes(operand, result))
    return len(sizes) < 2 or (sizes[0] == sizes[1] and sizes[0] > _SCALAR)


def _bytes(*values: Value) -> Iterator[int]:
    for value in values:
        if isinstance(value.type, TensorType) and value.type.is_static:
            yield int(product(value.shape)) * value.type.storage.bits // 8  # type: ignore[arg-type]
