"""The indices of a MaxPool: positions in the flattened operand, as ONNX counts them."""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.build.sizes import range_below
from onnxtfl.build.windows import realize_window
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.conversions import convert_quantization
from onnxtfl.ir.dims import known_sizes, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.numeric import lowest
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.reshape import dim_value, iota, reshape, stacked_along
from onnxtfl.ir.types import DType


def numbered(b: Builder, x: Value) -> Value:
    """Return a tensor like `x` with the position of each element in the flattened `x`, as int32."""
    count = Term(b, b(ops.Shape, x, dtype=DType.INT32)).reduce("prod", [0])
    return reshape(b, iota(b, count.value), x.shape, x)


def pool_with_indices(b: Builder, node: Node) -> list[Value]:
    """Concatenate the taps; return their maximum and its (first) position in the flattened operand.

    The position is the sum over the axes of (window start + tap offset) * axis stride. No element equals the padding,
    which has no position.
    """
    x, dims, window = node.operand(0), node.attr("dims"), ops.pool_window(attributes_of(node))
    x = _above_padding(b, x) if any(node.attr("padding")) else x
    found, counts = realize_window(b, x, dims, window), list(x.shape)
    for axis, count in zip(dims, window.counts([x.shape[d] for d in dims]), strict=True):
        counts[axis] = count
    check_elements(math.prod(known_sizes(counts)), "the indices of the windows")
    taps = list(ops.window_taps(b, found.operand(b, x, float(lowest(x.dtype.numpy))), dims, window))
    stack = stacked_along(b, taps, x.rank)
    best = b(ops.Reduce, stack, [x.rank], kind="max", keepdims=False)
    which = b(ops.ArgMax, stack, axis=x.rank, keepdims=False)
    assert found.amounts is not None
    steps = [Term(b, dim_value(b, product(x.shape[axis + 1 :]), x)) for axis in range(x.rank)]
    lines = [Term(b, range_below(b, count, x)) for count in counts]
    places = np.asarray(list(window.taps())) * window.dilations
    offsets = Term(b, constant(np.zeros(len(taps), np.int64)))
    for i, axis in enumerate(dims):
        lines[axis] = lines[axis] * window.strides[i] - Term(b, b(ops.Gather, found.amounts.before.value, [i], axis=0))
        offsets = offsets + Term(b, constant(places[:, i])) * steps[axis]
    index = Term(b, b(ops.Gather, offsets.value, which, axis=0))
    for axis, (line, step) in enumerate(zip(lines, steps, strict=True)):
        index = index + (line * step).along(axis, x.rank)
    return [_like(b, best, node.operand(0)), index.value]


def _above_padding(b: Builder, x: Value) -> Value:
    """`x` in a type whose least value is no element: small integers as int32, quantized values as real ones."""
    if x.is_quantized:
        return convert_quantization(b, x, None)
    return b(ops.Convert, x, dtype=DType.INT32) if x.dtype.is_integer and x.dtype.bits < 32 else x


def _like(b: Builder, value: Value, x: Value) -> Value:
    """The value in the type and quantization of `x`."""
    return convert_quantization(b, Term(b, value).to(x.dtype).value, quantization_of(x))
