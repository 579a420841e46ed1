"""Normalization.

==============  =============================================================================================
ONNX            BatchNormalization 1 6 7 9 14 15
==============  =============================================================================================
"""

from __future__ import annotations

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.rewriting.registry import Form, decompose, lift_onnx, lower_onnx, upgrade
from onnxtfl.rewriting.reshapes import reshaped


@upgrade("BatchNormalization", since=(1, 6, 7, 9))
def _batch_norm_9(b: Builder, node: Node) -> None:
    """Version 1 and 6 say with is_test, 7 and 9 with the number of results, whether this is training.

    `spatial` 0 (statistics for each element rather than channel) went with version 9.
    """
    if not node.attr("spatial", 1):
        raise UnsupportedError("spatial = 0", hint="convert the model to opset 9 or newer first")
    old = node.op.version in (1, 6)
    training = not node.attr("is_test", 0) if old else len(node.results) > 1
    used = any(r.uses or (node.graph is not None and r in node.graph.output_set()) for r in node.results[1:])
    node.attributes["training_mode"] = int(bool(training and used))


@lift_onnx("BatchNormalization", since=(14, 15))
def _batch_norm(b: Builder, node: Node) -> Value:
    if node.attr("training_mode", 0):
        raise UnsupportedError("training mode", hint="export the model for inference")
    return b(ops.BatchNormInference, *node.operands[:5], epsilon=float(node.attr("epsilon", 1e-5)), feature_index=1)


@lower_onnx(ops.BatchNormInference)
def _onnx_batch_norm(node: Node, opset: int) -> Form | None:
    """The feature axis second; vectors of another type from version 15 on."""
    x = node.operand(0)
    same = all(node.operand(i).dtype is x.dtype for i in range(1, 5))
    if node.attr("feature_index") != 1 or x.tensor_type.rank in (None, 1) or not (same or opset >= 15):
        return None
    return Form("BatchNormalization", tuple(node.operands), {"epsilon": float(node.attr("epsilon"))})


@decompose(ops.BatchNormInference)
def _batch_norm_apart(b: Builder, node: Node) -> Value:
    """x * a + c with a = scale / sqrt(variance + epsilon) and c = bias - mean * a, which fold if they are constant."""
    x, scale, bias, mean, variance = (node.operand(i) for i in range(5))
    wide = variance.dtype
    scale, bias, mean = (v if v.dtype is wide else b(ops.Convert, v, dtype=wide) for v in (scale, bias, mean))
    deviation = b(ops.Sqrt, b(ops.Add, variance, b.scalar(float(node.attr("epsilon")), variance)))
    factor = b(ops.Div, scale, deviation)
    offset = b(ops.Sub, bias, b(ops.Mul, mean, factor))
    if x.dtype is not wide:
        factor, offset = (b(ops.Convert, v, dtype=x.dtype) for v in (factor, offset))
    rank = x.rank - node.attr("feature_index")
    factor, offset = (reshaped(b, v, (*v.shape, *[1] * (rank - 1))) for v in (factor, offset))
    return b(ops.Add, b(ops.Mul, x, factor), offset)
