"""QAttention, ONNX Runtime's attention on quantized activations and weights, from products and Softmax.

ONNX's own Attention is defined by a function.
"""

from __future__ import annotations

import numpy as np

from onnxtfl.rules import *


@lift_onnx("QAttention", since=(1,), domain=MICROSOFT)
def _quantized_attention(b: Builder, node: Node) -> Value:
    """softmax(Q @ K.T * scale + mask) @ V for each head; Q, K and V are columns of x @ weights + bias.

    x [b, s, n], weights [n, 3 * h]. Source: ONNX Runtime, contrib_ops/cpu/quantization/attention_quant.cc.
    """
    if node.optional(8) is not None or node.attr("do_rotary", 0) or len(node.results) > 1:
        raise UnsupportedError("past keys and values, or rotary positions, in QAttention")
    x, w = (dequantized(b, node, o) for o in (Quantized(0, 3, 6), Quantized(1, 4, 7, -1)))
    columns = _product(b, x, w, [], 2, 0).apply(ops.Add, node.optional(2))
    parts = b.many(ops.Split, columns.value, None, axis=2, count=3)
    heads = int(node.attributes["num_heads"])
    batch, size, hidden = parts[0].shape
    if not isinstance(hidden, int):
        raise UnsupportedError("weights of unknown size", type_=w.type, code="E-SHAPE-001")
    shape = [batch, size, heads, hidden // heads]
    q, k, v = (transposed(b, reshape(b, part, shape, x), (0, 2, 1, 3)) for part in parts)
    scale = float(node.attr("scale", 0.0)) or (hidden // heads) ** -0.5
    scores = _masked(b, node, _product(b, q, k, [0, 1], 3, 3) * scale)
    weighted = _product(b, b(ops.Softmax, scores.value, axis=3), v, [0, 1], 3, 2)
    return reshape(b, transposed(b, weighted.value, (0, 2, 1, 3)), [batch, size, hidden], x)


def _product(b: Builder, lhs: Value, rhs: Value, batch: list[int], lhs_axis: int, rhs_axis: int) -> Term:
    """Sum of products over one axis of each operand."""
    return Term(
        b,
        b(
            ops.DotGeneral,
            lhs,
            rhs,
            lhs_batching_dimensions=batch,
            rhs_batching_dimensions=batch,
            lhs_contracting_dimensions=[lhs_axis],
            rhs_contracting_dimensions=[rhs_axis],
        ),
    )


def _masked(b: Builder, node: Node, scores: Term) -> Term:
    """Scores [b, heads, s, s] plus a large negative number where the mask, or the order of positions, says so.

    The mask is 0 for such keys [b, s] or [b, s, s], or the number of keys [b].
    """
    low, mask, size = float(node.attr("mask_filter_value", -10000.0)), node.optional(5), scores.value.shape[2]
    if mask is not None:
        if mask.rank == 1:
            if mask.shape != (scores.value.shape[0],) or not isinstance(size, int):
                raise UnsupportedError("this form of mask_index", type_=mask.type)
            check_elements(size, "the positions of the keys")
            kept = Term(b, unsqueezed(b, mask, [1])) > Term(b, constant(np.arange(size, dtype=mask.dtype.numpy)))
        else:
            kept = Term(b, mask).differs(0)
        axes = [1, 2] if mask.rank < 3 else [1]
        added = (Term(b, unsqueezed(b, kept.to(DType.FLOAT32).value, axes)) - 1.0) * -low
        scores = scores + added
    if not node.attr("unidirectional", 0):
        return scores
    if not isinstance(size, int):
        raise UnsupportedError("unidirectional attention of unknown length", code="E-SHAPE-001")
    check_elements(size * size, "the mask of later positions")
    causal = np.where(np.tri(size, dtype=bool), np.float32(0), np.float32(low))
    return scores + Term(b, constant(causal.astype(np.float32)))
