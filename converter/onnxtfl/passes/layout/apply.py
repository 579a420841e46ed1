"""Rewrites the graph to the axis orders that the program chose."""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import Permutation, Permuted
from onnxtfl.ir.permutations import inverse, is_unit_move
from onnxtfl.ir.reshape import has_constant_target, reshape, transposed_constant
from onnxtfl.passes.layout.boundary_orders import IoLayouts, boundary_orders, is_moving
from onnxtfl.passes.layout.orders import Configuration, Order, find_orders, natural, transposition
from onnxtfl.passes.layout.program import Choice, choose
from onnxtfl.targets import Target


def assign_layouts(graph: Graph, target: Target, io_layout: IoLayouts = "source") -> None:
    """Assign axis orders to all values so that transposes and kernels of `target` together cost least.

    With an `io_layout` other than "source" inputs and outputs that have another one are permuted too; a region keeps
    its boundary.
    """
    boundary = boundary_orders(graph, target, io_layout) if is_moving(io_layout) else {}
    found = find_orders(graph, target, boundary)
    if found.configurations or boundary:
        _Rewriter(graph, target, choose(graph, found, target, boundary)).run()


class _Rewriter:
    """Changes nodes and results in place, which saves the memory of a second graph.

    `memory[value]`: the values that store `value`, by axis order; a value that is not in it is unchanged.
    """

    def __init__(self, graph: Graph, target: Target, choice: Choice) -> None:
        self.graph, self.target, self.choice = graph, target, choice
        self.memory: dict[Value, dict[Order, Value]] = {}

    def run(self) -> None:
        for value in self.graph.inputs:
            self._store(value, self.choice.inputs.get(value, natural(value)))
        aliases = [node for node in self.graph.nodes if self._node(node)]
        self.graph.outputs = [self._read(v, self.choice.outputs.get(v, natural(v))) for v in self.graph.outputs]
        for state in self.graph.states:
            state.output = self._read(state.output, natural(state.output))
        seen = self.graph.output_set()
        for node in reversed(aliases):
            if not node.result.uses and node.result not in seen:
                self.graph.remove(node)

    def _node(self, node: Node) -> bool:
        """Rewrite `node`; return whether it is a transpose that is no longer needed."""
        configuration = self.choice.nodes.get(node)
        if configuration is None or configuration.change is None:
            for i, value in enumerate(node.operands):
                if value is not None and value in self.memory:
                    node.set_operand(i, self._read(value, natural(value)))
        elif node.op is ops.Transpose:
            self._alias(node, configuration)
            return True
        else:
            self._permute(node, configuration, configuration.change)
        return False

    def _alias(self, node: Node, configuration: Configuration) -> None:
        """Replace the result of a transpose by the value that stores its operand."""
        read, written = configuration.operands[0], configuration.results[0]
        assert read is not None and written is not None
        source = self._read(node.operand(0), read)
        source.add_origins(origin.permuted(written) for origin in node.result.origins)
        self.memory[node.result] = {written: source}

    def _permute(self, node: Node, configuration: Configuration, change: Permuted) -> None:
        for i, (value, order) in enumerate(zip(node.operands, configuration.operands, strict=True)):
            if value is not None and order is not None:
                node.set_operand(i, self._read(value, order))
        if change.vectors or change.axes:
            self._permute_vectors(node, change)
        node.attributes.update(change.attributes)
        node.add_history(made_by="layout")
        for value, order in zip(node.results, configuration.results, strict=True):
            if order is not None:
                self._store(value, order)

    def _permute_vectors(self, node: Node, change: Permuted) -> None:
        """Permute the operands with an entry for each axis, and renumber those that list axes."""
        builder = Builder(self.graph, node)
        for i, permutation in change.vectors.items():
            vector = node.optional(i)
            if vector is not None:
                node.set_operand(i, builder(ops.Gather, vector, list(permutation), axis=0))
        for i, permutation in change.axes.items():
            numbers = node.optional(i)
            if numbers is not None:
                node.set_operand(i, builder(ops.Gather, list(inverse(permutation)), numbers, axis=0))

    def _store(self, value: Value, order: Order) -> None:
        """Store `value` in `order`."""
        self.memory[value] = {order: value}
        if order == natural(value):
            return
        value.type = value.tensor_type.permuted(order)
        value.origins = tuple(origin.permuted(order) for origin in value.origins)
        value.known = None

    def _read(self, value: Value, order: Permutation) -> Value:
        """Return `value` in `order`: as stored, or transposed once from the cheapest stored order."""
        if value.data is not None:
            return value if order == natural(value) else transposed_constant(value, order)
        held = self.memory.get(value) or {natural(value): value}
        if order not in held:
            have = min(held, key=lambda k: self.target.transpose_cost(held[k].tensor_type, transposition(k, order)))
            held[order] = made = self._transposed(held[have], transposition(have, order))
            own = next((k for k, v in held.items() if v is value), natural(value))
            made.add_origins(origin.permuted(transposition(own, order)) for origin in value.origins)
            self.memory[value] = held
        return held[order]

    def _transposed(self, source: Value, permutation: Permutation) -> Value:
        """Transpose `source` right after its producer, so that every reader can use the result."""
        before = source.producer.next if source.producer is not None else self.graph.first
        builder = Builder(self.graph, before, cause=source.producer or before, maker="layout")
        sizes = [source.shape[p] for p in permutation]
        if is_unit_move(source.shape, permutation) and has_constant_target(sizes):
            return reshape(builder, source, sizes)
        return builder(ops.Transpose, source, permutation=permutation)
