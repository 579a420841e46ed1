"""SVDF, whose memory of past steps is a state: an operand, and an additional result for its new value."""

from __future__ import annotations

import math

import numpy as np
from onnxtfl.mappings.recurrent.unidirectional import hybrid_rows

from onnxtfl.build.rows import apply_activation
from onnxtfl.build.sizes import slice_axes
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.reshape import reshape_inferred, unsqueezed
from onnxtfl.ir.row_quantization import on_int8_grid
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.declared import as_declared
from onnxtfl.rewriting.registry import lift_tfl
from onnxtfl.rewriting.stored_integers import integers_of


@lift_tfl("SVDF")
def _svdf(b: Builder, node: Node) -> list[Value]:
    """Multiply the input by `feature_weights` [F, I] and append it to a memory of M steps per filter.

    The output [N, F / rank] is the memory times `time_weights` [F, M], summed over the filters of a unit. The state
    [N, F * M] is the memory.

    Source: kernels/svdf.cc, internal/reference/svdf.h.
    """
    x, features, times, state = (node.operand(i) for i in (0, 1, 2, 4))
    if rows := hybrid_rows(node, x, features):
        x = on_int8_grid(b, x, [1], asymmetric=rows == "asymmetric")
    filters, steps = times.shape
    product = b(ops.DotGeneral, x, features, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(1,))
    newest = as_declared(b, unsqueezed(b, product, [2]), state.type)
    memory = reshape_inferred(b, state, [-1, filters, steps])
    older = slice_axes(b, memory, {2: slice(1, None)})
    memory = b(ops.Concatenate, older, newest, axis=2)
    if state.is_quantized:  # the integer kernel ignores the activation
        output = _integer_units(b, node, memory) if _wraps(node) else _units(b, node, memory, times, node.optional(3))
    else:
        output = apply_activation(b, _units(b, node, memory, times, node.optional(3)), node, smooth=True)
    return [output, reshape_inferred(b, memory, [-1, filters * steps])]


def _units(b: Builder, node: Node, memory: Value, times: Value, bias: Value | None) -> Value:
    """The units of SVDF: memory [N, F, M] * times [F, M], summed over the steps and the filters of a unit, + bias."""
    filters, rank = times.shape[0], node.attributes.get("rank", 1)
    by_filter = Term(b, memory).apply(ops.Mul, times).reduce("sum", [2], keepdims=False).value
    output = Term(b, reshape_inferred(b, by_filter, [-1, filters // rank, rank])).reduce("sum", [2], keepdims=False)
    return (output if bias is None else output.apply(ops.Add, bias)).value


def _wraps(node: Node) -> bool:
    """Whether the sums of the integer SVDF may leave int32, in which the kernel computes them."""
    times, bias, rank = node.operand(2), node.optional(3), node.attributes.get("rank", 1)
    if times.data is None or (bias is not None and bias.data is None):
        return True
    sums = np.abs(times.stored().astype(np.int64)).sum(axis=1).reshape(-1, rank).sum(axis=1) * (1 << 15)
    most = sums if bias is None else sums + np.abs(bias.stored().astype(np.int64))
    return bool((most >= 1 << 31).any())


def _integer_units(b: Builder, node: Node, memory: Value) -> Value:
    """The units from sums of stored integers, which wrap around at 32 bits."""
    times, bias = node.operand(2), node.optional(3)
    memory_32, times_32 = (Term(b, integers_of(b, v)).to(DType.INT32).value for v in (memory, times))
    sums = _units(b, node, memory_32, times_32, None if bias is None else integers_of(b, bias))
    found = [q.scales[0] for v in (memory, times) if (q := quantization_of(v)) is not None]
    return (Term(b, sums).to(DType.FLOAT32) * math.prod(found)).value
