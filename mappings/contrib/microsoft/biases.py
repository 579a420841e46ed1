"""Sums with a bias that optimizers fuse with what comes after, as diffusion and transformer models have them.

com.microsoft: BiasAdd, BiasSplitGelu, BiasDropout, BiasSoftmax
"""

from __future__ import annotations

import numpy as np

from onnxtfl.build.operands import on_terms
from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import broadcast, reshape
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.rewriting.registry import lift_onnx


@lift_onnx("BiasAdd", since=(1,), domain=MICROSOFT)
@on_terms
def _bias_add(x: Term, bias: Term, skip: Term) -> Term:
    """x + bias + skip."""
    return x + bias + skip


@lift_onnx("BiasSplitGelu", since=(1,), domain=MICROSOFT)
@on_terms
def _bias_split_gelu(x: Term, bias: Term) -> Term:
    """The first half of x + bias along the last axis, times Gelu of the second."""
    left, right = x.b.many(ops.Split, (x + bias).value, None, axis=x.rank - 1, count=2)
    return Term(x.b, left) * Term(x.b, right).apply(ops.Gelu)


@lift_onnx("BiasSoftmax", since=(1,), domain=MICROSOFT)
def _bias_softmax(b: Builder, node: Node) -> Value:
    """Softmax of data + bias over all axes from `axis` on; the bias has no axes for either inner or outer axes before
    it.

    Source: the schema, and the fusion of ONNX Runtime that writes the op: with is_inner_broadcast, the bias has the
    data's rank, with ones; without, it is broadcast as by Add.
    """
    x = node.operand(0)
    axis = normalize_axis(node.attr("axis", 1), x.rank)
    total = b(ops.Add, x, node.operand(1))
    flat = reshape(b, total, (*x.shape[:axis], product(x.shape[axis:])), x)
    return reshape(b, b(ops.Softmax, flat, axis=axis), x.shape, x)


@lift_onnx("BiasDropout", since=(1,), domain=MICROSOFT)
def _bias_dropout(b: Builder, node: Node) -> list[Value]:
    """data + bias + residual, nothing dropped; the mask is true."""
    training = node.optional(4)
    if training is not None and (not training.is_constant or training.numpy().any()):
        raise UnsupportedError("training_mode", hint="export the model for inference")
    total = Term(b, node.operand(0)).apply(ops.Add, node.operand(1))
    total = total if node.optional(2) is None else total.apply(ops.Add, node.optional(2))
    kept = broadcast(b, constant(np.ones((), np.bool_)), total.value.shape, total.value)
    return [total.value, kept][: len(node.results)]
