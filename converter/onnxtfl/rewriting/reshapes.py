"""Reshapes and transposes that rules need; constants stay lazy."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim, product
from onnxtfl.ir.graph import Value, constant
from onnxtfl.rewriting.sizes import reshape


def reshaped(b: Builder, x: Value, dims: Sequence[Dim], *sources: Value) -> Value:
    """`x` under the shape `dims`, whose open sizes are read off `x` and `sources` at run time (one is left as -1).

    UnsupportedError where they cannot be.
    """
    sizes = [d for d in dims if isinstance(d, int)]
    if x.data is not None and len(sizes) == len(dims):
        return constant(x.data.reshape(sizes))
    result = reshape(b, x, dims, *sources)
    if not result.is_constant and result is not x:
        result.type = result.tensor_type.with_shape(tuple(dims))  # inference may know less
    return result


def with_unit_axis(b: Builder, x: Value, axis: int) -> Value:
    """`x` with an axis of size 1 put in at `axis`."""
    return reshaped(b, x, (*x.shape[:axis], 1, *x.shape[axis:]))


def transposed(b: Builder, x: Value, permutation: Sequence[int]) -> Value:
    """`x` with permuted axes; the identity makes no node."""
    if tuple(permutation) == tuple(range(len(permutation))):
        return x
    if x.data is not None:
        return constant(x.data.transpose(permutation))
    return b(ops.Transpose, x, permutation=tuple(permutation))


def merged(b: Builder, x: Value, groups: Sequence[Sequence[int]]) -> Value:
    """`x` with its axes in the order of `groups`, each group as one axis (an empty one: a unit axis)."""
    ordered = transposed(b, x, [axis for group in groups for axis in group])
    return reshaped(b, ordered, [product(x.shape[axis] for axis in group) for group in groups])
