"""Reshapes that rules need: axes merged, split off, added or dropped, with sizes that may be known at run time only."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim, product
from onnxtfl.ir.graph import Value, constant


def reshaped(b: Builder, x: Value, dims: Sequence[Dim]) -> Value:
    """`x` under the shape `dims`; constants stay lazy.

    One size may be open (it becomes -1); further open ones have to be products of neighbouring sizes of `x`, which are
    then read at run time. UnsupportedError where they are not.
    """
    if x.tensor_type.shape == tuple(dims):
        return x
    if x.data is not None and all(isinstance(d, int) for d in dims):
        return constant(x.data.reshape([d for d in dims if isinstance(d, int)]))
    open_axes = [i for i, d in enumerate(dims) if not isinstance(d, int)]
    if len(open_axes) <= 1:
        return _typed(b(ops.Reshape, x, [d if isinstance(d, int) else -1 for d in dims]), dims)
    runs = {i: _run(x.shape, dims[i]) for i in open_axes}
    free = next((i for i in open_axes if runs[i] is None), open_axes[-1])
    parts = [_size(b, x, dims[i], None if i == free else runs.get(i), i == free) for i in range(len(dims))]
    return _typed(b(ops.Reshape, x, b(ops.Concatenate, *parts, axis=0)), dims)


def _run(shape: Sequence[Dim], wanted: Dim) -> tuple[int, int] | None:
    """The shortest run of axes, [start, stop), whose sizes multiply to `wanted`."""
    for length in range(1, len(shape) + 1):
        for start in range(len(shape) - length + 1):
            if product(shape[start : start + length]) == wanted:
                return start, start + length
    return None


def _size(b: Builder, x: Value, dim: Dim, run: tuple[int, int] | None, free: bool) -> Value:
    if isinstance(dim, int) or free:
        return _vector(b, [dim if isinstance(dim, int) else -1])
    if run is None:
        raise UnsupportedError("more than one size of a reshape is not known", type_=x.type, hint="give --input-shape")
    return run_time_size(b, x, range(*run))


def run_time_size(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    """The product of the sizes of `axes` as an int64 vector of one element, computed at run time where it is open."""
    shape = b(ops.Shape, x)
    result = b(ops.Gather, shape, [axes[0]], axis=0)
    for axis in axes[1:]:
        result = b(ops.Mul, result, b(ops.Gather, shape, [axis], axis=0))
    return result


def _vector(b: Builder, numbers: Sequence[int]) -> Value:
    value = b.value(numbers)
    assert value is not None
    return value


def _typed(value: Value, dims: Sequence[Dim]) -> Value:
    """The sizes as they are known here, where inference found fresh symbols for them."""
    if value.type is not None and not value.is_constant:
        value.type = value.tensor_type.with_shape(tuple(dims))
    return value


def with_unit_axis(b: Builder, x: Value, axis: int) -> Value:
    """`x` with an axis of size 1 put in at `axis`."""
    return reshaped(b, x, (*x.shape[:axis], 1, *x.shape[axis:]))


def transposed(b: Builder, x: Value, permutation: Sequence[int]) -> Value:
    """`x` with permuted axes; constants stay lazy, and the identity makes no node."""
    if tuple(permutation) == tuple(range(len(permutation))):
        return x
    if x.data is not None:
        return constant(x.data.transpose(permutation))
    return b(ops.Transpose, x, permutation=tuple(permutation))


def merged(b: Builder, x: Value, groups: Sequence[Sequence[int]]) -> Value:
    """`x` with its axes in the order of `groups`, each group as one axis (an empty one: a unit axis)."""
    ordered = transposed(b, x, [axis for group in groups for axis in group])
    return reshaped(b, ordered, [product(x.shape[axis] for axis in group) for group in groups])
