"""Ops that return their operand: Identity, Dropout at inference, and copies."""

from __future__ import annotations

import numpy as np

from onnxtfl.build.operands import random_uniform
from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.build.rows import row
from onnxtfl.build.sizes import clamp_to_int32
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import fresh_symbol, open_axes, size_or
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import splat_value
from onnxtfl.ir.types import DType, TensorType, rank_of
from onnxtfl.rewriting.registry import Computed, Form, append_operand, lift_onnx, lower_tfl, upgrade


@lift_onnx("SampleOp", since=(1,), domain=MICROSOFT)
@lift_onnx("Identity", since=(1, 13, 14, 16, 19, 21, 23, 24, 25))
def _identity(b: Builder, node: Node) -> Value:
    return node.operand(0)


@upgrade("Dropout", since=(1, 6))
def _dropout_with_test_mode(b: Builder, node: Node) -> None:
    if not node.attributes.pop("is_test", 0) and node.attributes.get("ratio", 0.5) > 0:
        raise UnsupportedError("drops elements at random (training mode)", hint="export the model for inference")


@upgrade("Dropout", since=(12, 13, 22))
def _dropout_of_operands(b: Builder, node: Node) -> None:
    """Dropout-12: all elements are kept unless the training mode is on and the ratio is not 0."""
    while len(node.operands) < 3:
        append_operand(node, None)
    training, ratio = node.operands[2], node.operands[1]
    if training is None or splat_value(training) == 0 or splat_value(ratio) == 0:
        node.set_operand(2, None)


@lift_onnx("Dropout", since=(7, 10))
def _dropout(b: Builder, node: Node) -> list[Value]:
    """Return the operand and a mask: bool since version 10, before that of the operand's dtype.

    The mask is 0 in ONNX Runtime's kernel for versions 7 and 10, and True (kept) in later ones.
    """
    x, training = node.operand(0), node.optional(2)
    if training is None:
        if len(node.results) == 1:
            return [x]
        kind = x.dtype if node.op.version < 10 else DType.BOOL
        kept = int(node.op.version not in (7, 10))
        return [x, b(ops.BroadcastTo, b.scalar(kept, kind), b(ops.Shape, x))]
    return _dropped(b, node, Term(b, x), training)


def _dropped(b: Builder, node: Node, x: Term, training: Value) -> list[Value]:
    """Return training-mode Dropout: kept elements are scaled by 1 / (1 - ratio)."""
    ratio = Term(b, node.operand(1)).to(x.dtype) if node.optional(1) is not None else x.constant(0.5)
    off = Term(b, training).apply(ops.Not)
    drawn = random_uniform(b, x.value, node.attributes.get("seed"))
    mask = (drawn >= ratio) | off
    return [off.choose(x, mask.choose(x / (1.0 - ratio), 0.0)).value, mask.value]


row(ops.Copy, onnx="Identity", lifts=False)


@lower_tfl(ops.Copy)
def _copy_by_reshape(node: Node) -> Form | None:
    """Copy by a reshape to the same shape, unless a dynamic size is next to a size of 0 (-1 would be ambiguous)."""
    shape = node.result.tensor_type.shape
    if shape is None or (is_open := len(open_axes(shape))) > 1 or (is_open and 0 in shape):
        return None
    sizes = clamp_to_int32([size_or(d, -1) for d in shape])
    return Form("RESHAPE", (node.operand(0), sizes), {"new_shape": tuple(sizes.tolist())})


@lower_tfl(ops.Copy, rank=1)
def _copy_by_own_shape(node: Node) -> Form | None:
    """Copy uint64, for which SLICE has no kernel, and tensors of unknown rank by a reshape to the computed shape."""
    x, rank = node.operand(0), rank_of(node.result.type)
    if x.dtype is not DType.UINT64 and rank is not None:
        return None
    type_ = TensorType(DType.INT32, (fresh_symbol() if rank is None else rank,))
    return Form("RESHAPE", (x, Computed(type_, lambda b: b(ops.Shape, x, dtype=DType.INT32))))


@lower_tfl(ops.Copy)
def _copy_by_slice(node: Node) -> Form | None:
    """Copy a tensor with several dynamic sizes by a slice of all elements."""
    rank = rank_of(node.result.type)
    if rank is None:
        return None
    return Form("SLICE", (node.operand(0), np.zeros(rank, np.int32), np.full(rank, -1, np.int32)))


@lower_tfl(ops.Copy)
def _copy_of_complex_constant(node: Node) -> Form | None:
    """Read the parts of constant complex numbers, which no kernel that moves elements has, as bits of pairs."""
    x = node.operand(0)
    if not x.is_constant or x.dtype is not DType.COMPLEX64:
        return None
    return Form("BITCAST", (x.numpy().view(np.float32).reshape(*x.shape, 2),))
