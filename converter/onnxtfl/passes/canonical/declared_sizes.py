"""Sizes that only the declared types of outputs determine, for targets without dynamic sizes.

::

    (%x: [2, 3, 4], %shape: [2]) -> %y: [6, 4]            (%x: [2, 3, 4], %shape: [2]) -> %y: [6, 4]
    %y = Reshape(%x, %shape) : [u, v]              ->     %y = Reshape(%x, [6, 4])

Operands whose values the declared sizes imply become constants: other values contradict the declaration.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.dims import Common, Dim, Shape, Symbol
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.types import shape_of
from onnxtfl.passes.canonical.feature_sizes import solved, substitute_sizes
from onnxtfl.rewriting.lift import Expand, lift

_SHOWN = 3
"""The most outputs in a line of the report."""


def lift_with_declared_sizes(graph: Graph, expand: Expand) -> None:
    """Lift all nodes; replace sizes that are still unknown by those in the declared types of the outputs."""
    declared = [shape_of(value.type) for value in graph.outputs]
    lift(graph, expand)
    sizes: dict[Symbol | Common, Dim] = {}
    names = []
    for value, shape in zip(graph.outputs, declared, strict=True):
        found = _unknown(shape_of(value.type), shape)
        names += [value.name or "?"] if found.keys() - sizes.keys() else []
        sizes = {**found, **sizes}
    if not sizes:
        return
    substitute_sizes(graph, sizes)
    for node in list(graph.walk()):
        _use_implied(node)
    listed = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} others" if len(names) > _SHOWN else "")
    assume(f"inputs are such that outputs have the sizes that the model declares: {listed}")


def _unknown(inferred: Shape | None, declared: Shape | None) -> dict[Symbol | Common, int]:
    """The symbols of an inferred shape that the declared one determines."""
    if inferred is None or declared is None or len(inferred) != len(declared):
        return {}
    pairs = [(dim, size) for dim, size in zip(inferred, declared, strict=True) if isinstance(size, int)]
    return dict(found for dim, size in pairs if (found := solved(dim, size, ())) is not None)


def _use_implied(node: Node) -> None:
    """Replace computed operands by the values that the sizes of the results imply."""
    if node.op.dialect != "neutral":
        return
    for index, elements in node.op.implied(node).items():
        value = node.operand(index)
        if not value.is_constant and all(shape_of(result.type) is not None for result in node.results):
            node.set_operand(index, _constant(elements, value))


def _constant(elements: Sequence[float], like: Value) -> Value:
    array = np.asarray(elements, like.dtype.numpy)
    shape = shape_of(like.type)
    return constant(array.reshape(()) if shape == () else array)
