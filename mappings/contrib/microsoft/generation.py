"""Ops of com.microsoft that generate text.

com.microsoft: NGramRepeatBlock. Refused, with a hint on what to convert instead: BeamSearch, WhisperBeamSearch,
GreedySearch, Sampling
"""

from __future__ import annotations

import numpy as np

from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.build.sizes import slice_axes
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.rewriting.registry import lift_onnx, refuse_onnx


@lift_onnx("NGramRepeatBlock", since=(1,), domain=MICROSOFT)
def _n_gram_repeat_block(b: Builder, node: Node) -> Value:
    """Scores [batch, words], -inf for each word that would repeat an n-gram of `ngram_size` ids of the same row.

    Source: ONNX Runtime, contrib_ops/cpu/bert/ngram_repeat_block.h.
    """
    ids, scores = node.operand(0), Term(b, node.operand(1))
    size = int(node.attr("ngram_size"))
    if size < 1:
        raise ValueError(f"ngram_size is {size}: at least 1 expected")
    padding = np.asarray([[0, 0], [size - 1, 0]])  # rows may be shorter than an n-gram
    ids = b(ops.Pad, ids, padding, b.scalar(-1, ids))
    banned = Term(b, slice_axes(b, ids, {1: slice(size - 1, None)}))
    updates = banned.to(scores.dtype) * 0.0 + float("-inf")
    for j in range(size - 1):  # n-1 ids before each position equal the last n-1 ids
        before = Term(b, slice_axes(b, ids, {1: slice(j, j - size + 1)}))
        last = Term(b, slice_axes(b, ids, {1: slice(j - size + 1, j - size + 2 or None)}))
        updates = before.equals(last).choose(updates, scores.constant(float("inf")))
    return b(ops.ScatterElements, scores.value, banned.value, updates.value, axis=1, kind="min")


refuse_onnx(
    *("BeamSearch", "WhisperBeamSearch", "GreedySearch", "Sampling"),
    why="it runs a decoder until the end of the text, and its search parameters and maximum length are run-time inputs",
    hint="convert the decoder and the encoder, which are its subgraphs, and run the search in your application",
    domain=MICROSOFT,
)
