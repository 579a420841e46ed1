"""Map: the ops of its computation, on whole tensors."""

from __future__ import annotations

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.inlining import copy_region
from onnxtfl.ir.op import Elementwise
from onnxtfl.ir.reshape import broadcast
from onnxtfl.rewriting.registry import decompose


@decompose(ops.Map)
def map_on_tensors(b: Builder, node: Node) -> Value:
    """%y = Map(%x, ...) {computation}    ->    the ops of the computation, on %x, ..."""
    body: Graph = node.attr("computation")
    for inner in body.nodes:
        if not issubclass(inner.op, Elementwise) and inner.op is not ops.BitcastConvert:
            raise UnsupportedError(f"{inner.op.name} in the computation of a Map is not elementwise", code="E-OP-005")
    (result,) = copy_region(b, body, node.operands)
    return broadcast(b, result, node.result.shape, *node.present_operands)
