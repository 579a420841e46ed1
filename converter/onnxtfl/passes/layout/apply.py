"""Rewrites the graph as the program chose."""

from __future__ import annotations

from typing import Literal

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.op import Permutation, inverse
from onnxtfl.ir.types import TensorType
from onnxtfl.passes.layout.labels import Configuration, Takes, find_labels, identity, transposition
from onnxtfl.passes.layout.program import Choice, choose, is_unit_move, transpose_cost

IoLayout = Literal["source", "channels-last"]


def assign_layouts(graph: Graph, takes: Takes, *, channels_last: bool, io_layout: IoLayout = "source") -> None:
    """Lay out every value so that the fewest bytes are transposed.

    `takes(node)` tells whether the target takes a node as it would be; `channels_last` what its kernels want. With
    `io_layout` "channels-last" inputs and outputs of rank over 2 may move too. Subgraphs keep their boundaries.
    """
    moved = io_layout == "channels-last"
    inputs = {v for v in graph.inputs if moved and len(identity(v)) > 2}
    outputs = {v for v in graph.outputs if moved and len(identity(v)) > 2}
    found = find_labels(graph, channels_last, takes, inputs | outputs)
    if found.configurations:
        _Rewriter(graph, choose(graph, found, inputs, outputs)).run()
    for node in graph.nodes:
        for inner in node.subgraphs():
            assign_layouts(inner, takes, channels_last=channels_last)


class _Rewriter:
    def __init__(self, graph: Graph, choice: Choice) -> None:
        self.graph, self.choice = graph, choice
        self.memory: dict[Value, dict[Permutation, Value]] = {}

    def run(self) -> None:
        for i, value in enumerate(list(self.graph.inputs)):
            self._input(i, value)
        old = list(self.graph.nodes)
        for node in old:
            self._node(node)
        self.graph.outputs = [self._read(v, self.choice.outputs.get(v, identity(v)), None) for v in self.graph.outputs]
        for state in self.graph.states:
            state.output = self._read(state.output, identity(state.output), None)
        for node in reversed(old):
            if node in self.choice.nodes and not any(r.uses for r in node.results) and node.graph is self.graph:
                self._remove_if_replaced(node)

    def _input(self, index: int, value: Value) -> None:
        label = self.choice.inputs.get(value, identity(value))
        if label == identity(value):
            return
        physical = Value(_permuted(value, label), value.name)
        physical.origin = value.origin.permuted(label) if value.origin else None
        self.graph.inputs[index] = physical
        self.memory[value] = {label: physical}

    def _node(self, node: Node) -> None:
        configuration = self.choice.nodes.get(node)
        if configuration is None or configuration.change is None:
            for i, value in enumerate(node.operands):
                if value is not None and value in self.memory:
                    node.set_operand(i, self._read(value, identity(value), node))
        elif node.op is ops.Transpose:
            self._alias(node, configuration)
        else:
            self._relabel(node, configuration)

    def _alias(self, node: Node, configuration: Configuration) -> None:
        """A transpose gives the memory of its operand another name."""
        read, given = configuration.operands[0], configuration.results[0]
        assert read is not None and given is not None
        self.memory[node.result] = {given: self._read(node.operand(0), read, node)}

    def _relabel(self, node: Node, configuration: Configuration) -> None:
        builder = Builder(self.graph, node)
        operands = [
            v if v is None or label is None else self._read(v, label, node)
            for v, label in zip(node.operands, configuration.operands, strict=True)
        ]
        change = configuration.change
        if change is not None:
            for i, permutation in change.vectors.items():
                vector = operands[i] if i < len(operands) else None
                if vector is not None:
                    operands[i] = builder(ops.Gather, vector, list(permutation), axis=0)
            for i, permutation in change.axes.items():
                numbers = operands[i] if i < len(operands) else None
                if numbers is not None:
                    operands[i] = builder(ops.Gather, list(inverse(permutation)), numbers, axis=0)
        results = builder.many(node.op, *operands, **{**node.attributes, **(change.attributes if change else {})})
        for new, old, label in zip(results, node.results, configuration.results, strict=True):
            self._give(new, old, label)
        if results[0].producer is not None:
            results[0].producer.name = node.name

    def _give(self, new: Value, old: Value, label: Permutation | None) -> None:
        new.name = old.name
        label = label if label is not None else identity(old)
        new.origin = old.origin.permuted(label) if old.origin and label != identity(old) else old.origin
        if isinstance(new.type, TensorType) and isinstance(old.type, TensorType) and old.type.shape is not None:
            new.type = new.type.with_shape(tuple(old.type.shape[p] for p in label))
        self.memory[old] = {label: new}

    def _read(self, value: Value, label: Permutation, before: Node | None) -> Value:
        """`value` under `label`: as it lies, or transposed once from where that is cheapest."""
        if value.data is not None:
            return value if label == identity(value) else constant(value.data.transpose(label))
        places = self.memory.setdefault(value, {identity(value): value})
        if label not in places:
            have = min(places, key=lambda k: transpose_cost(value, k, label))
            places[label] = self._lay(value, places[have], have, label)
        return places[label]

    def _lay(self, value: Value, source: Value, have: Permutation, want: Permutation) -> Value:
        """Right behind the source's producer, so that every reader can take it."""
        before = source.producer.next if source.producer is not None else self.graph.first
        builder = Builder(self.graph, before)
        permutation = transposition(have, want)
        if is_unit_move(value.shape, permutation, have) and sum(not isinstance(d, int) for d in value.shape) <= 1:
            sizes = [value.shape[p] for p in want]
            laid = builder(ops.Reshape, source, [d if isinstance(d, int) else -1 for d in sizes])
            laid.type = laid.tensor_type.with_shape(tuple(sizes))
        else:
            laid = builder(ops.Transpose, source, permutation=permutation)
        laid.origin = value.origin.permuted(want) if value.origin else None
        return laid

    def _remove_if_replaced(self, node: Node) -> None:
        if all(r in self.memory and r not in self.graph.output_set() for r in node.results):
            self.graph.remove(node)


def _permuted(value: Value, label: Permutation) -> TensorType:
    return value.tensor_type.with_shape(tuple(value.shape[p] for p in label))
