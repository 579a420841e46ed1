"""Where and SELECT.

ONNX          Where 9 16
TFLite        SELECT, SELECT_V2
"""

from __future__ import annotations

from onnxtfl.build.operands import formula
from onnxtfl.build.rows import row
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import broadcast, reshape, unsqueezed
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import decompose, lift_tfl

row(ops.Select, onnx="Where", since=(9, 16))


row(ops.Select, tfl="SELECT_V2", lifts=False)
row(ops.Select, tfl="STABLEHLO_SELECT", lowers=False)


@lift_tfl("SELECT", "SELECT_V2")
def _select(b: Builder, node: Node) -> Value:
    """SELECT with a condition of rank 1 selects along the first axis.

    If all operands have one element, the result has the declared rank (LiteRT kernels/select.cc).
    """
    condition, on_true, on_false = operands = [node.operand(i) for i in range(3)]
    if node.op.name == "tfl.SELECT" and condition.tensor_type.rank == 1 and (on_true.tensor_type.rank or 0) > 1:
        condition = unsqueezed(b, condition, range(1, on_true.rank))
    chosen = b(ops.Select, condition, on_true, on_false)
    single = all(v.tensor_type.is_static and product(v.shape) == 1 for v in (*operands, node.result))
    return reshape(b, chosen, node.result.shape) if single else chosen


def _broadcasts(node: Node) -> bool:
    return len({v.tensor_type.shape for v in node.operands if v is not None}) > 1 and node.result.tensor_type.is_static


@decompose(ops.Select, "gpu", order="operands", when=_broadcasts)
def _select_of_equal_shapes(b: Builder, node: Node) -> Value:
    """Broadcast operands before; constants of one element lose their axes."""
    made = []
    for value in (node.operand(i) for i in range(3)):
        is_flat = value.is_constant and product(value.shape) == 1
        made.append(reshape(b, value, ()) if is_flat else broadcast(b, value, node.result.shape))
    return b(ops.Select, *made)


@formula(ops.Select, "onnx")
def _select_of_uint64(condition: Term, on_true: Term, on_false: Term) -> Term | None:
    """ONNX Runtime has a kernel for signed integers only."""
    if on_true.dtype is not DType.UINT64:
        return None
    return condition.choose(on_true.to(DType.INT64), on_false.to(DType.INT64)).to(DType.UINT64)
