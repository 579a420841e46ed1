"""Where the rounding of a conversion to float16 or bfloat16 can be seen, if arithmetic on these types is in float32.

::

    Convert(Convert(%x) float16) float32      what rounds is asked for, and is kept
    MatMul(Convert(%x) float16, %w)           the product would round anyway: it is computed in float32
"""

from __future__ import annotations

from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.types import DType, TensorType

_HALVES = (DType.FLOAT16, DType.BFLOAT16)


def is_observed(value: Value) -> bool:
    """Whether a use of `value` is other than arithmetic on the same type."""
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
    """Whether all elements of the results of `node` are elements of its operands."""
    return node.op.moves is not None or node.op.selects is not None


def _is_arithmetic(node: Node) -> bool:
    types = [result.type for result in node.results]
    return not node.regions and all(isinstance(type_, TensorType) and type_.dtype in _HALVES for type_ in types)
