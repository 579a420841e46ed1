"""Computed uint8 values as int32, for targets without conversions of uint8.

::

    %q: uint8 = QuantizeLinear(%x, %scale, %zero: uint8)   ->   %q: int32 = Clamp(Round(%x / %scale) + %zero, 0, 255)
    Convert(%q) float32                                    ->   Convert(%q) float32

Dynamic quantization consists of such nodes. Only values whose readers are conversions and zero points are changed.
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node
from onnxtfl.ir.types import DType, TensorType


def compute_uint8_in_int32(graph: Graph) -> None:
    """Replace nodes that compute such values."""
    found: set[Node] = set()
    for node in reversed(list(graph.nodes)):
        inner = _makes_uint8(node) and not graph.is_output(node.result)
        if inner and all(_reads(user, i, found) for user, i in node.result.uses):
            found.add(node)
    for node in [n for n in graph.nodes if n in found]:
        x = Term(Builder(graph, node, maker="uint8"), node.operand(0))
        made = _wrapped(x) if node.op is ops.Convert else _quantized(x, node)
        node.result.type = node.result.tensor_type.with_dtype(DType.INT32)
        graph.replace(node, [made.value])


def _makes_uint8(node: Node) -> bool:
    """Whether a node converts to uint8, or quantizes to it with a computed scale for the whole tensor."""
    if node.op not in (ops.Convert, ops.QuantizeLinear) or node.attributes.get("dtype") is not DType.UINT8:
        return False
    types = [v.type for v in (*node.present_operands, node.result)]
    if any(not isinstance(t, TensorType) or t.quantization for t in types):
        return False
    if node.op is ops.Convert:
        return node.operand(0).dtype in (DType.FLOAT32, DType.INT32)
    scale, zero = node.operand(1), node.optional(2)
    computed = zero is not None and not zero.is_constant and not scale.is_constant
    return computed and scale.tensor_type.shape == () and node.operand(0).dtype is scale.dtype is DType.FLOAT32


def _reads(user: Node, index: int, found: set[Node]) -> bool:
    return user.op is ops.Convert or (user in found and user.op is ops.QuantizeLinear and index == 2)


def _wrapped(x: Term) -> Term:
    """The low 8 bits of integers or of truncated floats."""
    return x.to(DType.INT32) % 256


def _quantized(x: Term, node: Node) -> Term:
    zero = Term(x.b, node.operand(2)).to(DType.FLOAT32)
    steps = (x / Term(x.b, node.operand(1))).apply(ops.RoundNearestEven)
    return (steps + zero).clamp(0.0, 255.0).to(DType.INT32)
