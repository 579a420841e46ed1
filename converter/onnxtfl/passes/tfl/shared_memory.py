"""Workaround for a runtime bug: copies for in-place ops that overwrite a tensor which is still read; tfl to tfl.

::

    %t = tfl.ADD(%a, %k)                       %t = tfl.ADD(%a, %k)
    %r = tfl.RESHAPE(%t)                       %r = tfl.RESHAPE(%t)
    %d = tfl.DIV(%one, %r)             ->      %c = tfl.SLICE(%r)  of everything
    %s = tfl.SIN(%t)                           %d = tfl.DIV(%one, %c)
                                               %s = tfl.SIN(%t)

LiteRT stores the result of some ops in the memory of an operand. It checks how often that operand, and the tensor that
owns the memory, are read, but not which other tensors share it: above, %t shares the memory of %a, which is read once,
and so does %r; DIV then overwrites %t before SIN reads it. The builtin kernels of LiteRT and of tflite-runtime 2.14
compute wrong values in this case.
Source: tflite/arena_planner.cc (IdentifyInPlaceTensors), inplace_operator in the registrations of the kernels.
"""

from __future__ import annotations

import math
from operator import itemgetter

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.types import TensorType
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.rewriting.lower import lower
from onnxtfl.targets.table import OpEntry, entry, op_names
from onnxtfl.targets.tflite import TfliteTarget

_SCALAR = 4
"""Tensors of up to this number of bytes never share memory."""
_ALL = np.iinfo(np.int32).max
"""A slice limit beyond every axis."""


def copy_overwritten(graph: Graph, target: TfliteTarget) -> None:
    """Copy each operand whose memory an op would overwrite before its last read."""
    if _Planner(graph).run():
        legalize(graph, target, late=True)
        lower(graph, target)


class _Planner:
    """Simulates the runtime's planner: `owner` is the tensor whose memory a value shares."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.place = {node: i for i, node in enumerate(graph.nodes)}
        self.inputs = {*graph.inputs, *(s.input for s in graph.states)}
        self.outputs = graph.output_set()
        self.owner: dict[Value, Value] = {}
        self.last_reads: dict[Value, list[tuple[int, Value]]] = {}
        self.copies: list[Value] = []

    def run(self) -> bool:
        """Insert slices as copies where needed; return whether there are any."""
        for node in self.place:
            name = node.op.name_in_file
            if name in op_names() and node.results:
                self._node(node, entry(name))
        return bool(self.copies)

    def _node(self, node: Node, known: OpEntry) -> None:
        if known.same_memory and self._may_share(node.operands[0], node.results[0]):
            self._share(node.results[0], node.operand(0))
        for i in known.in_place:
            operand = node.optional(i)
            if operand is not None and self._is_in_place(operand, node.results[0]):
                self._write(node, i, operand)
                return

    def _write(self, node: Node, index: int, operand: Value) -> None:
        """Account for `node` writing its result to the memory of its operand."""
        owner = self.owner.get(operand, operand)
        if self._reads(owner) > 1:
            return
        others = [place for place, v in self._last_reads(owner) if v is not operand]
        if any(place > self.place[node] for place in others):
            node.set_operand(index, self._copied(operand, node))
        else:
            self._share(node.results[0], operand)

    def _share(self, result: Value, operand: Value) -> None:
        owner = self.owner.get(operand, operand)
        self.owner[result] = owner
        last = [*self._last_reads(owner), (self._last_read(result), result)]
        self.last_reads[owner] = sorted(last, key=itemgetter(0))[-2:]

    def _last_reads(self, owner: Value) -> list[tuple[int, Value]]:
        """Return the two values in the memory of `owner` that are read last, and the positions of the last readers."""
        return self.last_reads.get(owner) or [(self._last_read(owner), owner)]

    def _last_read(self, value: Value) -> int:
        return max((self.place.get(user, -1) for user, _ in value.uses), default=-1)

    def _may_share(self, operand: Value | None, result: Value) -> bool:
        """Whether `result` may share the memory of `operand`."""
        return (
            operand is not None
            and not operand.is_constant
            and operand not in self.inputs
            and result not in self.outputs
        )

    def _is_in_place(self, operand: Value, result: Value) -> bool:
        return self._may_share(operand, result) and self._reads(operand) == 1 and _same_bytes(operand, result)

    def _reads(self, value: Value) -> int:
        return len(value.uses) + (value in self.outputs)

    def _copied(self, value: Value, node: Node) -> Value:
        """Copy `value` to its own memory by a slice of the whole tensor."""
        rank = value.rank
        copy = Builder(self.graph, node, maker="memory")(ops.Slice, value, [0] * rank, [_ALL] * rank, [1] * rank)
        copy.type = value.type
        self.copies.append(copy)
        return copy


def _same_bytes(operand: Value, result: Value) -> bool:
    """Whether both may have the same number of bytes, more than a scalar: only then memory is shared."""
    known = [v for v in (operand, result) if isinstance(v.type, TensorType) and v.type.is_static]
    sizes = [math.prod(v.shape) * v.tensor_type.storage.bits // 8 for v in known]
    return len(sizes) < 2 or (sizes[0] == sizes[1] and sizes[0] > _SCALAR)
