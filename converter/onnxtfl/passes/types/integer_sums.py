"""Sums of int32 and int64 as products by ones, which wrap around; ONNX Runtime's ReduceSum adds them up in double, and
saturates.

::

    Reduce(%x: tensor<4x9xint32>, [1]) {kind = "sum"}     ->     DotGeneral(%x, ones: tensor<9xint32>)

Only where elements are not known to be so small that the sum is exact. Products of few elements become Mul ops. Sums
along dynamic axes, and other products, remain as they are, with an assumption in the report.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static, product
from onnxtfl.ir.facts import facts_of
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.patterns import Patterns

INTEGER_SUMS = Patterns()
_EXACT = {DType.INT32: 1 << 31, DType.INT64: 1 << 53}
"""ReduceSum is exact for smaller sums."""
_MOST = 1 << 16
"""The most ones that are stored."""
_MOST_FACTORS = 16


@INTEGER_SUMS.on(ops.Reduce)
def _product_by_ones(b: Builder, node: Node) -> Value | None:
    x, kind, axes = node.operand(0), node.attr("kind"), ops.reduced_axes(node)
    if kind not in ("sum", "prod") or x.dtype not in _EXACT or _is_exact(node):
        return None
    sizes = [x.shape[a] for a in axes] if axes else []
    if kind == "prod" and axes and is_static(sizes) and 0 < math.prod(sizes) <= _MOST_FACTORS:
        return reshape(b, _multiplied(b, x, axes), node.result.shape, x)
    if kind == "prod" or not axes or not is_static(sizes) or not 0 < math.prod(sizes) <= _MOST:
        name, bits = {"sum": "sum", "prod": "product"}[kind], _EXACT[x.dtype].bit_length() - 1
        assume(f"each {name} of {x.dtype.value} is below 2**{bits}: ONNX Runtime rounds and saturates", is_minor=True)
        return None
    if len(axes) == 1 and axes[0] >= x.rank - 2:
        return _along(b, x, axes[0], bool(node.attr("keepdims")))
    return reshape(b, _along_several(b, x, axes), node.result.shape, x)


def _multiplied(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    """The product along `axes`, which stay with size 1."""
    for axis in axes:
        parts = b.many(ops.Split, x, axis=axis, count=int(x.shape[axis]))
        x = functools.reduce(lambda lhs, rhs: b(ops.Mul, lhs, rhs), parts)
    return x


def _is_exact(node: Node) -> bool:
    """Whether the sum or product is known to be so small that ONNX Runtime does not round it."""
    found = facts_of(node.result)
    return found.sizes or found.magnitude < _EXACT[node.result.dtype]


def _along_several(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    """The sum along `axes`, which are removed: the last neighbors among them as one axis, then the others."""
    stop = max(axes) + 1
    start = next(a for a in range(stop - 1, -1, -1) if a - 1 not in axes)
    count, (lead, trailing) = math.prod(int(d) for d in x.shape[start:stop]), (x.shape[:start], x.shape[stop:])
    merged = reshape(b, x, (*lead, count, *([product(trailing)] if trailing else [])), x)
    part = reshape(b, _along(b, merged, start, keep=False), (*lead, *trailing), x)
    rest = [a for a in axes if a < start]
    return b(ops.Reduce, part, rest, kind="sum", keepdims=False) if rest else part


def _along(b: Builder, x: Value, axis: int, keep: bool) -> Value:
    """The sum along one of the last two axes: x times ones [n] or [n, 1], or ones [n] or [..., 1, n] times x."""
    count, lead = int(x.shape[axis]), tuple(range(axis))
    if axis == x.rank - 1:
        ones = np.ones((count, 1) if keep else count, x.dtype.numpy)
        contract = {"lhs_contracting_dimensions": (axis,), "rhs_contracting_dimensions": (0,)}
        return b(ops.DotGeneral, x, constant(ones, x.dtype), **contract)
    ones = np.ones((1,) * (axis + 1) + (count,) if keep else count, x.dtype.numpy)
    contract = {"lhs_contracting_dimensions": (ones.ndim - 1,), "rhs_contracting_dimensions": (axis,)}
    batch = {"lhs_batching_dimensions": lead, "rhs_batching_dimensions": lead} if keep else {}
    return b(ops.DotGeneral, constant(ones, x.dtype), x, **contract, **batch)
