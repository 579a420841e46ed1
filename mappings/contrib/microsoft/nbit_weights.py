"""Weights of 2, 4 or 8 bits with a scale for each block: MatMulNBits, MatMulBnb4, GatherBlockQuantized."""

from __future__ import annotations

import numpy as np
from onnxtfl.mappings.math.contraction import contracted

from onnxtfl.build.indices import nonnegative
from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.build.sizes import slice_axes
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array, ArrayData, ColumnsData, FilledData, TensorData
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.packed import ByteData, FieldData
from onnxtfl.ir.reshape import reshape, unsqueezed
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.ir.types import DType
from onnxtfl.ir.unpacking import unpacked_rows
from onnxtfl.rewriting.registry import lift_onnx, refuse_onnx


@lift_onnx("MatMulNBits", since=(1,), domain=MICROSOFT)
def _matmul_of_blocks(b: Builder, node: Node) -> Value:
    """Return A @ W.T with W [n, k] of 2, 4 or 8 bits, quantized in blocks along k; the default zero point is mid-range.

    `g_idx` maps columns to blocks; with it, ONNX Runtime's kernel ignores integer zero points, and reads 2-bit weights
    as 4-bit. Source: ONNX Runtime, contrib_ops/cpu/quantization/matmul_nbits.cc.
    """
    k, n, block = (int(node.attributes[name]) for name in ("K", "N", "block_size"))
    bits = int(node.attr("bits", 4))
    if bits not in (2, 4, 8) or node.attr("weight_prepacked", 0):
        raise UnsupportedError(f"weights of {bits} bits, or in a machine's packed layout", hint="use 2, 4 or 8 bits")
    zero, order = node.optional(3), node.optional(4)
    if order is not None and (bits != 4 or (zero is not None and zero.dtype is DType.UINT8)):
        raise UnsupportedError("the operand g_idx with integer zero points or with weights of other than 4 bits")
    x, columns = node.operand(0), _sorted_columns(node, k, block)
    if columns is not None and not np.array_equal(columns, np.arange(k)):
        x = b(ops.Gather, x, columns, axis=x.rank - 1)
    real = _real_blocks(b, node, DType(f"uint{bits}"), (n, k), block, columns)
    product = contracted(b, x, real, x.rank - 1, 1)
    bias = node.optional(5)
    return product if bias is None else b(ops.Add, product, bias)


