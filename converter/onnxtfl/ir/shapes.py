"""Shape rules that many ops share: broadcasting, windows, unification of dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.ir.budget import MOST_LISTED
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import (
    Dim,
    Shape,
    broadcast_dim,
    differ,
    exceeds,
    fresh_symbol,
    is_open,
    is_static,
    known_of,
    known_sizes,
)
from onnxtfl.ir.graph import Value
from onnxtfl.ir.types import MOST_AXES


def broadcast_shapes(*shapes: Shape | None) -> Shape | None:
    """The broadcast shape under NumPy's rules; None if a rank is unknown."""
    result: Shape = ()
    for shape in shapes:
        if shape is None:
            return None
        rank = max(len(result), len(shape))
        a, b = (1,) * (rank - len(result)) + result, (1,) * (rank - len(shape)) + shape
        result = tuple(broadcast_dim(x, y) for x, y in zip(a, b, strict=True))
    return result


def check_agree(a: Sequence[Dim], b: Sequence[Dim], what: str) -> None:
    """Raise ValueError (about `what`) if two shapes differ in static sizes."""
    pairs = zip(a, b, strict=False)
    if len(a) != len(b) or any(differ(m, n) for m, n in pairs):
        raise ValueError(f"{what}: {list(a)} where {list(b)} was expected")


def check_spreads(x: Value, *others: Value | None) -> None:
    """Raise ValueError if one of `others` does not broadcast to the shape of `x`, as far as sizes are known."""
    shape = x.tensor_type.shape
    for other in others:
        sizes = None if other is None else other.tensor_type.shape
        if shape is None or sizes is None or other is None:
            continue
        pairs = list(zip(reversed(sizes), reversed(shape), strict=False))
        if len(sizes) > len(shape) or any(differ(d, 1) and differ(n, d) for d, n in pairs):
            raise ValueError(f"{other.type} does not broadcast to {x.type}")


def check_features(x: Value, axis: int, *vectors: Value | None) -> Shape:
    """Raise ValueError if one of `vectors` does not have an element for each position along `axis` of `x`.

    Returns the shape of `x`, with the size that the vectors have where that of `x` is open.
    """
    axis = normalize_axis(axis, x.rank)
    sizes = [x.shape[axis]]
    for vector in vectors:
        shape = None if vector is None else vector.tensor_type.shape
        if vector is None or shape is None:
            continue
        if len(shape) != 1:
            raise ValueError(f"{vector.type} is not a vector")
        sizes.append(shape[0])
    if len(known := set(known_sizes(sizes))) > 1:
        raise ValueError(f"vectors and features of sizes {sorted(known)}")
    return (*x.shape[:axis], known_of(*sizes), *x.shape[axis + 1 :])


def normalize_axis(axis: int, rank: int) -> int:
    """`axis` as a nonnegative index; ValueError outside [-rank, rank)."""
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is outside of rank {rank}")
    return axis % rank


def normalize_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """`axes` as nonnegative indices. Raises ValueError for duplicates."""
    result = tuple(normalize_axis(int(a), rank) for a in axes)
    if len(set(result)) != len(result):
        raise ValueError(f"axes {tuple(axes)} contain duplicates")
    return result


def distinct_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """`axes` as nonnegative indices, each once, in the order of their first places."""
    return tuple(dict.fromkeys(normalize_axis(int(a), rank) for a in axes))


def check_positions(indices: Value, sizes: Sequence[Dim]) -> None:
    """Raise ValueError if a known index in `indices` [..., len(sizes)] is out of range for its size."""
    if indices.data is not None and indices.data.size and is_static(sizes):
        rows = indices.numpy().reshape(-1, len(sizes))
        wrong = np.argwhere((rows < np.negative(sizes)) | (rows >= np.asarray(sizes)))
        for row, axis in wrong[:1].tolist():
            raise ValueError(f"the index {rows[row, axis]} is out of range for an axis of size {sizes[axis]}")
        return
    if indices.known is None or not indices.known.size:
        return
    for row in indices.known.reshape(-1, len(sizes)).tolist():
        for index, size in zip(row, sizes, strict=True):
            if exceeds(-size, index) or exceeds(index, size - 1):
                raise ValueError(f"the index {index} is out of range for an axis of size {size}")


def known_dims(value: Value | None) -> list[Dim] | None:
    """The known elements of an integer tensor as a flat list of dims; None if they are unknown."""
    if value is None or value.known is None:
        return None
    return dims_of(value.known)


def dims_of(elements: Array) -> list[Dim]:
    """An array of integers and dims as a flat list of dims."""
    return [d if not hasattr(d, "__index__") else int(d) for d in elements.reshape(-1).tolist()]


def dims_from(value: Value, count: int | None = None) -> Shape | None:
    """The shape in a vector of sizes, with fresh symbols for unknown ones; None if even the rank is unknown."""
    known = known_dims(value)
    if known is not None:
        return tuple(known)
    shape = value.tensor_type.shape
    if is_static(shape) and len(shape) == 1:
        (count,) = shape
    return None if count is None else tuple(fresh_symbol() for _ in range(possible_rank(count)))


def possible_rank(count: int) -> int:
    """Return the number of axes of a tensor. Raises ValueError if it has more than `MOST_AXES`."""
    if count > MOST_AXES:
        raise ValueError(f"the result would have {count} axes")
    return count


def static_ints(value: Value | None) -> list[int] | None:
    """The elements of an integer tensor as ints; None unless all are known, and at most `MOST_LISTED`."""
    known = known_dims(value)
    if known is None:
        if value is not None and value.is_constant and value.tensor_type.dtype.is_integer:
            few = value.data is not None and value.data.size <= MOST_LISTED
            return [int(x) for x in value.numpy().reshape(-1)] if few else None
        return None
    return known_sizes(known) if is_static(known) else None


def required_axes(vector: Value) -> list[int]:
    """The axes in a constant vector; ValueError if they are unknown."""
    elements = static_ints(vector)
    if elements is None:
        raise ValueError("axes have to be known before run time")
    return elements


def dim_array(dims: Sequence[Dim]) -> Array:
    """An object array of `dims`, for value propagation."""
    result = np.empty(len(dims), object)
    result[:] = dims
    return result


def target_dims(value: Value) -> list[Dim] | None:
    """The sizes in a vector operand, with fresh symbols for unknown ones; None if even the rank is unknown."""
    dims = dims_from(value)
    return None if dims is None else [fresh_symbol() if is_open(d) else d for d in dims]


def entry_of(value: Value, index: int) -> Dim | None:
    """Entry `index` of a vector operand; None if it is known only at run time."""
    known = known_dims(value)
    if known is None or is_open(known[index]):
        return None
    return known[index]
