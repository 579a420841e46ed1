"""Rows of constant tables with a scale for each block, which are gathered before they are dequantized.

::

    %t = DequantizeLinear(%q, %s, %z) {axis = 1, block_size = 32}
    %y = Gather(%t, %i)    ->    %y = DequantizeLinear(Gather(%q, %i), Gather(%s, %i), Gather(%z, %i))
                           ->    %y = Gather(%p, %i)        %p: int4, a scale for each block

The second form is that of products (:mod:`passes.quantize.blocks`), for targets with hybrid kernels: weights that
products read too are stored once.
"""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.block_weights import OffsetData
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import FilledData, TensorData
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.history import Remark
from onnxtfl.ir.matching import made_by
from onnxtfl.ir.packed import ByteData, FieldData, fields_per_byte, zero_offset
from onnxtfl.ir.reshape import reshape, unsqueezed
from onnxtfl.ir.types import DType
from onnxtfl.ir.unpacking import unpacked_rows
from onnxtfl.passes.quantize.blocks import Weights, blocks_of, scales_of, sum_of
from onnxtfl.rewriting.patterns import erase_dead
from onnxtfl.targets import Target


def gather_block_rows(graph: Graph, target: Target) -> None:
    """Gather rows of tables with scales of blocks as integers."""
    for node in list(graph.nodes):
        table = made_by(node.operand(0), ops.DequantizeLinear) if node.op is ops.Gather else None
        if table is None or node.attr("axis") or node.attr("batch_dims"):
            continue
        found = blocks_of(table.result, (1,), 0)
        if found is not None:
            b = Builder(graph, node, maker="block rows")
            made = _looked_up(b, node, found, target) or _dequantized(b, node, found)
            graph.replace(node, [made])
            erase_dead(graph, [table])


def _looked_up(b: Builder, node: Node, table: Weights, target: Target) -> Value | None:
    """The rows of constants of quantized types; None if no kernel reads them."""
    scales, rows = scales_of(table), node.operand(1)
    if not 0 < scales.largest < np.inf:
        return None
    factor = scales.factor(16 ** table.nibbles[-1])
    planes = table.planes(factor)
    if not _is_accepted(node, planes[0], target):
        return None
    if scales.are_rounded:
        node.remarks += (Remark("rounded", node.op.name, node.result.name or ""),)
    total = sum_of(b, [b(ops.Gather, plane, rows, axis=0) for plane in planes])
    if scales.has_offsets:
        terms = b(ops.Gather, constant(OffsetData(table.stored.dtype, table.scales, table.zeros, factor)), rows, axis=0)
        blocks = reshape(b, total, [*terms.shape, table.block], terms)
        total = reshape(b, b(ops.Add, blocks, unsqueezed(b, terms, [terms.rank])), total.shape, total)
    return total if factor == 1 else b(ops.Mul, total, b.scalar(1 / factor, total))


def _is_accepted(node: Node, plane: Value, target: Target) -> bool:
    vector = Value(node.operand(1).tensor_type.with_dtype(DType.INT32).with_shape((1,)))
    lookup = Node(ops.Gather, [plane, vector], {"axis": 0})
    lookup.add_result(node.result.tensor_type.with_shape((1, plane.shape[1])))
    accepted = target.accepted(lookup) is not None
    lookup.detach()
    return accepted


def _dequantized(b: Builder, node: Node, table: Weights) -> Value:
    """The rows dequantized by arithmetic at run time."""
    rows, zeros = node.operand(1), table.zeros
    real, zero = _integers(b, table.stored, rows), None
    if isinstance(zeros, FilledData):
        real = real - float(zeros.number) if zeros.number else real
    elif zeros is not None:
        zero = _integers(b, zeros, rows).value
    scale = b(ops.Gather, constant(table.scales), rows, axis=0)
    return b(ops.DequantizeLinear, real.value, scale, zero, axis=rows.rank, block_size=table.block)


def _integers(b: Builder, data: TensorData, rows: Value) -> Term:
    """Rows of a constant matrix of integers as floats; those of fewer than 8 bits stay packed if they fill bytes."""
    dtype = data.dtype
    if dtype.bits < 8 and data.shape[1] % fields_per_byte(dtype) == 0:
        packed: TensorData = ByteData(data)
        if isinstance(data, FieldData) and not dtype.is_signed:
            packed = data.base.reshape(packed.shape)
        fields = unpacked_rows(b, b(ops.Gather, constant(packed), rows, axis=0), dtype)
        return fields - float(zero_offset(dtype)) if dtype.is_signed else fields
    if dtype.bits < 8:
        data = data.cast(DType.INT8 if dtype.is_signed else DType.UINT8)
    return Term(b, b(ops.Gather, constant(data), rows, axis=0)).to(DType.FLOAT32)
