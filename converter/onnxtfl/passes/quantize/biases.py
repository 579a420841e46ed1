"""Biases of quantized ops: int32 with the scale of input times weight.

::

    %b = constant : 8xfloat32    ->    %b = constant : 8xint32, scales (scale of %x) * (scales of %w)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.errors import short
from onnxtfl.ir import ops
from onnxtfl.ir.data import ArrayData
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.history import Remark
from onnxtfl.ir.quantization import Quantization, dequantize, product_quantization, quantize
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.types import DType, TensorType

_MOST_ELEMENTS = 1 << 20
"""The most elements of a bias that is quantized here."""


def dequantized_source(value: Value | None) -> Value | None:
    """Return the quantized value from which `value` is converted."""
    node = value.producer if value is not None else None
    if node is None or node.op is not ops.Convert or node.result.is_quantized or not node.operand(0).is_quantized:
        return None
    return node.operand(0) if node.result.dtype is node.operand(0).dtype else None


def rescaled_bias(node: Node, operands: Sequence[Value | None]) -> Remark | None:
    """Return the remark that the bias of `node`, quantized in the source, gets another scale."""
    index = next((i for i, o in enumerate(node.op.operands) if o.name == "bias"), len(operands))
    if index >= len(operands):
        return None
    before, after = quantization_of(dequantized_source(node.operands[index])), quantization_of(operands[index])
    if before is None or after is None or (before.scales, before.zero_points) == (after.scales, after.zero_points):
        return None
    return Remark("bias", node.op.name, short(f"{before} became {after}"))


def quantized_bias(value: Value, operands: Sequence[Value | None], wanted: Quantization | None) -> Value | None:
    """Quantize a constant bias with scale input scale * weight scale, as integer kernels accumulate it.

    None if the error is not below a quarter of a step of the result's quantization `wanted`.
    """
    source = dequantized_source(value) or value
    x, w = (v.tensor_type.quantization if v is not None else None for v in operands[:2])
    if source.data is None or source.data.size > _MOST_ELEMENTS or x is None or w is None or not x.per_tensor:
        return None
    quantization = product_quantization(x, w)
    before = source.tensor_type.quantization
    if before is not None and before.scales == quantization.scales and not any(before.zero_points):
        return constant(source.data.cast(quantization.dtype), type_=source.tensor_type.stored_as(quantization))
    real = source.numpy().astype(np.float32)
    if quantization.axis is not None and real.size != len(quantization.scales):
        return None
    stored = quantize(real, quantization)
    error = np.abs(dequantize(stored, quantization) - real).max(initial=0.0)
    if not error <= (min(wanted.scales) / 4 if wanted is not None else 0.0):
        return None
    type_ = TensorType(DType.FLOAT32, real.shape, quantization)
    return constant(ArrayData(stored, quantization.dtype), type_=type_)
