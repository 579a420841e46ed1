"""What ONNX says with one op and TFLite with several; recognised on the way to ONNX.

ONNX: Selu Celu ThresholdedRelu InstanceNormalization ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum
ReduceLogSumExp, Einsum of a diagonal.
"""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.ops.reductions import reduced_axes
from onnxtfl.rules import HUGE, Form, Term, decompose, decompose_late, lower_onnx, reshape


@lower_onnx(ops.Selu)
def _selu(node: Node, opset: int) -> Form:
    return Form("Selu", tuple(node.operands), {"alpha": node.attr("alpha"), "gamma": node.attr("gamma")})


@lower_onnx(ops.Celu)
def _celu(node: Node, opset: int) -> Form:
    return Form("Celu", tuple(node.operands), {"alpha": node.attr("alpha")})


@lower_onnx(ops.ThresholdedRelu)
def _thresholded_relu(node: Node, opset: int) -> Form:
    return Form("ThresholdedRelu", tuple(node.operands), {"alpha": node.attr("alpha")})


@decompose(ops.Selu)
def _selu_apart(b: Builder, node: Node) -> Value:
    return (Term(b, node.operand(0)).apply(ops.Elu, alpha=node.attr("alpha")) * float(node.attr("gamma"))).value


@decompose(ops.Celu)
def _celu_apart(b: Builder, node: Node) -> Value:
    alpha = float(node.attr("alpha"))
    return ((Term(b, node.operand(0)) / alpha).apply(ops.Elu) * alpha).value


@decompose(ops.ThresholdedRelu)
def _thresholded_relu_apart(b: Builder, node: Node) -> Value:
    x = Term(b, node.operand(0))
    return (x > float(node.attr("alpha"))).choose(x, 0.0).value


# --- InstanceNorm -----------------------------------------------------------------------------------------------------


@lower_onnx(ops.InstanceNorm)
def _instance_norm(node: Node, opset: int) -> Form | None:
    if (node.attr("batch_index"), node.attr("feature_index")) != (0, 1):
        return None
    return Form("InstanceNormalization", tuple(node.operands), {"epsilon": float(node.attr("epsilon"))})


def _lies_otherwise(node: Node) -> bool:
    return (node.attr("batch_index"), node.attr("feature_index")) != (0, 1)


@decompose_late(ops.InstanceNorm, "onnx", when=_lies_otherwise)
@decompose(ops.InstanceNorm)
def _instance_norm_apart(b: Builder, node: Node) -> Value:
    x, feature = Term(b, node.operand(0)), node.attr("feature_index")
    axes = [a for a in range(x.value.rank) if a not in (node.attr("batch_index"), feature)]
    apart = x - Term(b, b(ops.Reduce, x.value, axes, kind="mean", keepdims=True))
    variance = Term(b, b(ops.Reduce, (apart * apart).value, axes, kind="mean", keepdims=True))
    scale, bias = (_along(b, node.operand(i), x.value.rank - 1 - feature) for i in (1, 2))
    return ((apart / (variance + float(node.attr("epsilon"))).sqrt()) * scale + bias).value


def _along(b: Builder, vector: Value, behind: int) -> Term:
    return Term(b, reshape(b, vector, (*vector.shape, *[1] * behind)))


# --- pools over everything --------------------------------------------------------------------------------------------


@lower_onnx(ops.Reduce)
def _global_pool(node: Node, opset: int) -> Form | None:
    """Over all axes behind batch and features, which are kept."""
    axes, rank = reduced_axes(node), node.operand(0).tensor_type.rank or 0
    name = {"mean": "GlobalAveragePool", "max": "GlobalMaxPool"}.get(node.attr("kind"))
    whole = axes is not None and rank > 2 and set(axes) == set(range(2, rank)) and node.attr("keepdims")
    return Form(name, (node.operand(0),)) if name and whole and node.operand(0).dtype.is_float else None


# --- reductions -------------------------------------------------------------------------------------------------------

_REDUCTIONS = {
    "l1": "ReduceL1",
    "l2": "ReduceL2",
    "sum_square": "ReduceSumSquare",
    "log_sum": "ReduceLogSum",
    "log_sum_exp": "ReduceLogSumExp",
}


@lower_onnx(ops.FunctionReduce)
def _function_reduce(node: Node, opset: int) -> Form | None:
    """The axes are an attribute before opset 18."""
    name, axes = _REDUCTIONS[node.attr("kind")], reduced_axes(node)
    if axes is None or (node.optional(1) is not None and not axes):
        return None
    attributes = {"keepdims": int(node.attr("keepdims"))}
    if opset < 18:
        return Form(name, (node.operand(0),), {**attributes, "axes": axes})
    return Form(name, (node.operand(0), np.asarray(axes, np.int64)), attributes)


@decompose(ops.FunctionReduce)
def _function_reduce_apart(b: Builder, node: Node) -> Value:
    x, kind = Term(b, node.operand(0)), node.attr("kind")
    if kind == "log_sum_exp":
        return _log_sum_exp(b, node)
    inner = x.abs() if kind == "l1" else x if kind == "log_sum" else x * x
    total = Term(b, b(ops.Reduce, inner.value, *node.operands[1:], kind="sum", keepdims=node.attr("keepdims")))
    return {"l2": total.sqrt, "log_sum": total.log}.get(kind, lambda: total)().value


def _log_sum_exp(b: Builder, node: Node) -> Value:
    """The greatest is taken out, so that nothing overflows."""
    x, axes, keep = Term(b, node.operand(0)), node.operands[1:], node.attr("keepdims")
    top = Term(b, b(ops.Reduce, x.value, *axes, kind="max", keepdims=True))
    shift = (top.abs() < math.inf).choose(top, 0.0)
    total = Term(b, b(ops.Reduce, (x - shift).exp().value, *axes, kind="sum", keepdims=keep)).log()
    back = shift if keep else Term(b, b(ops.Reduce, shift.value, *axes, kind="sum", keepdims=False))
    return (total + back).value


# --- diagonals --------------------------------------------------------------------------------------------------------


@lower_onnx(ops.Diagonal)
def _diagonal(node: Node, opset: int) -> Form | None:
    if node.operand(0).tensor_type.shape is None or node.operand(0).rank > 20:
        return None
    batch = "abcdefghijklmnopqrst"[: node.operand(0).rank - 2]
    return Form("Einsum", (node.operand(0),), {"equation": f"{batch}zz->{batch}z"})


@decompose(ops.Diagonal)
def _diagonal_apart(b: Builder, node: Node) -> Value:
    """Every (n + 1)-th of n * n numbers."""
    x = node.operand(0)
    size, batch = int(x.shape[-1]), x.shape[:-2]
    flat = reshape(b, x, (*batch, size * size))
    rank = len(batch)
    return b(ops.Slice, flat, [0] * (rank + 1), [HUGE] * (rank + 1), [*[1] * rank, size + 1])
