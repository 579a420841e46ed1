"""Shape rules that many ops share: broadcasting, windows, unification of dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, Shape, ceildiv, fresh, is_open
from onnxtfl.ir.graph import Value
from onnxtfl.ir.types import TensorType


def broadcast_dim(a: Dim, b: Dim) -> Dim:
    """The dimension that `a` and `b` broadcast to; ValueError where they cannot."""
    if b in (a, 1):
        return a
    if a == 1:
        return b
    if isinstance(a, int) and isinstance(b, int):
        raise ValueError(f"dimensions {a} and {b} do not broadcast")
    return a if isinstance(a, int) else (b if isinstance(b, int) else a)


def broadcast_shapes(*shapes: Shape | None) -> Shape | None:
    """NumPy's broadcasting; None where a rank is unknown.

    Two different symbols are taken to be equal at run time (a 1 there would be rare), the first stands.
    """
    result: Shape = ()
    for shape in shapes:
        if shape is None:
            return None
        rank = max(len(result), len(shape))
        a, b = (1,) * (rank - len(result)) + result, (1,) * (rank - len(shape)) + shape
        result = tuple(broadcast_dim(x, y) for x, y in zip(a, b, strict=True))
    return result


def shape_of(value: Value) -> Shape | None:
    """The shape of a tensor value, None where the rank is unknown."""
    return value.tensor_type.shape


def normalize_axis(axis: int, rank: int) -> int:
    """`axis` counted from the front; ValueError outside [-rank, rank)."""
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is outside of rank {rank}")
    return axis % rank


def normalize_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """All `axes` counted from the front; ValueError for one that stands twice."""
    result = tuple(normalize_axis(int(a), rank) for a in axes)
    if len(set(result)) != len(result):
        raise ValueError(f"axes {tuple(axes)} name one twice")
    return result


def check_positions(indices: Value, sizes: Sequence[Dim]) -> None:
    """ValueError where a known index lies outside of its axis: the last axis of `indices` runs over `sizes`."""
    if indices.known is None or not indices.known.size:
        return
    for row in indices.known.reshape(-1, len(sizes)).tolist():
        for index, size in zip(row, sizes, strict=True):
            if isinstance(index, int) and isinstance(size, int) and not -size <= index < size:
                raise ValueError(f"the index {index} lies outside of an axis of size {size}")


def window_dim(size: Dim, window: int, stride: int, before: int, after: int, dilation: int, ceil: bool) -> Dim:
    """Positions of a dilated window over a padded axis (ONNX Conv and pooling, floor or ceil mode)."""
    span = (window - 1) * dilation + 1
    room = size + (before + after - span)
    count = (ceildiv(room, stride) if ceil else room // stride) + 1
    if ceil and isinstance(count, int) and isinstance(size, int) and (count - 1) * stride >= size + before:
        count -= 1  # the last window may not start in the padding behind the input
    return max(count, 0) if isinstance(count, int) else count


def known_dims(value: Value | None) -> list[Dim] | None:
    """The contents of an integer vector as dims, as far as they are known; None where nothing is."""
    if value is None or value.known is None:
        return None
    return [d if not hasattr(d, "__index__") else int(d) for d in value.known.reshape(-1).tolist()]


def dims_from(value: Value, count: int | None = None) -> Shape | None:
    """The shape that a vector of sizes gives: fresh symbols for unknown ones; None where even the count is open."""
    known = known_dims(value)
    if known is not None:
        return tuple(known)
    shape = value.tensor_type.shape
    if shape is not None and len(shape) == 1 and isinstance(shape[0], int):
        count = shape[0]
    return None if count is None else tuple(fresh() for _ in range(count))


def static_ints(value: Value | None) -> list[int] | None:
    """The contents of an integer constant; None where they are not all known."""
    known = known_dims(value)
    if known is None:
        if value is not None and value.is_constant and value.tensor_type.dtype.is_integer:
            return [int(x) for x in value.numpy().reshape(-1)]
        return None
    return [d for d in known if isinstance(d, int)] if all(isinstance(d, int) for d in known) else None


def same_type(type_: TensorType, shape: Shape | None) -> TensorType:
    """`type_` without quantization under another shape."""
    return TensorType(type_.dtype, shape)


def required_ints(vector: Value, what: str) -> list[int]:
    """The integers of a constant vector; ValueError (`what` have to be known) for others."""
    numbers = static_ints(vector)
    if numbers is None:
        raise ValueError(f"{what} have to be known before run time")
    return numbers


def objects(dims: Sequence[Dim]) -> Array:
    """A vector of dims, for following values."""
    result = np.empty(len(dims), object)
    result[:] = dims
    return result


def target_dims(value: Value) -> list[Dim] | None:
    """The sizes in a vector operand; fresh symbols for those known only at run time, None where even the count is."""
    dims = dims_from(value)
    return None if dims is None else [fresh() if is_open(d) else d for d in dims]


def entry_of(value: Value, index: int) -> Dim | None:
    """Entry `index` of a vector operand, None where it is only known at run time."""
    known = known_dims(value)
    if known is None or is_open(known[index]):
        return None
    return known[index]
