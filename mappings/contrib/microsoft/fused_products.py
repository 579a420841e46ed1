"""Matrix products and convolutions of com.microsoft with a fused scale, transpose, addition or activation; CDist.

com.microsoft: FusedMatMul, TransposeMatMul, FusedGemm, FusedConv, NhwcConv, NhwcFusedConv, CDist
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.mappings.math.contraction import batched, contracted, matmul, times
from onnxtfl.mappings.nn.convolution import convolved

from onnxtfl.build.qlinear import MICROSOFT, channels_second, channels_trailing, lift_op
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import OPS
from onnxtfl.ir.reshape import transposed, unsqueezed
from onnxtfl.rewriting.registry import lift_onnx


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
    parameters = [node.attributes.get(f"activation_{name}") for name in ("alpha", "beta")]
    return apply_activation(b, node, result, [float(p) for p in parameters if p is not None])


@lift_onnx("FusedConv", since=(1,), domain=MICROSOFT)
def _fused_conv(b: Builder, node: Node) -> Value:
    """activation(Conv(x, w, bias) + Z); bias and Z may be absent."""
    result = convolved(b, node, node.operand(0), node.operand(1), node.optional(2))
    summand = node.optional(3)
    result = result if summand is None else b(ops.Add, result, summand)
    return apply_activation(b, node, result, [float(p) for p in node.attr("activation_params", ())])


@lift_onnx("NhwcConv", since=(1,), domain=MICROSOFT)
def _channels_last_conv(b: Builder, node: Node) -> Value:
    """Conv of x [n, spatial..., c] with w [m, c / group, spatial...]. Source: ONNX Runtime's schema of NhwcConv."""
    return _convolved_channels_last(b, node)


@lift_onnx("NhwcFusedConv", since=(1,), domain=MICROSOFT)
def _channels_last_fused_conv(b: Builder, node: Node) -> Value:
    """activation(NhwcConv(x, w, bias) + Z); Z has the shape of the result."""
    result, summand = _convolved_channels_last(b, node), node.optional(3)
    result = result if summand is None else b(ops.Add, result, summand)
    return apply_activation(b, node, result, [float(p) for p in node.attr("activation_params", ())])


def _convolved_channels_last(b: Builder, node: Node) -> Value:
    x = channels_second(b, node.operand(0))
    return channels_trailing(b, convolved(b, node, x, node.operand(1), node.optional(2)))


def apply_activation(b: Builder, node: Node, x: Value, parameters: Sequence[float]) -> Value:
    """Apply the activation named by the attribute `activation` to `x`; without one, `x` is unchanged.

    `parameters`: alpha, beta or min, max, in the order of the ONNX op's attributes; missing ones have the ONNX default.
    """
    name = str(node.attr("activation", ""))
    if not name:
        return x
    if name in ("Relu", "Tanh", "Sigmoid"):
        return b(OPS[name], x)
    first, second = (*parameters, *(None, None))[:2]
    if name == "LeakyRelu":
        return b(ops.LeakyRelu, x, alpha=0.01 if first is None else first)
    if name == "HardSigmoid":
        return b(ops.HardSigmoid, x, slope=0.2 if first is None else first, offset=0.5 if second is None else second)
    if name == "Clip" and first is not None and second is not None:
        return b(ops.Clamp, x, b.scalar(first, x), b.scalar(second, x))
    raise UnsupportedError(f"the activation {name} is not supported")


@lift_onnx("CDist", since=(1,), domain=MICROSOFT)
def _distances(b: Builder, node: Node) -> Value:
    """The Euclidean distance, or its square, of each row of A [m, k] to each row of B [n, k]: [m, n].

    Computed as a . a - 2 a . b + b . b, as in ONNX Runtime.
    """
    lhs, rhs = (Term(b, node.operand(i)) for i in (0, 1))
    product = Term(b, contracted(b, lhs.value, rhs.value, 1, 1))
    rows = (lhs * lhs).reduce("sum", [1])
    columns = Term(b, unsqueezed(b, (rhs * rhs).reduce("sum", [1], keepdims=False).value, [0]))
    squares = (rows - product * 2.0 + columns).max(0.0)
    metric = node.attr("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise UnsupportedError(f"metric is {metric!r}, not euclidean or sqeuclidean")
    return squares.value if metric == "sqeuclidean" else squares.sqrt().value
