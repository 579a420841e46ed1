"""Products whose activations have the ends of their range, for kernels that quantize them at run time.

::

    %x = Convert(Concatenate(%q, %ends))                   %x = Convert(%q: int8 0.5:3)
    %y = Conv(%x, %w: int8 with zeros for the ends)        %y = Conv(%x, %w: int8)

:mod:`onnxtfl.passes.quantize.real_results` writes them so, and :mod:`onnxtfl.passes.quantize.hybrid` the scales of
columns as a product.
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import PartData
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import made_by, single_use
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.whole_rows import COLUMNS, summed_axes, with_one_scale, without_ends
from onnxtfl.rewriting.patterns import Patterns

WHOLE_ROWS = Patterns()


@WHOLE_ROWS.on(ops.DotGeneral, ops.DotGeneralBias, ops.Conv, quantized=True)
def product_without_ends(b: Builder, node: Node) -> Value | None:
    """Leave out the ends, if the last weights, which multiply them, are 0."""
    weights, axes = node.operand(1), summed_axes(node)
    quantization = weights.tensor_type.quantization
    if axes is None or weights.data is None or quantization is None or node.operand(0).is_quantized:
        return None
    axis, weights_axis = axes
    count = weights.shape[weights_axis] - COLUMNS
    if count < 1 or PartData(weights.data, count, count + COLUMNS, weights_axis).numpy().any():
        return None
    x = without_ends(b, node.operand(0), axis)
    if x is None:
        return None
    kept = PartData(weights.data, 0, count, weights_axis)
    kind = weights.tensor_type.with_shape(kept.shape).stored_as(with_one_scale(quantization))
    part = constant(kept, type_=kind)
    return b(node.op, x, part, *node.operands[2:], **node.attributes)


@WHOLE_ROWS.on(ops.Mul)
def scales_of_columns(b: Builder, node: Node) -> Value | None:
    """Mul(x @ %w: int8 of scale 1, scales)    ->    x @ %w: int8 with a scale for each column"""
    scales, product = node.operand(1), made_by(node.operand(0), ops.DotGeneral, quantized=True)
    weights = product.operand(1) if product is not None else None
    free = ops.DotRoles.of(product).rhs_free if product is not None else ()
    if product is None or weights is None or weights.data is None or scales.data is None or len(free) != 1:
        return None
    quantization = weights.tensor_type.quantization
    unit = quantization is not None and quantization.per_tensor and quantization.scales[0] == 1.0
    if quantization is None or not unit or scales.tensor_type.shape != (weights.shape[free[0]],):
        return None
    found = scales.numpy()
    if found.dtype != np.float32 or not single_use(product.result, b.graph) or not (found > 0).all():
        return None
    zeros = (quantization.zero_points[0],) * len(found)
    columns = Quantization(quantization.storage, tuple(map(float, found)), zeros, free[0])
    stored = constant(weights.data, type_=weights.tensor_type.stored_as(columns))
    return b(ops.DotGeneral, product.operand(0), stored, **product.attributes)