def _sorted_columns(node: Node, k: int, block: int) -> Array | None:
    """The columns of constant weights in the order of their blocks, from `g_idx`; None if its blocks
    differ in size, or if there are zero points, which are floats.
    """
    order = node.optional(4)
    if order is None or not order.is_constant or not node.operand(1).is_constant or node.optional(3) is not None:
        return None
    groups = order.numpy().reshape(-1)[:k].astype(np.int64)
    columns = np.argsort(groups, kind="stable")
    return columns if np.array_equal(groups[columns], np.arange(k) // block) else None


def _real_blocks(
    b: Builder, node: Node, dtype: DType, shape: tuple[int, int], block: int, columns: Array | None
) -> Value:
    """Return the real weights [n, k]: a quantized constant if all operands are constant, else computed.

    `columns`: their order, where it is not that of `g_idx`.
    """
    (n, k), packed, zero = shape, node.operand(1), node.optional(3)
    count = -(-k // block)
    scale = reshape(b, node.operand(2), [n, count])
    integers = zero is None or (zero.dtype is DType.UINT8 and zero.data is not None)
    if packed.data is not None and integers and (node.optional(4) is None or columns is not None):
        fields: TensorData = FieldData(packed.data, dtype, (n, count * block))
        if columns is not None and not np.array_equal(columns, np.arange(k)):
            fields = ColumnsData(fields, np.concatenate([columns, np.arange(k, count * block)]))
        weights = constant(fields)
        points = _zero_points(zero, dtype, (n, count))
        return slice_axes(
            b, b(ops.DequantizeLinear, weights, scale, points, axis=1, block_size=block), {1: slice(0, k)}
        )
    codes = _codes(b, packed, dtype, (n, count * block), scale.dtype)
    points_ = _computed_zeros(b, zero, dtype, (n, count), scale.dtype)
    order = node.optional(4)
    if order is None:
        blocks = Term(b, reshape(b, codes.value, [n, count, block]))
        real = (blocks - Term(b, unsqueezed(b, points_.value, [2]))) * Term(b, unsqueezed(b, scale, [2]))
        return slice_axes(b, reshape(b, real.value, [n, count * block]), {1: slice(0, k)})
    first = Term(b, slice_axes(b, codes.value, {1: slice(0, k)}))
    index = nonnegative(b, reshape(b, order, [k]), count)
    point, step = (Term(b, b(ops.Gather, each, index, axis=1)) for each in (points_.value, scale))
    return ((first - point) * step).value


def _codes(b: Builder, packed: Value, dtype: DType, shape: tuple[int, int], real: DType) -> Term:
    """Unpack bytes into their fields, low bits first, as floats."""
    per = 8 // dtype.bits
    if per == 1:
        return Term(b, reshape(b, packed, shape)).to(real)
    whole = Term(b, reshape(b, packed, [shape[0], shape[1] // per])).to(DType.INT32)
    mask = (1 << dtype.bits) - 1
    shifts = np.arange(per, dtype=np.int32) * dtype.bits
    fields = Term(b, unsqueezed(b, whole.value, [2])).apply(ops.ShiftRightLogical, shifts.reshape(1, 1, per)) & mask
    return Term(b, reshape(b, fields.value, shape)).to(real)


def _computed_zeros(b: Builder, zero: Value | None, dtype: DType, shape: tuple[int, int], real: DType) -> Term:
    """Return zero points [n, blocks] as floats, unpacked if they are packed (rows fill whole bytes)."""
    rows, count = shape
    if zero is None:
        return Term(b, constant(np.full(shape, 1 << (dtype.bits - 1)).astype(real.numpy)))
    if zero.dtype is not DType.UINT8:
        return Term(b, reshape(b, zero, shape)).to(real)
    per = 8 // dtype.bits
    fields = _codes(b, zero, dtype, (rows, -(-count // per) * per), real)
    return Term(b, slice_axes(b, fields.value, {1: slice(0, count)}))


@lift_onnx("MatMulBnb4", since=(1,), domain=MICROSOFT)
def _matmul_of_bitsandbytes(b: Builder, node: Node) -> Value:
    """Return A @ W.T with W [n, k] of 4-bit floats (the first in the high bits) times the absmax of their block.

    The weights become float32. Source: ONNX Runtime, contrib_ops MatMulBnb4.
    """
    k, n, block, kind = (int(node.attributes[name]) for name in ("K", "N", "block_size", "quant_type"))
    packed, largest = node.operand(1), node.operand(2)
    if not packed.is_constant or not largest.is_constant:
        raise UnsupportedError("4-bit weights that are not constant")
    if kind not in _FOUR_BITS or not node.attr("transB", 1) or k * n % 2:
        raise UnsupportedError(f"quant_type {kind}, transB {node.attr('transB', 1)} and weights [{n}, {k}]")
    fields = packed.numpy().reshape(-1)
    codes = np.stack([fields >> 4, fields & 15], axis=1).reshape(-1)
    if block < 1:
        raise ValueError(f"block_size is {block}")
    scales = np.repeat(np.asarray(largest.numpy().reshape(-1), np.float32), min(block, k * n))[: k * n]
    weights = (np.asarray(_FOUR_BITS[kind], np.float32)[codes] * scales).reshape(n, k)
    a = node.operand(0)
    return contracted(b, a, constant(weights.astype(a.dtype.numpy)), a.rank - 1, 1)


_SIZES = (0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4)
_NORMAL_BELOW = (1, 0.6961928, 0.52507305, 0.3949175, 0.28444138, 0.18477343, 0.09105004)
_NORMAL_ABOVE = (0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1)
_FOUR_BITS = {0: (*_SIZES, *(-x for x in _SIZES)), 1: (*(-x for x in _NORMAL_BELOW), 0, *_NORMAL_ABOVE)}
"""The values of the 16 codes, by `quant_type`: FP4 and NF4 of bitsandbytes."""


def _zero_points(zero: Value | None, dtype: DType, shape: tuple[int, int]) -> Value:
    """Return a zero point per block; rows fill whole bytes. Source: ONNX Runtime, contrib_ops MatMulNBits."""
    rows, count = shape
    if zero is None:
        return constant(FilledData(1 << (dtype.bits - 1), dtype, shape))
    if zero.dtype is not DType.UINT8 or zero.data is None:
        raise UnsupportedError(f"zero points of {zero.dtype.value} that are not constant uint8")
    per = 8 // dtype.bits
    whole = FieldData(zero.data, dtype, (rows, -(-count // per) * per))
    if count % per == 0:
        return constant(whole)
    fields = whole.numpy()
    return constant(ArrayData(np.ascontiguousarray(fields[:, :count]), dtype))


@lift_onnx("GatherBlockQuantized", since=(1,), domain=MICROSOFT)
def _gather_blocks(b: Builder, node: Node) -> Value:
    """Gather rows of a table that is quantized in blocks, then dequantize them.

    A uint8 table has several elements per byte of its last axis; its default zero point is mid-range.
    """
    data, indices, scale, zero = node.operand(0), node.operand(1), node.operand(2), node.optional(3)
    rank, dtype, block = data.rank, _element_type(node), int(node.attr("block_size", 128))
    axis, along = (normalize_axis(node.attr(name, i), rank) for i, name in enumerate(("gather_axis", "quantize_axis")))
    if axis == along or axis == rank - 1 or (dtype.bits < 8 and not data.is_constant):
        raise UnsupportedError("gathering along the axis of the blocks or the last axis, or of a computed table")
    rows = nonnegative(b, indices, data.shape[axis], data)
    if rank == 2 and all(v is None or v.data is not None for v in (data, scale, zero)):
        return b(ops.Gather, _real_table(b, node, dtype, block), rows, axis=0)
    real = _picked(b, data, rows, axis, dtype)
    if zero is None:
        half = 1 << (dtype.bits - 1)
        real = real - float(half) if data.dtype is DType.UINT8 or dtype.is_signed else real
    else:
        zero = _picked(b, zero, rows, axis, dtype).value  # both have the same offset
    scale = b(ops.Gather, scale, rows, axis=axis)
    moved = along + indices.rank - 1 if along > axis else along
    return b(ops.DequantizeLinear, real.value, scale, zero, axis=moved, block_size=block)


def _real_table(b: Builder, node: Node, dtype: DType, block: int) -> Value:
    """Return the constant table [rows, columns] dequantized; passes gather rows before they dequantize them."""
    table, scale, zero = node.operand(0), node.operand(2), node.optional(3)
    rows, columns = table.size(0), table.size(1)
    integers, count = table, scale.size(1)
    if table.dtype is DType.UINT8 and table.data is not None:
        integers = constant(FieldData(table.data, dtype, (rows, columns * (8 // dtype.bits))))
        zero = _zero_points(zero, dtype, (rows, count))
    return b(ops.DequantizeLinear, integers, scale, zero, axis=1, block_size=block)


def _element_type(node: Node) -> DType:
    """Return the element type of the table."""
    data, bits = node.operand(0), int(node.attr("bits", 4))
    return data.dtype if data.dtype is not DType.UINT8 else DType(f"uint{bits}")


def _picked(b: Builder, table: Value, rows: Value, axis: int, dtype: DType) -> Term:
    """Gather rows of a table as floats; signed elements of fewer than 8 bits are offset by half of the range."""
    if dtype.bits == 8:
        return Term(b, b(ops.Gather, table, rows, axis=axis)).to(DType.FLOAT32)
    data = table.data
    assert data is not None
    packed = table if table.dtype is DType.UINT8 else constant(ByteData(data))
    return unpacked_rows(b, b(ops.Gather, packed, rows, axis=axis), dtype)


refuse_onnx(
    "MatMulFpQ4",
    why="an operand is packed for one kind of CPU, or is a sparse tensor",
    hint="export the model with MatMulNBits, or MatMul of a dense tensor",
    domain=MICROSOFT,
)
