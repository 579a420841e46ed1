"""Sizes that are those of an input are read from the input, so that they do not wait for the ops in between.

::

    %h = Dot(%x: [N, T, 64], %w)                    %s = Shape(%x) {axes = [0, 1]}
    %s = Shape(%h) {axes = [0, 1]}           ->     %h = Dot(%x, %w)

The sizes that tensors have in common are then one op, and a delegate has its ops in fewer groups: ops that read
inputs only run before it.
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.types import TensorType

Sizes = dict[Dim, tuple[Value, int]]
"""An input and the axis of it that has a dynamic size."""


def read_sizes_of_inputs(graph: Graph) -> None:
    """Replace each Shape of a computed tensor by that of an input from which it is computed, if one has all sizes."""
    known: dict[Value, Sizes] = {value: _own(value) for value in graph.inputs}
    for node in list(graph.nodes):
        found: Sizes = {}
        for value in node.operands:
            for size, place in known.get(value, {}).items() if value is not None else ():
                found.setdefault(size, place)
        known.update(dict.fromkeys(node.results, found))
        if node.op is ops.Shape and node.operand(0) not in graph.inputs:
            _replace(graph, node, found)


def _own(value: Value) -> Sizes:
    shape = value.type.shape if isinstance(value.type, TensorType) else None
    return {size: (value, axis) for axis, size in enumerate(shape or ()) if not isinstance(size, int)}


def _replace(graph: Graph, node: Node, known: Sizes) -> None:
    shape, axes = node.operand(0).tensor_type.shape, node.attr("axes")
    places = [known.get(size) for size in (shape or () if axes is None else [node.operand(0).shape[a] for a in axes])]
    read = [place for place in places if place is not None]
    sources, order = {place[0] for place in read}, tuple(place[1] for place in read)
    if len(read) == len(places) > 0 and len(sources) == 1 and len(set(order)) == len(order):
        b = Builder(graph, node, maker="sizes of inputs")
        graph.replace(node, [b(ops.Shape, sources.pop(), axes=order, dtype=node.attr("dtype"))])
