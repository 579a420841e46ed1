"""Reshapes, transposes and broadcasts to shapes that may have unknown sizes; constants stay lazy.

A size known only at run time is read from the shape of a tensor that has it, or from a vector that contains it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import numpy as np

from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import ArrayData
from onnxtfl.ir.dims import (
    Atom,
    Common,
    Dim,
    SymDim,
    broadcast_dim,
    common_sizes,
    differ,
    is_nonnegative,
    is_static,
    known_sizes,
    open_axes,
    product,
    size_or,
)
from onnxtfl.ir.dims import FloorDiv as Quotient
from onnxtfl.ir.graph import Value, constant
from onnxtfl.ir.ops.arithmetic import Add, FloorDiv, Mul
from onnxtfl.ir.ops.broadcasting import BroadcastTo
from onnxtfl.ir.ops.casts import Convert
from onnxtfl.ir.ops.concatenation import Concatenate
from onnxtfl.ir.ops.creation import Range
from onnxtfl.ir.ops.extremes import Max, Min
from onnxtfl.ir.ops.gathering import Gather
from onnxtfl.ir.ops.reshape import Reshape
from onnxtfl.ir.ops.shape import Shape
from onnxtfl.ir.ops.transpose import Transpose
from onnxtfl.ir.permutations import inverse
from onnxtfl.ir.shapes import broadcast_shapes, known_dims, normalize_axes, possible_rank, static_ints
from onnxtfl.ir.types import DType, TensorType

SMALL = 16 << 10
"""The largest number of bytes of a constant that is reshaped in memory."""


def reshape(b: Builder, x: Value, dims: Sequence[Dim], *sources: Value) -> Value:
    """Reshape `x` to `dims`; unknown sizes are read from `x` and `sources` at run time (one becomes -1).

    UnsupportedError if a size cannot be computed from these.
    """
    if x.tensor_type.shape == tuple(dims):
        return x
    if is_static(dims) and (whole := reshaped_constant(x, dims)) is not None:
        return whole
    result = b(Reshape, x, reshape_target(b, x, dims, *sources))
    if not result.is_constant:
        result.type = result.tensor_type.with_shape(tuple(dims))  # inference may know less
    return result


def has_constant_target(dims: Sequence[Dim]) -> bool:
    """Whether the target of :func:`reshape` to `dims` is constant: at most one size is unknown, and then none is 0."""
    return len(open_axes(dims)) <= (0 not in dims)


def reshape_target(b: Builder, x: Value, dims: Sequence[Dim], *sources: Value) -> Value:
    """The target vector of :func:`reshape`: constant if at most one size is unknown."""
    where = open_axes(dims)
    if len(where) > 1:
        offered = [d for source in (x, *sources) for d in _offered(source)]
        where = [i for i in where if dims[i] not in offered]
    if not where or 0 in dims:
        return dim_vector(b, dims, x, *sources)
    if len(open_axes(dims)) > 1:  # a -1 beside a size of 0 is any size
        with suppress(UnsupportedError):
            return dim_vector(b, dims, x, *sources)
    for hole in reversed(where[1:]):
        with suppress(UnsupportedError):
            return dim_vector(b, [-1 if i == hole else d for i, d in enumerate(dims)], x, *sources)
    return dim_vector(b, [-1 if i == where[0] else d for i, d in enumerate(dims)], x, *sources)


def reshape_inferred(b: Builder, x: Value, dims: Sequence[Dim], *sources: Value) -> Value:
    """Reshape `x` to `dims`, one of which may be -1."""
    shape = x.tensor_type.shape
    if -1 in dims and shape is not None:
        others = product(d for d in dims if d != -1)
        if others != 0:
            rest = size_or(product(shape) // others, -1)
            dims = [rest if d == -1 else d for d in dims]
    if -1 not in dims:
        return reshape(b, x, dims, *sources)
    return b(Reshape, x, dim_vector(b, dims, x, *sources))


def unsqueezed(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    """Insert axes of size 1 into `x`, at `axes` of the result."""
    new = normalize_axes(axes, possible_rank(x.rank + len(axes)))
    old = iter(x.shape)
    return reshape(b, x, [1 if i in new else next(old) for i in range(x.rank + len(new))])


def with_unit_axis(b: Builder, x: Value, axis: int) -> Value:
    """Insert an axis of size 1 into `x` at `axis`."""
    return reshape(b, x, (*x.shape[:axis], 1, *x.shape[axis:]))


def concatenated(b: Builder, parts: Sequence[Value], axis: int) -> Value:
    """`parts` along `axis`; a single part is returned as it is."""
    return parts[0] if len(parts) == 1 else b(Concatenate, *parts, axis=axis)


def stacked_along(b: Builder, parts: Iterable[Value], axis: int) -> Value:
    """`parts` of one shape, along a new axis, which is `axis` of the result."""
    return concatenated(b, [unsqueezed(b, part, [axis]) for part in parts], axis)


def transposed(b: Builder, x: Value, permutation: Sequence[int]) -> Value:
    """Transpose `x`; the identity creates no node."""
    if tuple(permutation) == tuple(range(len(permutation))):
        return x
    if x.data is not None:
        return transposed_constant(x, permutation)
    return b(Transpose, x, permutation=tuple(permutation))


def transposed_constant(x: Value, permutation: Sequence[int]) -> Value:
    """The constant `x` with permuted axes and quantization; elements are read lazily."""
    assert x.data is not None
    moved = constant(x.data.transpose(permutation), type_=x.tensor_type.permuted(permutation))
    moved.add_origins(origin.permuted(permutation) for origin in x.origins)
    return moved


def reshaped_constant(x: Value, dims: Sequence[Dim]) -> Value | None:
    """The constant `x` with the static shape `dims`; None if it is not constant or this splits a quantized axis.

    InvalidModelError if it has another number of elements.
    """
    sizes = known_sizes(dims)
    if x.data is not None and x.data.size != product(sizes):
        message = f"a constant of {x.data.size} elements cannot have the shape {tuple(sizes)}"
        raise InvalidModelError(message, node=x.name, code="E-FILE-009")
    type_ = x.tensor_type.reshaped(tuple(sizes))
    if x.data is None or type_ is None:
        return None
    small = x.data.nbytes <= SMALL  # equal elements are recognized only in memory
    data = ArrayData(x.stored().reshape(sizes), x.data.dtype) if small else x.data.reshape(sizes)
    whole = constant(data, type_=type_)
    whole.add_origins(origin.reshaped(tuple(sizes)) for origin in x.origins)
    return whole


def transpose_and_merge(b: Builder, x: Value, groups: Sequence[Sequence[int]]) -> Value:
    """Transpose `x` to the order of `groups` and merge each group to one axis (an empty one: a unit axis)."""
    ordered = transposed(b, x, [axis for group in groups for axis in group])
    return reshape(b, ordered, [product(x.shape[axis] for axis in group) for group in groups])


def split_and_transpose(
    b: Builder, x: Value, groups: Sequence[Sequence[int]], shape: Sequence[Dim], *sources: Value
) -> Value:
    """Undo :func:`transpose_and_merge`: the tensor of sizes `shape` of which each group of axes is one axis of `x`."""
    order = [axis for group in groups for axis in group]
    return transposed(b, reshape(b, x, [shape[axis] for axis in order], x, *sources), inverse(order))


def broadcast(b: Builder, x: Value, dims: Sequence[Dim], *sources: Value) -> Value:
    """Broadcast `x` and `dims` together; return `x` with the common shape.

    A known size decides over an unknown one, which is the same or 1; of two unknown ones a run takes what is not 1.
    """
    rank = max(x.rank, len(dims))
    own, asked = (1,) * (rank - x.rank) + x.shape, (1,) * (rank - len(dims)) + tuple(dims)
    result = [o if d == 1 else _joint(o, d) for o, d in zip(own, asked, strict=True)]
    if tuple(result) == x.shape:
        return x
    return broadcast_to_sizes(b, x, result, x, *sources)


def broadcast_to_sizes(b: Builder, x: Value, dims: Sequence[Dim], *sources: Value) -> Value:
    """Broadcast `x` to `dims`, read from `sources`.

    A size computed of others is 0 where that is negative: x[3:-4] of 4 elements has none, and the size n - 7.
    """
    sizes = dim_vector(b, dims, *sources)
    if all(map(is_nonnegative, dims)):
        return b(BroadcastTo, x, sizes)
    broadcast_shapes(x.shape, tuple(dims))  # raises ValueError; the operator does not know the sizes
    result = b(BroadcastTo, x, b(Max, sizes, [0]))
    result.type = result.tensor_type.with_shape(tuple(dims))
    return result


def _joint(own: Dim, asked: Dim) -> Dim:
    """Two static sizes that do not match are an error of BroadcastTo."""
    return asked if differ(own, asked) else broadcast_dim(own, asked)


def dim_vector(b: Builder, dims: Sequence[Dim], *sources: Value) -> Value:
    """`dims` as an int64 vector; sizes unknown before run time are read from `sources`.

    A source is a tensor with that size, or an integer vector that contains it; the graph's inputs are tried last.
    UnsupportedError if there is none.
    """
    if is_static(dims):
        return constant(np.asarray(dims, np.int64))
    sources = (*sources, *(v for v in b.graph.inputs if isinstance(v.type, TensorType) and v not in sources))
    pieces: list[Value] = []
    i = 0
    while i < len(dims):
        run = _run(dims, i, sources)
        if run is None:
            run = i + 1, dim_value(b, dims[i], *sources)
        i = run[0]
        pieces.append(run[1] if isinstance(run[1], Value) else b(Shape, run[1][0], axes=run[1][1]))
    return pieces[0] if len(pieces) == 1 else b(Concatenate, *pieces, axis=0)


_Piece = tuple[int, "Value | tuple[Value, tuple[int, ...]]"]


def _run(dims: Sequence[Dim], start: int, sources: Sequence[Value]) -> _Piece | None:
    """The longest run of dims from `start` on that is constant, or consecutive in the shape of one source."""
    end = next((i for i in open_axes(dims) if i >= start), len(dims))
    if end > start:
        return end, constant(np.asarray(dims[start:end], np.int64))
    best: _Piece | None = None
    for source in sources:
        shape = source.tensor_type.shape or ()
        for at in (i for i, d in enumerate(shape) if d == dims[start]):
            n = 1
            while at + n < len(shape) and start + n < len(dims) and shape[at + n] == dims[start + n]:
                n += 1
            n = open_axes(dims[start : start + n])[-1] + 1
            if best is None or start + n > best[0]:
                best = start + n, (source, tuple(range(at, at + n)))
    return best


def dim_value(b: Builder, dim: Dim, *sources: Value) -> Value:
    """`dim` as an int64 vector of one entry, read or computed from the sizes of `sources`; see :func:`dim_vector`."""
    if isinstance(dim, int):
        return constant(np.asarray([dim], np.int64))
    for source in sources:
        if dim in (shape := source.tensor_type.shape or ()):
            return b(Shape, source, axes=(shape.index(dim),))
        if dim in (known := known_dims(source) or []) and source.rank == 1:
            return as_int64(b, b(Gather, source, [known.index(dim)], axis=0))
    return _multiple(b, dim, sources) or _computed(b, dim, sources)


def _multiple(b: Builder, dim: SymDim, sources: Sequence[Value]) -> Value | None:
    """Return `dim` as factor * size + rest, with int factor and rest and a size of a source; None if impossible."""
    for have in dict.fromkeys(_open_sizes(sources)):
        monomial, unit = have.terms[0]
        factor, over = divmod(next((c for m, c in dim.terms if m == monomial), 0), unit)
        rest = dim - have * factor
        if factor and not over and isinstance(rest, int):
            size = dim_value(b, have, *sources)
            scaled = size if factor == 1 else b(Mul, size, [factor])
            return b(Add, scaled, [rest]) if rest else scaled
    return None


def iota(b: Builder, size: Value) -> Value:
    """0, 1, ... below `size`, which has one element."""
    stop = reshape(b, size, ())
    if (count := static_ints(stop)) is not None:
        check_elements(count[0], "the positions along an axis")
    return b.computed(Range, b.scalar(0, stop), stop, b.scalar(1, stop))


def as_int64(b: Builder, value: Value) -> Value:
    """Convert an integer tensor to int64. Raises ValueError for another one (with a quantization, values are real)."""
    if not value.dtype.is_integer:
        raise ValueError(f"integers expected, not {value.type}")
    return value if value.dtype is DType.INT64 else b(Convert, value, dtype=DType.INT64)


def _computed(b: Builder, dim: SymDim, sources: Sequence[Value]) -> Value:
    """Compute the polynomial `dim` term by term."""
    if len(dim.terms) == 1 and dim.terms[0][1] == 1 and len(dim.terms[0][0]) == 1 and dim.terms[0][0][0][1] == 1:
        return _atom(b, dim.terms[0][0][0][0], sources)
    total: Value | None = None
    for monomial, factor in dim.terms:
        atoms = [_atom(b, atom, sources) for atom, power in monomial for _ in range(power)]
        parts = atoms if factor == 1 and atoms else [*atoms, constant(np.asarray([factor], np.int64))]
        term = parts[0]
        for part in parts[1:]:
            term = b(Mul, term, part)
        total = term if total is None else b(Add, total, term)
    assert total is not None
    return total


def _atom(b: Builder, atom: Atom, sources: Sequence[Value]) -> Value:
    """Compute an atom of a dim: a size of a source, a divisor of one, or from other atoms."""
    for have in _open_sizes(sources):
        if [monomial for monomial, _ in have.terms] == [((atom, 1),)]:
            size, factor = dim_value(b, have, *sources), have.terms[0][1]
            return size if factor == 1 else b(FloorDiv, size, [factor])
    if isinstance(atom, Quotient):
        return b(FloorDiv, dim_value(b, atom.numerator, *sources), dim_value(b, atom.denominator, *sources))
    if isinstance(atom, Common):
        return _common(b, atom, sources)
    raise UnsupportedError(f"a size that depends on {atom} cannot be computed here", code="E-SHAPE-001")


def _common(b: Builder, atom: Common, sources: Sequence[Value]) -> Value:
    """The size that is not 1: the largest, or 0; of the sizes that sources have, which may be those of several."""
    parts, left = list[Dim](), set(atom.sizes)
    for have in dict.fromkeys(d for source in sources for d in _offered(source)):
        known = set(common_sizes(have))
        if known & left and known <= set(atom.sizes):
            parts.append(have)
            left -= known
    sizes = [dim_value(b, size, *sources) for size in [*parts, *(size for size in atom.sizes if size in left)]]
    largest = least = sizes[0]
    for size in sizes[1:]:
        largest, least = b(Max, largest, size), b(Min, least, size)
    return b(Mul, largest, b(Min, least, [1]))


def _open_sizes(sources: Sequence[Value]) -> Iterator[SymDim]:
    return (d for source in sources for d in _offered(source) if isinstance(d, SymDim))


def _offered(source: Value) -> list[Dim]:
    shape = source.tensor_type.shape or ()
    return [*shape, *((known_dims(source) or []) if len(shape) == 1 else [])]


def spread(b: Builder, vector: Value | None, axes: Sequence[int], rank: int, default: int) -> Value:
    """Expand a vector with an entry for each of `axes` to `rank` entries; the other axes get `default`."""
    if vector is None:
        return constant(np.full(rank, default, np.int64))
    if list(axes) == list(range(rank)):
        return as_int64(b, vector)
    if axes and list(axes) == list(range(axes[0], axes[0] + len(axes))):
        before, after = [default] * axes[0], [default] * (rank - axes[0] - len(axes))
        return b(Concatenate, *(v for v in (before, as_int64(b, vector), after) if v != []), axis=0)
    padded = b(Concatenate, as_int64(b, vector), [default], axis=0)
    return b(Gather, padded, [axes.index(i) if i in axes else len(axes) for i in range(rank)], axis=0)
