"""Rewrites the graph as the program chose."""

from __future__ import annotations

from typing import Literal

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import Permutation, Relabeled, inverse
from onnxtfl.ir.reshape import has_constant_target, reshape, transposed_constant
from onnxtfl.passes.layout.labels import Configuration, Takes, find_labels, identity, transposition
from onnxtfl.passes.layout.program import Choice, choose, is_unit_move, transpose_cost

IoLayout = Literal["source", "channels-last"]


def assign_layouts(graph: Graph, takes: Takes, *, channels_last: bool, io_layout: IoLayout = "source") -> None:
    """Lay out every value so that the fewest bytes are transposed.

    `takes(node)` tells whether the target takes a node as it would be; `channels_last` what its kernels want. With
    `io_layout` "channels-last" inputs and outputs of rank over 2 may move too; a region keeps its boundary.
    """
    moved = io_layout == "channels-last"
    inputs = {v for v in graph.inputs if moved and len(identity(v)) > 2}
    outputs = {v for v in graph.outputs if moved and len(identity(v)) > 2}
    found = find_labels(graph, channels_last, takes, inputs | outputs)
    if found.configurations:
        _Rewriter(graph, choose(graph, found, inputs, outputs)).run()


class _Rewriter:
    """Changes each node in place, its results too: a deep network has no room for a second graph beside the first.

    `memory[value]`: the ways in which a value lies by now, by label; a value that is not in it lies as it did.
    """

    def __init__(self, graph: Graph, choice: Choice) -> None:
        self.graph, self.choice = graph, choice
        self.memory: dict[Value, dict[Permutation, Value]] = {}

    def run(self) -> None:
        for value in self.graph.inputs:
            self._lies(value, self.choice.inputs.get(value, identity(value)))
        aliases = [node for node in self.graph.nodes if self._node(node)]
        self.graph.outputs = [self._read(v, self.choice.outputs.get(v, identity(v)), None) for v in self.graph.outputs]
        for state in self.graph.states:
            state.output = self._read(state.output, identity(state.output), None)
        seen = self.graph.output_set()
        for node in reversed(aliases):
            if not node.result.uses and node.result not in seen:
                self.graph.remove(node)

    def _node(self, node: Node) -> bool:
        """Rewrite `node`; whether it was a transpose that nobody needs any more."""
        configuration = self.choice.nodes.get(node)
        if configuration is None or configuration.change is None:
            for i, value in enumerate(node.operands):
                if value is not None and value in self.memory:
                    node.set_operand(i, self._read(value, identity(value), node))
        elif node.op is ops.Transpose:
            self._alias(node, configuration)
            return True
        else:
            self._relabel(node, configuration, configuration.change)
        return False

    def _alias(self, node: Node, configuration: Configuration) -> None:
        """A transpose gives the memory of its operand another name."""
        read, given = configuration.operands[0], configuration.results[0]
        assert read is not None and given is not None
        source = self._read(node.operand(0), read, node)
        source.add_origins(origin.permuted(given) for origin in node.result.origins)
        self.memory[node.result] = {given: source}

    def _relabel(self, node: Node, configuration: Configuration, change: Relabeled) -> None:
        for i, (value, label) in enumerate(zip(node.operands, configuration.operands, strict=True)):
            if value is not None and label is not None:
                node.set_operand(i, self._read(value, label, node))
        self._permute_vectors(node, change)
        node.attributes.update(change.attributes)
        node.add_history(made_by="layout")
        for value, label in zip(node.results, configuration.results, strict=True):
            if label is not None:
                self._lies(value, label)

    def _permute_vectors(self, node: Node, change: Relabeled) -> None:
        """Operands with an entry for each axis, or with numbers of axes."""
        builder = Builder(self.graph, node)
        for i, permutation in change.vectors.items():
            vector = node.optional(i)
            if vector is not None:
                node.set_operand(i, builder(ops.Gather, vector, list(permutation), axis=0))
        for i, permutation in change.axes.items():
            numbers = node.optional(i)
            if numbers is not None:
                node.set_operand(i, builder(ops.Gather, list(inverse(permutation)), numbers, axis=0))

    def _lies(self, value: Value, label: Permutation) -> None:
        """From here on `value` is what lies under `label`."""
        self.memory[value] = {label: value}
        if label == identity(value):
            return
        value.type = value.tensor_type.permuted(label)
        value.origins = tuple(origin.permuted(label) for origin in value.origins)
        value.known = None

    def _read(self, value: Value, label: Permutation, before: Node | None) -> Value:
        """`value` under `label`: as it lies, or transposed once from where that is cheapest."""
        if value.data is not None:
            return value if label == identity(value) else transposed_constant(value, label)
        places = self.memory.get(value) or {identity(value): value}
        if label not in places:
            have = min(places, key=lambda k: transpose_cost(places[k].tensor_type, transposition(k, label)))
            places[label] = laid = self._lay(places[have], transposition(have, label))
            own = next((k for k, v in places.items() if v is value), identity(value))
            laid.add_origins(origin.permuted(transposition(own, label)) for origin in value.origins)
            self.memory[value] = places
        return places[label]

    def _lay(self, source: Value, permutation: Permutation) -> Value:
        """Right behind the source's producer, so that every reader can take it."""
        before = source.producer.next if source.producer is not None else self.graph.first
        builder = Builder(self.graph, before, cause=source.producer or before, maker="layout")
        sizes = [source.shape[p] for p in permutation]
        if is_unit_move(source.shape, permutation) and has_constant_target(sizes):
            return reshape(builder, source, sizes)
        return builder(ops.Transpose, source, permutation=permutation)
