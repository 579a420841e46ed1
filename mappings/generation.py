"""Ops of com.microsoft that generate text, or serve many requests at once: refused, with what to convert instead.

com.microsoft: BeamSearch, WhisperBeamSearch, GreedySearch, Sampling; SparseAttention, PagedAttention,
SparsePagedAttention, VarlenCausalConvWithState; MatMulFpQ4, SparseToDenseMatMul
"""

from __future__ import annotations

from onnxtfl.rules import *

refuse_onnx(
    *("BeamSearch", "WhisperBeamSearch", "GreedySearch", "Sampling"),
    why="it runs a decoder until a text ends, with settings and a length that are inputs",
    hint="convert the decoder and the encoder, which are its subgraphs, and search outside of the model",
    domain=MICROSOFT,
)
refuse_onnx(
    *("PagedAttention", "SparsePagedAttention", "VarlenCausalConvWithState"),
    why="it works on the tokens of many requests at once, whose caches are in pages",
    hint="export the model for one request, with GroupQueryAttention or CausalConvWithState",
    domain=MICROSOFT,
)
refuse_onnx(
    "SparseAttention",
    why="it changes its operands, the buffers of past keys and values, in place",
    hint="export the model with GroupQueryAttention",
    domain=MICROSOFT,
)
refuse_onnx(
    *("MatMulFpQ4", "SparseToDenseMatMul"),
    why="an operand is packed for one machine, or a sparse tensor",
    hint="export the model with MatMulNBits, or MatMul of a dense tensor",
    domain=MICROSOFT,
)
