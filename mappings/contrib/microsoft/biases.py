"""Bias additions fused with the op that follows, as ONNX Runtime's optimizer writes them for diffusion models and
transformers.

com.microsoft: BiasAdd, BiasGelu, BiasSplitGelu, BiasDropout, BiasSoftmax
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
    """left * Gelu(right), where left and right are the halves of x + bias along the last axis."""
    left, right = x.b.many(ops.Split, (x + bias).value, axis=x.rank - 1, count=2)
    return Term(x.b, left) * Term(x.b, right).apply(ops.Gelu)


@lift_onnx("BiasSoftmax", since=(1,), domain=MICROSOFT)
def _bias_softmax(b: Builder, node: Node) -> Value:
    """Softmax of data + bias over all axes from `axis` on, as one flattened axis.

    The bias is broadcast as by Add: with is_inner_broadcast = 1, the fusion of ONNX Runtime that writes the op reshapes
    it to the rank of the data, with sizes of 1. Source: the schema, and this fusion.
    """
    x = node.operand(0)
    axis = normalize_axis(node.attr("axis", 1), x.rank)
    total = b(ops.Add, x, node.operand(1))
    flat = reshape(b, total, (*x.shape[:axis], product(x.shape[axis:])), x)
    return reshape(b, b(ops.Softmax, flat, axis=axis), x.shape, x)


@lift_onnx("BiasDropout", since=(1,), domain=MICROSOFT)
def _bias_dropout(b: Builder, node: Node) -> list[Value]:
    """data + bias + residual, and a mask of true: inference, without dropout."""
    training = node.optional(4)
    if training is not None and (not training.is_constant or training.numpy().any()):
        raise UnsupportedError(
            "BiasDropout with training_mode that is true or not constant is not supported",
            hint="export the model for inference",
        )
    total = Term(b, node.operand(0)).apply(ops.Add, node.operand(1))
    total = total if node.optional(2) is None else total.apply(ops.Add, node.optional(2))
    mask = broadcast(b, constant(np.ones((), np.bool_)), total.value.shape, total.value)
    return [total.value, mask][: len(node.results)]


lift_onnx("BiasGelu", since=(1,), domain=MICROSOFT)(on_terms(lambda x, bias: (x + bias).apply(ops.Gelu)))
