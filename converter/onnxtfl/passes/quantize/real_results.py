"""Products of quantized activations whose results are not quantized, by kernels for float activations.

::

    %x = Convert(%q: int8 0.5:3)                       %x = Convert(Concatenate(%q, %ends))
    %y = Conv(%x, Convert(%w: int8))          ->       %y = Conv(%x, Convert(%w with zeros for the ends))

Such a kernel quantizes each row (of a convolution, each sample) over its own range. With the ends of the range of %q
in each of them, it finds the integers of %q again (:mod:`onnxtfl.ir.whole_rows`).
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import PaddedData
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import made_by
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.whole_rows import (
    COLUMNS,
    STEPS,
    are_whole_rows,
    rounds_to_steps,
    summed_axes,
    with_ends,
    with_two_scales,
)
from onnxtfl.passes.quantize.weights import SIGNED, centered, is_eight_bit, is_matrix_product
from onnxtfl.rewriting.patterns import Patterns

_LEAST = 64
"""The multiplications by each activation from which on they take longer in float than rounding it again."""
REAL_RESULTS = Patterns()


@REAL_RESULTS.on(ops.DotGeneral, ops.DotGeneralBias)
def product_of_rows(b: Builder, node: Node) -> Value | None:
    """Append the ends to the rows of a product with a matrix of weights."""
    axes = summed_axes(node)
    return _with_ends(b, node, *axes) if axes is not None and is_matrix_product(node) else None


@REAL_RESULTS.on(ops.Conv)
def convolution_of_samples(b: Builder, node: Node) -> Value | None:
    """Append the ends to the features of a convolution in one or two dimensions, without groups.

    Not to images of unknown size, whose windows are padded and moved by amounts that only the run knows.
    """
    axes, shape = summed_axes(node), node.operand(0).tensor_type.shape
    if axes is None or shape is None or len(shape) not in (3, 4) or node.attr("feature_group_count") != 1:
        return None
    is_known = all(isinstance(n, int) for i, n in enumerate(shape) if i != node.attr("input_batch_dimension"))
    return _with_ends(b, node, *axes) if is_known else None


def _with_ends(b: Builder, node: Node, axis: int, weights_axis: int) -> Value | None:
    """The op with the ends appended to its activations along `axis`, and zeros to its weights along `weights_axis`."""
    x, stored = (_stored(node.operand(i)) for i in (0, 1))
    if x is None or stored is None or x.is_constant or not is_eight_bit(stored) or node.result.is_quantized:
        return None
    weights = centered(stored, SIGNED)
    if weights is None or weights.data is None or not _has_steps(x) or are_whole_rows(node.operand(0), axis=axis):
        return None
    parameters, data = _several_scales(node, weights), PaddedData(weights.data, weights_axis, COLUMNS)
    if parameters is None or weights.data.size < _LEAST * weights.shape[weights_axis]:
        return None
    padded = constant(data, type_=weights.tensor_type.with_shape(data.shape).stored_as(parameters))
    operands = [b(ops.Convert, v, dtype=node.operand(0).dtype) for v in (with_ends(b, x, axis), padded)]
    return b(node.op, *operands, *node.operands[2:], **node.attributes)


def _several_scales(node: Node, weights: Value) -> Quantization | None:
    """The parameters of the weights as the kernel needs them; None if a convolution has one feature."""
    known = weights.tensor_type.quantization
    if node.op is not ops.Conv or known is None or rounds_to_steps(None, weights):
        return known
    axis = int(node.attr("kernel_output_feature_dimension"))
    return with_two_scales(known, weights.shape[axis], axis) if weights.shape[axis] > 1 else None


def _stored(value: Value) -> Value | None:
    """The quantized value that `value` is the real values of; None for others."""
    convert = made_by(value, ops.Convert, quantized=True)
    return None if convert is None or value.is_quantized else convert.operand(0)


def _has_steps(x: Value) -> bool:
    """Whether `x` has 8 bits with one scale, of which a kernel can compute the range."""
    found = x.tensor_type.quantization
    if found is None or not found.per_tensor or found.dtype.bits != 8:
        return False
    return bool(np.isfinite(np.float32(found.scales[0]) * STEPS))
