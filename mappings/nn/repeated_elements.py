"""A Resize that repeats elements, as concatenations, which XNNPACK computes: it has no RESIZE_NEAREST_NEIGHBOR.

::

    Resize(%x: [n,h,w,c], factors 2, 3)    ->    %a = Concatenate(%x, %x, %x)                           [n,h,w,3c]
                                                 %b = Reshape(%a)                                       [n,h,3wc]
                                                 Reshape(Concatenate(%b, %b))                           [n,2h,3w,c]

In one thread that takes as long for 96 features, and half as long for 32 (1 x 40 x 40: 24 us, the kernel 78 us); with
several threads it takes less, since only XNNPACK's kernels use them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static, product
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.resampling import Sampling
from onnxtfl.ir.reshape import reshape
from onnxtfl.rewriting.registry import decompose_late

_FEW = (4, 3, 2, 5)
"""How many tensors are concatenated at once."""


def repeats_of(node: Node) -> Sequence[int] | None:
    """How often a Resize repeats each element along its axes; None if it does anything else, or sizes are unknown."""
    x, y, scales, sampling = node.operand(0), node.result, node.optional(2), Sampling.of(attributes_of(node))
    is_known = _is_known(x) and _is_known(y) and (scales is None or scales.is_constant) and 0 not in node.attr("dims")
    if sampling.mode != "nearest" or node.optional(3) is not None or not is_known or 0 in x.shape:
        return None
    counts = [y.size(axis) // x.size(axis) for axis in node.attr("dims")]
    factors = counts if scales is None else scales.numpy().tolist()
    for axis, count, factor in zip(node.attr("dims"), counts, factors, strict=True):
        where = sampling.coordinates(x.size(axis), y.size(axis), float(factor))
        wanted = np.repeat(np.arange(x.size(axis)), count)
        if not np.array_equal(sampling.nearest(where, x.size(axis)), wanted):
            return None
    return counts


def _is_known(value: Value) -> bool:
    """Whether all sizes but that of the batch are known."""
    shape = value.tensor_type.shape
    return bool(shape) and is_static((shape or ())[1:])


@decompose_late(ops.Resize, "xnnpack", when=lambda node: repeats_of(node) is not None)
def _repeated_by_concatenation(b: Builder, node: Node) -> Value | None:
    """Repeat along the last axis first, where fewer elements are copied piece by piece."""
    x, repeats = node.operand(0), dict(zip(node.attr("dims"), repeats_of(node) or (), strict=True))
    for axis in sorted(repeats, reverse=True):
        counts = _factors(repeats[axis])
        if counts is None:
            return None
        shape, rows = list(x.shape), reshape(b, x, [*x.shape[: axis + 1], product(x.shape[axis + 1 :])])
        for count in counts:
            rows = b(ops.Concatenate, *[rows] * count, axis=axis + 1)
        shape[axis] *= repeats[axis]
        x = reshape(b, rows, shape)
    return x


def _factors(count: int) -> Sequence[int] | None:
    """`count` as a product of few; None if it is not one."""
    found = list[int]()
    for factor in _FEW:
        while count % factor == 0:
            found.append(factor)
            count //= factor
    return found if count == 1 else None
