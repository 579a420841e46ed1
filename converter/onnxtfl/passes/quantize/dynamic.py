"""Products of activations that are quantized at run time, in whole numbers, by kernels for float activations.

::

    %q = QuantizeLinear(%x, %s, %z)                        %rows = whole numbers %x / %s, with two columns for the ends
    %p = DotGeneral(%q - %z, %w: int8) : int32      ->     %y = DotGeneral(%rows, %w: int8 weights of scale 1)
    %y = Convert(%p) : float32

Such a kernel quantizes each row over its own range, where ONNX has one range for the tensor; rows that it does not
round (:mod:`onnxtfl.ir.whole_rows`) are multiplied as in the source, by the kernel for 8-bit integers.
"""

from __future__ import annotations

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array, PaddedData, TensorData
from onnxtfl.ir.facts import facts_of
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.matching import made_by, single_use
from onnxtfl.ir.quantization import limits
from onnxtfl.ir.types import DType
from onnxtfl.ir.whole_rows import COLUMNS, quantized_numbers, quantized_rows
from onnxtfl.passes.quantize.integers import shifted
from onnxtfl.passes.quantize.weights import is_matrix_product, within_columns
from onnxtfl.rewriting.patterns import Patterns

_EIGHT_BITS = (DType.INT8, DType.UINT8)
_WHOLE = Patterns()


def multiply_whole_rows(graph: Graph) -> None:
    """Replace integer products of quantized activations and constant weights by products of integral floats."""
    _WHOLE.apply(graph)


@_WHOLE.on(ops.Convert)
def product_of_whole_rows(b: Builder, node: Node) -> Value | None:
    """Convert((xq - xz) @ (wq - wz)) float32    ->    rows @ wq - sums of rows * wz"""
    product = made_by(node.operand(0), ops.DotGeneral)
    if product is None or node.result.dtype is not DType.FLOAT32 or not is_matrix_product(product):
        return None
    source, weights = _quantized(product.operand(0)), _weights(product)
    if source is None or weights is None:
        return None
    x, scale, stored_zero = (source.operand(i) for i in range(3))
    zero, dtype = _real_zero(b, stored_zero), stored_zero.dtype
    rows = quantized_rows(b, x, scale, zero, dtype, weights.depth)
    total = b(ops.DotGeneral, rows, _unscaled(b, weights), **product.attributes)
    if weights.zero is None:
        return total
    ends = (2.0 * Term(b, zero)) - float(sum(limits(dtype)))
    sums = Term(b, b(ops.Reduce, rows, [-1], kind="sum", keepdims=True)) + ends
    return (Term(b, total) - sums * Term(b, constant(weights.zero))).value


@_WHOLE.on(ops.Convert)
def product_of_whole_numbers(b: Builder, node: Node) -> Value | None:
    """Convert(Conv(xq - xz, wq - wz)) float32    ->    Conv(xq - xz, wq - wz) in float32; products of matrices likewise

    Sums of up to 2**24 are exact; larger ones, which the Convert rounds too, as those of other float products.
    """
    product = made_by(node.operand(0), ops.Conv, ops.DotGeneral)
    if product is None or node.result.dtype is not DType.FLOAT32 or product.optional(2) is not None:
        return None
    source, weights = _quantized(product.operand(0)), shifted(product.operand(1))
    if source is None or weights is None or not _are_constant(*weights):
        return None
    x, scale, zero = (source.operand(i) for i in range(3))
    numbers = quantized_numbers(b, x, scale, _real_zero(b, zero), zero.dtype)
    real = b(ops.DequantizeLinear, weights[0], b.scalar(1.0, DType.FLOAT32), weights[1], axis=0)
    return b(product.op, numbers, real, **product.attributes)


@_WHOLE.on(ops.Convert)
def sum_with_bias(b: Builder, node: Node) -> Value | None:
    """Convert(Add(product, bias)) float32    ->    Add(Convert(product), Convert(bias))

    Exporters before 2021 quantize the bias at run time too.
    """
    total = made_by(node.operand(0), ops.Add)
    if total is None or node.result.dtype is not DType.FLOAT32 or not single_use(total.result, b.graph):
        return None
    products = [made_by(v, ops.Conv, ops.DotGeneral) for v in total.operands]
    if not any(p is not None and _quantized(p.operand(0)) is not None for p in products):
        return None
    return b(ops.Add, *(b(ops.Convert, v, dtype=DType.FLOAT32) for v in total.operands))


def _are_constant(stored: Value, zero: Value | None) -> bool:
    """Whether these are constant weights of 8 bits with one zero point."""
    known = stored.is_constant and stored.dtype in _EIGHT_BITS
    return known and (zero is None or (zero.is_constant and zero.is_single))


def _quantized(integers: Value) -> Node | None:
    """The QuantizeLinear to 8 bits with one scale whose result minus its zero point is `integers`; else None."""
    found = shifted(integers)
    node = made_by(found[0], ops.QuantizeLinear) if found is not None else None
    if node is None or found is None or found[1] is None or found[1] is not node.optional(2):
        return None
    scale, zero = node.operand(1), node.operand(2)
    is_single = scale.is_single and zero.is_single and scale.dtype is DType.FLOAT32
    return node if is_single and zero.dtype in _EIGHT_BITS and node.operand(0).dtype is DType.FLOAT32 else None


@dataclass(frozen=True, slots=True)
class _Weights:
    """int8 `data`, whose axis `axis` of `depth` elements is summed over, and their zero points, if not all 0."""

    data: TensorData
    axis: int
    depth: int
    zero: Array | None


def _weights(product: Node) -> _Weights | None:
    """The constant weights of a product as int8; None for others."""
    found = shifted(product.operand(1))
    data = found[0].data if found is not None else None
    if found is None or data is None or data.dtype not in _EIGHT_BITS:
        return None
    zero = np.zeros((), np.int16) if found[1] is None else _constant_zero(found[1])
    (axis,) = ops.DotRoles.of(product).rhs_contract
    moved = None if zero is None else within_columns(data, zero, axis)
    if moved is None:
        return None
    left = moved[1].astype(np.float32)
    return _Weights(moved[0], axis, data.shape[axis], left if left.any() else None)


def _constant_zero(zero: Value) -> Array | None:
    """One zero point, or one for each column; None for others."""
    if zero.data is None or zero.tensor_type.rank not in (0, 1):
        return None
    stored = zero.numpy().astype(np.int16)
    return stored.reshape(()) if stored.size == 1 else stored


def _unscaled(b: Builder, weights: _Weights) -> Value:
    """The integers as floats, with zeros for the columns of the ends."""
    stored = constant(PaddedData(weights.data, weights.axis, COLUMNS))
    return b(ops.DequantizeLinear, stored, b.scalar(1.0, DType.FLOAT32), None, axis=0)


def _real_zero(b: Builder, zero: Value) -> Value:
    """The zero point as float32: the number that was converted to it, if that was a whole number in range."""
    inner = made_by(zero, ops.Convert)
    if inner is not None and inner.operand(0).dtype is DType.FLOAT32:
        known, (least, most) = facts_of(inner.operand(0)), limits(zero.dtype)
        if known.integral and least <= known.low and known.high <= most:
            return inner.operand(0)
    return b(ops.Convert, zero, dtype=DType.FLOAT32)
