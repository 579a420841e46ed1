"""Evaluation that simulates a driver computing in float16, and the values that exceed its range.

Each float value is rounded to float16 after the op that computes it, also inside ops that are defined by other ops
(normalizations, activations); constants are rounded before they are read. Values that depend on constants only are
computed in the types of the model, since converters and drivers fold them, and rounded afterwards. Quantized values
are computed as real values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from onnxtfl.errors import OnnxtflError
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dtypes import Array, dtype_of
from onnxtfl.ir.formula import Derived
from onnxtfl.ir.graph import Graph, Node, Value, attributes_of, constant
from onnxtfl.ir.half import LARGEST, Excess, Simulation, as_float16, simulation_scope
from onnxtfl.ir.interpret import computes_on_reals, evaluate_node, made_elements, values_of
from onnxtfl.ir.numeric import widened
from onnxtfl.ir.parts import Stored, evaluate_in_parts
from onnxtfl.ir.quantization import dequantize, quantize
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.types import TensorType

Names = Mapping[str, tuple[str, str]]
"""The tensor and the op of each node of the source, by its name in `Node.sources`."""


class Float16Evaluation(Simulation):
    """A simulation of a lifted graph. `largest`: the largest finite absolute value of each tensor, by tensor and op."""

    def __init__(self, names: Names, sums: bool) -> None:
        super().__init__(sums)
        self.largest: dict[tuple[str, str], float] = {}
        self._names, self._sums = names, dict[tuple[str, str], float]()
        self._infinite: set[tuple[str, str]] = set()
        self._known: set[Value] = set()

    @property
    def beyond(self) -> list[Excess]:
        """The values that leave the range of float16, in the order of evaluation."""
        found = []
        for (tensor, op), largest in self.largest.items():
            key = tensor, op
            if largest > LARGEST:
                found.append(Excess(tensor, op, largest))
            elif key in self._sums:
                found.append(Excess(tensor, op, self._sums[key], in_sum=True))
            elif key in self._infinite:
                found.append(Excess(tensor, op, np.inf))
        return found

    def evaluate(self, node: Node, operands: Sequence[Array | None]) -> list[Array]:
        """The results, rounded unless they depend on constants only."""
        if self._is_known(node):
            self._known.update(node.results)
            with simulation_scope(None):
                return evaluate_node(node, operands)
        real = computes_on_reals(node)
        given = [_real(v, x) if real else x for v, x in zip(node.operands, operands, strict=True)]
        if issubclass(node.op, Derived) and not node.regions:
            results = self._composed(node.op, node, given)
        else:
            results = self._rounded(node, self._computed(node, given))
        if not real:
            return results
        grids = map(quantization_of, node.results)
        return [x if grid is None else quantize(x, grid) for x, grid in zip(results, grids, strict=True)]

    def _is_known(self, node: Node) -> bool:
        read = node.present_operands
        return all(map(self._is_constant, read)) and node.is_pure

    def _is_constant(self, value: Value | None) -> bool:
        return value is not None and (value.is_constant or value in self._known)

    def _computed(self, node: Node, operands: Sequence[Array | None]) -> list[Array]:
        """The results before they are rounded."""
        given = [self._stored(node, i, x) for i, x in enumerate(operands)]
        found = [None if x is None else Stored(x) for x in given]
        self.largest_sum = 0.0
        results = evaluate_in_parts(
            node.op, attributes_of(node), node.op.padded(found), [None] * len(node.results), made_elements(node)
        )
        if self.largest_sum:
            key = self._key(node, 0)
            self._sums[key] = max(self._sums.get(key, 0.0), self.largest_sum)
            self.largest_sum = 0.0
        if not node.regions and not all(map(_is_finite, results)) and all(map(_is_finite, given)):
            self._infinite |= {self._key(node, i) for i, x in enumerate(results) if not _is_finite(x)}
        return results

    def _stored(self, node: Node, index: int, array: Array | None) -> Array | None:
        """An operand; constants are rounded here, unless they are parameters of kernels."""
        value, declared = node.operands[index], node.op.operands
        if array is None or value is None or not self._is_constant(value):
            return array
        if declared and declared[min(index, len(declared) - 1)].parameter:
            return array
        if array.dtype.kind == "f":
            self._observe((value.name or self._key(node, 0)[0], ""), array)
        return as_float16(array)

    def _composed(self, op: type[Derived], node: Node, operands: Sequence[Array | None]) -> list[Array]:
        """The results of an op that is defined by other ops, each of which rounds its own."""
        graph, inputs = Graph(), dict[Value, Array]()
        given = [self._stand_in(graph, inputs, node, v, x) for v, x in zip(node.operands, operands, strict=True)]
        copy = Node(node.op, given, node.attributes)
        try:
            with simulation_scope(None):
                graph.outputs = op.expansion(Builder(graph, cause=node), copy)
        except OnnxtflError:  # an operand has to be known
            return self._rounded(node, self._computed(node, operands))
        results = values_of(graph, inputs, graph.outputs)
        for one in (copy, *graph.walk()):
            self._known.difference_update(one.results)
            one.detach()
        return [_as(x, v) for x, v in zip(results, node.results, strict=True)]

    def _stand_in(
        self, graph: Graph, inputs: dict[Value, Array], node: Node, value: Value | None, array: Array | None
    ) -> Value | None:
        """Return an operand for the definition of an op: an input for a computed float, else a constant."""
        if array is None:
            return None
        wide = widened(array) if node.op.widens else array
        if array.dtype.kind in "iubO" or self._is_constant(value):
            made = constant(wide, dtype_of(wide.dtype))
            made.name = None if value is None else value.name
            return made
        made = graph.add_input(TensorType(dtype_of(wide.dtype), wide.shape))
        inputs[made] = wide
        return made

    def _rounded(self, node: Node, results: Iterable[Array]) -> list[Array]:
        """The results as they are stored."""
        found = []
        for i, array in enumerate(results):
            if node.op.moves is None:
                self._observe(self._key(node, i), array)
                found.append(as_float16(array))
            else:
                found.append(array)
        return found

    def _observe(self, key: tuple[str, str], array: Array) -> None:
        if array.dtype.kind == "f" and array.size:
            largest = float(max(array.max(), -array.min()))
            if not np.isfinite(largest):
                largest = float(np.max(np.abs(array), initial=0, where=np.isfinite(array)))
            self.largest[key] = max(self.largest.get(key, 0.0), largest)

    def _key(self, node: Node, index: int) -> tuple[str, str]:
        """The tensor and the op of the source for a result."""
        known = [self._names[name] for name in node.sources if name in self._names]
        tensor, op = known[0] if known else (node.sources[0] if node.sources else "", node.op.name)
        return (node.results[index].name if index < len(node.results) else None) or tensor, op


def _real(value: Value | None, array: Array | None) -> Array | None:
    grid = quantization_of(value)
    return array if array is None or value is None or grid is None else dequantize(array, grid, value.dtype)


def _as(array: Array, value: Value) -> Array:
    """Return `array` in the float type of `value`; other arrays are unchanged."""
    if not isinstance(value.type, TensorType) or not value.dtype.is_float or array.dtype.kind != "f":
        return array
    return array.astype(value.dtype.numpy, copy=False)


def _is_finite(array: Array | None) -> bool:
    return array is None or array.dtype.kind != "f" or bool(np.isfinite(array).all())
