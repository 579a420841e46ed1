"""The op of a difference, in each model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnxtfl.checking.localize.culprit import culprit, same
from onnxtfl.checking.localize.engine import Engine, Layer
from onnxtfl.checking.localize.layers import FirstDifference, LayerError
from onnxtfl.errors import OnnxtflError
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.tracing.semantics import as_real, forms, neutral_values
from onnxtfl.tracing.trace import InnerModel


@dataclass(frozen=True)
class Part:
    """The nodes of a model that compute the tensor `number` from the values `fed`."""

    model: InnerModel
    number: int
    nodes: list[Node]
    fed: Mapping[int, Array]

    def differing(self, other: Part, engine: Engine, layer: Layer, read: Sequence[Array]) -> Node | None:
        """The node whose result is no value of `other`, which also reads the real values `read`.

        The last one where that cannot be said.
        """
        if len(self.nodes) < 2:
            return self.nodes[0] if self.nodes else self.model.values[self.number].producer
        try:
            return self._differing(other, engine, layer, read)
        except (OnnxtflError, ValueError, TypeError):
            return self.nodes[-1]

    def _differing(self, other: Part, engine: Engine, layer: Layer, read: Sequence[Array]) -> Node:
        arrays, last, grid = self.arrays(), self.nodes[-1], engine.grid(layer.match)
        if not arrays:
            return last
        others, final = neutral_values(other.model, other.number, other.fed, grid)
        own = arrays.get(self.number)
        if own is None or final is None or not same(as_real(own, grid), final, grid):
            return culprit(self.nodes, last, self.model, arrays, [*read, *others])
        run = {**other.fed, **other.arrays()}  # the kernels of the other runtime compute other values
        others = [form for i, array in run.items() for form in forms(array, quantization_of(other.model.values[i]))]
        return culprit(self.nodes, last, self.model, arrays, [*read, *others])

    def arrays(self) -> dict[int, Array]:
        """The results of the nodes, by number."""
        return self.model.isolated(self.fed, [self.model.number[r] for node in self.nodes for r in node.results])


def difference(engine: Engine, layer: Layer) -> FirstDifference:
    """The first difference, which is in `layer`: its node in each model, and the errors."""
    a, b = engine.a, engine.b
    matches = {other.match.b: other.match for other in engine.layers}
    read = [matches[i] for i in layer.read if i in matches]
    errors = {other.match.b: other.error for other in engine.layers}
    stops = {match.a for match in read}
    parts = [
        Part(a, layer.match.a, a.between(layer.match.a, stops)[0], a.fetch(stops - set(range(len(a.graph.inputs))))),
        Part(b, layer.match.b, layer.nodes, engine.expected(read)),
    ]
    values = [form for i, v in parts[1].fed.items() for form in forms(v, quantization_of(b.values[i]))]
    node_a = parts[0].differing(parts[1], engine, layer, values)
    node_b = parts[1].differing(parts[0], engine, layer, values)
    named = node_b if b.format == "onnx" else node_a
    return FirstDifference(
        _result(node_a, a.values[layer.match.a]),
        _result(node_b, b.values[layer.match.b]),
        display(named),
        op_name(node_b),
        layer.error if layer.own is None else layer.own,
        max((errors.get(i, 0.0) for i in layer.read), default=0.0),
        display(node_a),
        op_name(node_a),
        display(node_b),
        op_name(node_b),
        tuple(map(display, parts[0].nodes)),
    )


def layer_error(a: InnerModel, b: InnerModel, layer: Layer) -> LayerError:
    """The errors of a layer, with names."""
    node_a, node_b = a.values[layer.match.a].producer, b.values[layer.match.b].producer
    named = node_b if b.format == "onnx" else node_a
    names = a.values[layer.match.a].name or "", b.values[layer.match.b].name or ""
    return LayerError(*names, display(named), op_name(node_b), layer.error, layer.own)


def display(node: Node | None) -> str:
    """Return the name of a node, or of its first result; "" for an input of the model."""
    return "" if node is None else node.shown_name


def op_name(node: Node | None) -> str:
    """The name of a node's op."""
    return "" if node is None else node.op.name_in_file


def _result(node: Node | None, value: Value) -> str:
    """Return the name of `value`, or of the first result of another differing node."""
    results = [value] if node is None or value in node.results else node.results
    return next((r.name for r in results if r.name), "")
