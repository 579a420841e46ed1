"""What an op becomes when a target lacks it, as a pattern that finds the op again.

A template is made by the rules themselves: a graph of one node is legalized for the target, and what stands there
then is what files for that target hold. So no formula is written down twice, and a better one is recognised at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import symbol
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.interpret import evaluate_node
from onnxtfl.ir.matching import SMALL, same
from onnxtfl.ir.op import Op, attributes_of
from onnxtfl.ir.quantized import touches_quantized
from onnxtfl.ir.ranges import never_negative
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.passes.simplify import SIMPLIFY
from onnxtfl.rewriting.legalize import Target, legalize
from onnxtfl.rewriting.pass_manager import PassManager

COMMUTATIVE = frozenset({ops.Add, ops.Mul, ops.Max, ops.Min, ops.And, ops.Or, ops.Xor})
_SHAPE = (2, 3)
_EXACT = 1e-6


@dataclass(frozen=True)
class Template:
    """`op` with `attributes`, over `operands`, computes what stands at `root`, by `size` nodes.

    Those of the operands that are `sizes` are never negative.
    """

    op: type[Op]
    attributes: dict[str, Any]
    operands: tuple[Value, ...]
    root: Node
    size: int
    sizes: frozenset[Value] = frozenset()

    @classmethod
    def of(
        cls, op: type[Op], dtypes: Sequence[DType], target: Target, sizes: Sequence[int] = (), **attributes: Any
    ) -> Template | None:
        """What `target` takes for `op` over operands of `dtypes`, those at `sizes` never negative; None where it takes
        the op itself.
        """
        graph = Graph(op.name)
        operands = [graph.add_input(TensorType(dtype, _SHAPE)) for dtype in dtypes]
        for i in sizes:
            operands[i].known = _some_sizes(i)
        graph.outputs = [Builder(graph)(op, *operands, **attributes)]
        legalize(graph, target)
        PassManager([SIMPLIFY], given=frozenset({"neutral"})).run(graph)
        root = graph.outputs[0].producer
        if root is None or root.op is op:
            return None
        found = frozenset(operands[i] for i in sizes)
        return cls(op, attributes, tuple(operands), root, len(list(graph.nodes)), found)

    def match(self, node: Node) -> list[Value] | None:
        """The values that stand for the operands where `node` computes this; None where it does not."""
        found = _Match(self)
        if not found.node(self.root, node) or not found.settled():
            return None
        operands = [found.bound.get(v) for v in self.operands]
        return [v for v in operands if v is not None] if None not in operands else None


@dataclass
class _Match:
    """What the template's values stand for so far, and which of its nodes have to be found in constants."""

    template: Template
    bound: dict[Value, Value] = field(default_factory=dict)
    folded: list[tuple[Value, Value]] = field(default_factory=list)

    def value(self, wanted: Value, given: Value | None) -> bool:
        if given is None:
            return False
        if wanted in self.bound:
            return same(self.bound[wanted], given)
        if wanted.data is not None:
            return _same_number(wanted, given)
        if wanted.producer is None:
            return self._operand(wanted, given)
        if given.data is not None:
            self.folded.append((wanted, given))
            return True
        if given.producer is None or not self.node(wanted.producer, given.producer):
            return False
        self.bound[wanted] = given
        return True

    def _operand(self, wanted: Value, given: Value) -> bool:
        fits = given.dtype is wanted.dtype or (given.dtype.is_float and wanted.dtype.is_float)
        if fits and wanted in self.template.sizes:
            fits = never_negative(given)
        if fits:
            self.bound[wanted] = given
        return fits

    def node(self, wanted: Node, given: Node) -> bool:
        if wanted.op is not given.op or len(wanted.operands) != len(given.operands) or touches_quantized(given):
            return False
        if attributes_of(wanted) != attributes_of(given):
            return False
        orders = [given.operands, given.operands[::-1]] if _swaps(wanted) else [given.operands]
        before = dict(self.bound), list(self.folded)
        for operands in orders:
            if all(w is g is None or (w and self.value(w, g)) for w, g in zip(wanted.operands, operands, strict=True)):
                return True
            self.bound, self.folded = dict(before[0]), list(before[1])
        return False

    def settled(self) -> bool:
        """Whether the constants found are what the template computes from the constants bound."""
        for wanted, given in self.folded:
            numbers = self._computed(wanted)
            if numbers is None or given.data is None or given.data.size > SMALL:
                return False
            if not np.allclose(np.broadcast_to(given.numpy(), np.shape(numbers) or given.data.shape), numbers, _EXACT):
                return False
        return True

    def _computed(self, wanted: Value) -> Array | None:
        if wanted.data is not None:
            return wanted.numpy().reshape(-1)[0]  # type: ignore[no-any-return]
        if wanted in self.bound:
            return self.bound[wanted].numpy() if self.bound[wanted].data is not None else None
        if wanted.producer is None:
            return None
        operands = [None if v is None else self._computed(v) for v in wanted.producer.operands]
        if any(o is None and v is not None for o, v in zip(operands, wanted.producer.operands, strict=True)):
            return None
        return evaluate_node(wanted.producer, [None if o is None else np.asarray(o) for o in operands])[0]


def _some_sizes(operand: int) -> Array:
    """Numbers of which nothing is known but that they are sizes."""
    numbers = np.empty(_SHAPE, object)
    for i, place in enumerate(np.ndindex(*_SHAPE)):
        numbers[place] = symbol(f"template_{operand}_{i}")
    return numbers


def _swaps(node: Node) -> bool:
    if node.op is ops.Compare:
        return node.attr("comparison_direction") in ("EQ", "NE")
    return node.op in COMMUTATIVE


def _same_number(wanted: Value, given: Value) -> bool:
    """Whether `given` is a constant all of whose elements are the number that `wanted` is."""
    if given.data is None or wanted.data is None or not 0 < given.data.size <= SMALL:
        return False
    number = wanted.numpy().reshape(-1)[0]
    if wanted.dtype.is_float != given.dtype.is_float:
        return False
    numbers = given.numpy()
    return bool(np.all(numbers == number) or (wanted.dtype.is_float and np.allclose(numbers, number, _EXACT, 0)))
