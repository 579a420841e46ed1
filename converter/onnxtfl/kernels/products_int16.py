"""The accumulators of TFLite's CONV_2D and FULLY_CONNECTED of int16 activations and int8 weights.

LiteRT and tflite-runtime have fast kernels with int32 accumulators, for an int32 bias, and plain loops with int64
accumulators, for an int64 bias, which round once more. An int32 sum may wrap: it is written only if the constant
weights show that no sum does. Source: LiteRT kernels/conv.cc (EvalQuantizedPerChannel16x8), fully_connected.cc
(EvalQuantized).
Test: tests/unit/test_accumulators.py (test_the_largest_sum_in_litert).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.data import Array
from onnxtfl.ir.dtypes import DType
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.history import Remark
from onnxtfl.ir.quantization import limits, product_quantization
from onnxtfl.ir.quantized import picked_operands, quantization_of
from onnxtfl.ir.types import TensorType
from onnxtfl.rewriting.registry import Form


def zero_bias(x: Value, weights: Value, features: int) -> Value | None:
    """A bias of zeros for [features] sums of quantized products; None if an operand is not quantized."""
    a, w = quantization_of(x), quantization_of(weights)
    if a is None or w is None:
        return None
    quantization = product_quantization(a, w)
    zeros = np.zeros(features, quantization.dtype.numpy)
    return constant(zeros, type_=TensorType(DType.FLOAT32, (features,), quantization))


def remark_narrow_bias(node: Node) -> None:
    """Report that LiteRT reads an int32 bias of int16 activations as int64 if the file does not declare its type.

    tflite-runtime 2.14 reads it as int32, which is what is converted.
    """
    x, bias = quantization_of(node.operand(0)), quantization_of(node.optional(2))
    if x is not None and bias is not None and (x.storage, bias.storage) == ("int16", "int32"):
        text = "LiteRT computes undefined values, since the file lacks quantized_bias_type for its int32 bias"
        node.remarks += (Remark("kernel", node.op.name_in_file, text),)


def may_sum_int16(node: Node) -> bool:
    """Whether the first operand of `node` is quantized to int16, whose products kernels sum in int64 or int32."""
    quantization = quantization_of(node.operand(0))
    return quantization is not None and quantization.storage == "int16"


def in_int32(form: Form | None, axis: int) -> Form | None:
    """`form`, of operands (int16 activations, int8 weights, int64 bias), with an int32 bias.

    `axis`: that of the weights' output features. None if a sum may overflow int32, and for other forms.
    """
    if form is None or len(form.operands) < 3:
        return None
    x, weights, bias = form.operands[:3]
    if not isinstance(x, Value) or not isinstance(weights, Value) or not isinstance(bias, Value):
        return None
    a, w, b = (quantization_of(v) for v in (x, weights, bias))
    if a is None or w is None or b is None or (a.storage, w.storage, b.storage) != ("int16", "int8", "int64"):
        return None
    if weights.data is None or bias.data is None or any((*a.zero_points, *w.zero_points)):
        return None
    if not _adds_up(weights.stored(), bias.stored(), axis, 0 if _is_nonnegative(x) else limits(a.dtype)[0]):
        return None
    type_ = bias.tensor_type.stored_as(replace(b, storage="int32"))
    narrow = constant(bias.data.cast(DType.INT32), type_=type_)
    options = {**form.attributes, "quantized_bias_type": "INT32"}
    return replace(form, operands=(x, weights, narrow, *form.operands[3:]), attributes=options)


def _adds_up(weights: Array, bias: Array, axis: int, low: int) -> bool:
    """Whether sum(w * x) + bias stays in int32 for all x in [low, 32767], in any order of the terms."""
    others = tuple(i for i in range(weights.ndim) if i != axis)
    above = np.maximum(weights, 0).sum(others, dtype=np.int64)
    below = np.minimum(weights, 0).sum(others, dtype=np.int64)
    least, greatest = limits(DType.INT32)
    top = limits(DType.INT16)[1]
    highest = above * top + below * low + np.maximum(bias, 0)
    lowest = below * top + above * low + np.minimum(bias, 0)
    return bool((highest <= greatest).all() and (lowest >= least).all())


def _is_nonnegative(x: Value) -> bool:
    """Whether the real values are nonnegative, and so are the integers, since the zero point is 0."""
    node = x.producer
    while node is not None and _keeps_sign(node):
        node = node.operand(0).producer
    low, high = (node and (node.op.clamps or node.op.bounds)) or (None, None)
    return low is not None and low >= 0 and high is not None


def _keeps_sign(node: Node) -> bool:
    """Whether the results of `node` are elements or means of its only operand, possibly converted."""
    picks = node.op.moves is None and picked_operands(node) is not None
    return node.op is ops.Convert or node.only_moves_first or picks
