"""The sum of word, position and segment embeddings, fused with layer normalization by ONNX Runtime's optimizer.

com.microsoft: EmbedLayerNormalization, QEmbedLayerNormalization
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.build.qlinear import MICROSOFT, Quantized, dequantized
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.reshape import dim_vector
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_onnx


@lift_onnx("EmbedLayerNormalization", since=(1,), domain=MICROSOFT)
def _embedding(b: Builder, node: Node) -> list[Value]:
    """The normalized sum of the embeddings, the number of unmasked words of each row, and the sum.

    Source: ONNX Runtime, contrib_ops EmbedLayerNormalization.
    """
    tables = [node.optional(i) for i in range(2, 7)]
    return _normalized(b, node, tables, node.optional(7), node.optional(8))


@lift_onnx("QEmbedLayerNormalization", since=(1,), domain=MICROSOFT)
def _quantized_embedding(b: Builder, node: Node) -> list[Value]:
    """EmbedLayerNormalization with quantized tables, each with a scale and zero point.

    Source: ONNX Runtime, contrib_ops QEmbedLayerNormalization.
    """
    tables = [None if node.optional(2 + i) is None else _dequantized(b, node, i) for i in range(5)]
    return _normalized(b, node, tables, node.optional(7), None)


def _dequantized(b: Builder, node: Node, table: int) -> Value:
    """The dequantized table 0 to 4: words, positions, segments, gamma, beta."""
    return dequantized(b, node, Quantized(2 + table, 8 + table, 13 + table))


def _normalized(
    b: Builder, node: Node, tables: Sequence[Value | None], mask: Value | None, position_ids: Value | None
) -> list[Value]:
    """The results of both ops; ids, segments and `mask` are [batch, words], `position_ids` [1 or batch, words]."""
    ids, segments = node.operand(0), node.optional(1)
    words, positions, segment_table, gamma, beta = tables
    if words is None or positions is None:
        raise ValueError("the table of word or of position embeddings is missing")
    total = Term(b, b(ops.Gather, words, ids, axis=0)) + Term(b, _position_rows(b, ids, positions, position_ids))
    if segments is not None and segment_table is not None:
        total = total + Term(b, b(ops.Gather, segment_table, segments, axis=0))
    result, _, _ = ops.standardized(total, [2], float(node.attr("epsilon", 1e-12)))
    result = result if gamma is None else result.apply(ops.Mul, gamma)
    result = result if beta is None else result.apply(ops.Add, beta)
    unmasked = Term(b, mask).to(DType.INT32) if mask is not None else Term(b, ids).to(DType.INT32) * 0
    count = b(ops.Reduce, unmasked.value, [1], kind="sum")
    return [result.value, count, total.value][: len(node.results)]


def _position_rows(b: Builder, ids: Value, positions: Value, position_ids: Value | None) -> Value:
    """The position embeddings at `position_ids`; without them, those of the first positions."""
    if position_ids is not None:
        return b(ops.Gather, positions, position_ids, axis=0)
    limits = dim_vector(b, [ids.shape[1], positions.shape[1]], ids, positions)
    return b(ops.Slice, positions, [0, 0], limits, [1, 1])
