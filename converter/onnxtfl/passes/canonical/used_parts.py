"""Removes unused results of a Split: they are not copied, and a quantizer, which calibrates no values for these, does
not leave the op in float.

::

    %a, %b, %c = Split(%x)     ->     %b = Slice(%x)     (%a and %c are unused)
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import known_sizes
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.shapes import normalize_axis


def slice_used_parts(graph: Graph) -> bool:
    """Replace each Split of known sizes with unused parts by Slices; return whether there was one."""
    outputs, changed = graph.output_set(), False
    for node in list(graph.nodes):
        if node.op is ops.Split and not all(r.uses or r in outputs for r in node.results):
            changed |= _sliced(graph, node, [r for r in node.results if r.uses or r in outputs])
    return changed


def _sliced(graph: Graph, node: Node, used: list[Value]) -> bool:
    x = node.operand(0)
    sizes = known_sizes(x.shape)
    if len(sizes) != x.rank or not used or not all(r.is_static for r in node.results):
        return False
    b, axis, begin = Builder(graph, node, maker="used parts"), normalize_axis(node.attr("axis"), x.rank), 0
    for result in node.results:
        end = begin + result.size(axis)
        if result in used:
            starts, limits = [0] * x.rank, list(sizes)
            starts[axis], limits[axis] = begin, end
            graph.substitute(result, b(ops.Slice, x, starts, limits, [1] * x.rank))
        begin = end
    graph.remove(node)
    return True
