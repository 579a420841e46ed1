"""EMBEDDING_LOOKUP and EMBEDDING_LOOKUP_SPARSE.

TFLite        EMBEDDING_LOOKUP, EMBEDDING_LOOKUP_SPARSE
"""

from __future__ import annotations

import numpy as np

from onnxtfl.build.sizes import slice_axes
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array, ArrayData
from onnxtfl.ir.dims import is_static, known_size, product, size_or
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.reshape import (
    reshape,
    unsqueezed,
)
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_tfl, refuse_tfl
from onnxtfl.rewriting.stored_integers import integers_of


@lift_tfl("EMBEDDING_LOOKUP_SPARSE")
def _embedding_lookup_sparse(b: Builder, node: Node) -> Value:
    """Gather rows of a table and combine those with equal indices in all but the last axis of a sparse tensor.

    Source: LiteRT kernels/embedding_lookup_sparse.cc, for sorted indices, as in a SparseTensor.
    """
    ids, places, shape, weights, table = (node.operand(i) for i in range(5))
    outer = size_or(places.shape[1], 1) - 1
    sizes = static_ints(shape)
    if sizes is None or len(sizes) != outer + 1:
        raise UnsupportedError("a sparse lookup of unknown shape", code="E-SHAPE-001")
    sizes = sizes[:outer]
    bucket = (
        Term(
            b,
            b(
                ops.Reduce,
                b(ops.Mul, slice_axes(b, places, {1: slice(0, outer)}), _strides(sizes)),
                [1],
                kind="sum",
                keepdims=False,
            ),
        )
        if outer
        else Term(b, ids) * 0
    )
    count = constant(np.asarray(product(sizes), np.int32))
    factor = Term(b, reshape(b, weights, (*weights.shape, *[1] * (table.rank - 1))))
    rows = Term(b, b(ops.Gather, table, ids, axis=0)) * factor

    def summed(x: Term) -> Term:
        return x.apply(ops.SegmentReduce, bucket, count, kind="sum")

    total, combiner = summed(rows), node.attr("combiner", "SUM")
    if combiner != "SUM":
        weight = summed(factor) if combiner == "MEAN" else summed(factor * factor).sqrt()
        total = (summed(factor * 0.0 + 1.0) > 0.0).choose(total / weight, total)
    return reshape(b, total.value, (*sizes, *table.shape[1:]))


def _strides(sizes: list[int]) -> Array:
    """Return the strides of a flattened tensor."""
    return np.cumprod([1, *sizes[:0:-1]])[::-1].astype(np.int32)


@lift_tfl("EMBEDDING_LOOKUP")
def _embedding_lookup(b: Builder, node: Node) -> Value:
    """Return rows of a table; dequantized if the table is quantized and the result is not."""
    places, table = node.operand(0), node.operand(1)
    if (quantization := quantization_of(table)) is None or node.result.is_quantized or node.result.dtype.is_integer:
        return b(ops.Gather, table, places, axis=0)
    rows = Term(b, b(ops.Gather, _as_read(b, table, quantization), places, axis=0)).to(DType.FLOAT32)
    scales = constant(np.asarray(quantization.scales, np.float32))
    if quantization.per_tensor:
        return rows.apply(ops.Mul, scales).to(node.result.dtype).value
    count = table.shape[0]
    each = b(ops.Gather, reshape(b, scales, (count, len(quantization.scales) // known_size(count))), places, axis=0)
    parts = (*places.shape, each.shape[-1], product(table.shape[1:]) // each.shape[-1])
    real = Term(b, reshape(b, rows.value, parts, places)) * Term(b, unsqueezed(b, each, [each.rank]))
    return reshape(b, real.to(node.result.dtype).value, (*places.shape, *table.shape[1:]), places)


def _as_read(b: Builder, table: Value, quantization: Quantization) -> Value:
    """Return the integers of a table as EMBEDDING_LOOKUP reads them: no zero point, uint8 as int8.

    Rows of packed elements have to fill whole bytes: the kernel starts others too early.
    Source: LiteRT kernels/embedding_lookup.cc.
    """
    integers = integers_of(b, table)
    if quantization.dtype is DType.UINT8:
        return b(ops.BitcastConvert, integers, dtype=DType.INT8)
    packed = 8 // quantization.dtype.bits if quantization.dtype.bits < 8 else 1
    if not is_static(table.shape) or product(table.shape[1:]) % packed == 0:
        return integers
    rows, length = table.size(0), known_size(product(table.shape[1:]))
    if table.data is None:
        raise UnsupportedError(f"rows of {length} elements of {quantization.storage} that are not constant")
    firsts = np.arange(rows)[:, None] * length // packed * packed
    read = table.data.numpy().reshape(-1)[firsts + np.arange(length)].reshape(table.data.shape)
    return constant(ArrayData(read, quantization.dtype))


refuse_tfl(
    "CONCAT_EMBEDDINGS",
    why="no TFLite runtime has a kernel for it",
    hint="export the .tflite again with EMBEDDING_LOOKUP and CONCATENATION",
)
