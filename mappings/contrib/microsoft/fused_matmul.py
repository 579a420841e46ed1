"""Matrix products of com.microsoft with a fused scale, transpose or activation.

com.microsoft: FusedMatMul, TransposeMatMul, FusedGemm. Refused: SparseToDenseMatMul
"""

from __future__ import annotations

from onnxtfl.mappings.contrib.microsoft.fused_convolution import apply_activation
from onnxtfl.mappings.math.contraction import batched, matmul, times

from onnxtfl.build.qlinear import MICROSOFT, lift_op
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import transposed
from onnxtfl.rewriting.registry import lift_onnx, refuse_onnx


@lift_onnx("TransposeMatMul", since=(1,), domain=MICROSOFT)
@lift_onnx("FusedMatMul", since=(1,), domain=MICROSOFT)
def _fused_matmul(b: Builder, node: Node) -> Value:
    """alpha * A @ B; transA swaps the last two axes of A, transBatchA moves its first axis before the last one."""
    lhs, rhs = (_move_batch_axis(b, node, i) for i in (0, 1))
    if min(lhs.rank, rhs.rank) < 2:  # transA and transB do not change a vector
        lhs, rhs = (_swap_last_axes(b, v) if node.attr(n, 0) else v for v, n in ((lhs, "transA"), (rhs, "transB")))
        product = matmul(b, lhs, rhs)
    else:
        product = batched(b, lhs, rhs, bool(node.attr("transA", 0)), bool(node.attr("transB", 0)))
    return times(b, product, float(node.attr("alpha", 1.0)))


def _move_batch_axis(b: Builder, node: Node, index: int) -> Value:
    """Operand 0 or 1, with axis 0 moved before the last axis if its transBatch attribute is set and the rank is > 2.

    Source: ONNX Runtime, contrib_ops FusedMatMul.
    """
    x = node.operand(index)
    if not node.attr(("transBatchA", "transBatchB")[index], 0) or x.rank < 3:
        return x
    return transposed(b, x, [*range(1, x.rank - 1), 0, x.rank - 1])


def _swap_last_axes(b: Builder, x: Value) -> Value:
    """`x` with its last two axes swapped; a vector is unchanged."""
    return x if x.rank < 2 else transposed(b, x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


@lift_onnx("FusedGemm", since=(1,), domain=MICROSOFT)
def _fused_gemm(b: Builder, node: Node) -> Value:
    """activation(Gemm(A, B, C)), with Gemm of opset 13."""
    flags = {k: v for k, v in node.attributes.items() if k in ("alpha", "beta", "transA", "transB")}
    operands = [node.operand(0), node.operand(1), node.optional(2)]
    result = lift_op(b, "Gemm", 13, operands, flags)
    parameters = [node.attributes.get(f"activation_{name}") for name in ("alpha", "beta", "gamma")]
    return apply_activation(b, node, result, [float(p) for p in parameters if p is not None])


refuse_onnx(
    "SparseToDenseMatMul",
    why="an operand is packed for one kind of CPU, or is a sparse tensor",
    hint="export the model with MatMulNBits, or MatMul of a dense tensor",
    domain=MICROSOFT,
)
