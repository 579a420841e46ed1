"""Analysis: which conversions to float16 or bfloat16 have to round although arithmetic is computed in float32.

::

    Convert(Convert(%x) float16) float32      explicit rounding is kept
    MatMul(Convert(%x) float16, %w)           rounding before arithmetic is omitted: it is computed in float32
"""

from __future__ import annotations

from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.types import DType, TensorType

_HALVES = (DType.FLOAT16, DType.BFLOAT16)


def is_observed(value: Value) -> bool:
    """Whether `value` has a use other than arithmetic in the same type."""
    work, seen = [value], set[Value]()
    while work:
        current = work.pop()
        if current in seen:
            continue
        seen.add(current)
        graph = None if current.producer is None else current.producer.graph
        if graph is None or graph.is_output(current):
            return True
        for node in current.users():
            if keeps_elements(node):
                work += node.results
            elif not _is_arithmetic(node):
                return True
    return False


def keeps_elements(node: Node) -> bool:
    """Whether `node` only moves elements."""
    return node.op.moves is not None or node.op.selects is not None


def _is_arithmetic(node: Node) -> bool:
    types = [result.type for result in node.results]
    return not node.regions and all(isinstance(type_, TensorType) and type_.dtype in _HALVES for type_ in types)
