"""Vectors of sizes and indices that mapping rules need: as constants where they are known, else computed at run time.

What has to be computed is written with Shape, Gather and Concatenate as far as these go, and narrowed to int32 for
TFLite as a whole chain (:func:`as_int32`), since int64 or a cast in it keeps delegates away.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Atom, Dim, SymDim, product, symbols
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.op import Op
from onnxtfl.ir.shapes import known_dims, normalize_axes, static_ints
from onnxtfl.ir.types import DType, TensorType

INT32_MAX = (1 << 31) - 1
HUGE = (1 << 63) - 1


def int32(numbers: Sequence[int] | Array) -> Array:
    """Constant sizes or indices as TFLite's kernels take them; beyond int32 they mean "to the end"; clamped."""
    return np.clip(np.asarray(numbers, np.int64), -INT32_MAX, INT32_MAX).astype(np.int32)


def narrow(vector: Value) -> Value | Array:
    """A constant vector as int32, any other as it is."""
    if not vector.is_constant or vector.dtype is DType.INT32:
        return vector
    return int32(vector.numpy())


def dim_vector(b: Builder, dims: Sequence[Dim], *sources: Value) -> Value:
    """`dims` as an int64 vector; those not known before run time are read off `sources`.

    A source is a tensor that has the size, or an integer vector that holds it; the graph's inputs come last.
    UnsupportedError where none does.
    """
    if all(isinstance(d, int) for d in dims):
        return constant(np.asarray(dims, np.int64))
    sources = (*sources, *(v for v in b.graph.inputs if isinstance(v.type, TensorType) and v not in sources))
    pieces: list[Value] = []
    i = 0
    while i < len(dims):
        run = _run(dims, i, sources)
        if run is None:
            run = i + 1, dim_value(b, dims[i], *sources)
        i = run[0]
        pieces.append(run[1] if isinstance(run[1], Value) else b(ops.Shape, run[1][0], axes=run[1][1]))
    return pieces[0] if len(pieces) == 1 else b(ops.Concatenate, *pieces, axis=0)


_Piece = tuple[int, "Value | tuple[Value, tuple[int, ...]]"]


def _run(dims: Sequence[Dim], start: int, sources: Sequence[Value]) -> _Piece | None:
    """The longest run of dims from `start` on that is constant, or stands side by side in one source's shape."""
    end = start
    while end < len(dims) and isinstance(dims[end], int):
        end += 1
    if end > start:
        return end, constant(np.asarray(dims[start:end], np.int64))
    best: _Piece | None = None
    for source in sources:
        shape = source.tensor_type.shape or ()
        for at in (i for i, d in enumerate(shape) if d == dims[start]):
            n = 1
            while at + n < len(shape) and start + n < len(dims) and shape[at + n] == dims[start + n]:
                n += 1
            while isinstance(dims[start + n - 1], int):
                n -= 1
            if best is None or start + n > best[0]:
                best = start + n, (source, tuple(range(at, at + n)))
    return best


def dim_value(b: Builder, dim: Dim, *sources: Value) -> Value:
    """`dim` as an int64 vector of one entry; as :func:`dim_vector`, with arithmetic where a source has a part of it."""
    if isinstance(dim, int):
        return constant(np.asarray([dim], np.int64))
    for source in sources:
        if dim in (shape := source.tensor_type.shape or ()):
            return b(ops.Shape, source, axes=(shape.index(dim),))
        if dim in (known := known_dims(source) or []) and source.rank == 1:
            return as_int64(b, b(ops.Gather, source, [known.index(dim)], axis=0))
    return _multiple(b, dim, sources) or _computed(b, dim, sources)


def _multiple(b: Builder, dim: SymDim, sources: Sequence[Value]) -> Value | None:
    """`dim` as factor * size + rest, with two numbers and a size that a source has; None where no size is such."""
    for have in dict.fromkeys(d for source in sources for d in _offered(source) if not isinstance(d, int)):
        monomial, unit = have.terms[0]
        factor, over = divmod(next((c for m, c in dim.terms if m == monomial), 0), unit)
        rest = dim - have * factor
        if factor and not over and isinstance(rest, int):
            size = dim_value(b, have, *sources)
            scaled = size if factor == 1 else b(ops.Mul, size, [factor])
            return b(ops.Add, scaled, [rest]) if rest else scaled
    return None


def as_int64(b: Builder, value: Value) -> Value:
    """An integer tensor as int64."""
    return value if value.dtype is DType.INT64 else b(ops.Convert, value, dtype=DType.INT64)


def _computed(b: Builder, dim: SymDim, sources: Sequence[Value]) -> Value:
    """A polynomial, term by term."""
    if len(dim.terms) == 1 and dim.terms[0][1] == 1 and len(dim.terms[0][0]) == 1 and dim.terms[0][0][0][1] == 1:
        return _atom(b, dim.terms[0][0][0][0], sources)
    total: Value | None = None
    for monomial, factor in dim.terms:
        atoms = [_atom(b, atom, sources) for atom, power in monomial for _ in range(power)]
        parts = atoms if factor == 1 and atoms else [*atoms, constant(np.asarray([factor], np.int64))]
        term = parts[0]
        for part in parts[1:]:
            term = b(ops.Mul, term, part)
        total = term if total is None else b(ops.Add, total, term)
    assert total is not None
    return total


def _atom(b: Builder, atom: Atom, sources: Sequence[Value]) -> Value:
    if isinstance(atom, str):
        if any(atom in symbols(d) and str(d) == atom for s in sources for d in _offered(s)):
            found = next(d for s in sources for d in _offered(s) if str(d) == atom)
            return dim_value(b, found, *sources)
        raise UnsupportedError(
            f"a size that depends on {atom} cannot be computed here", hint="fix it with --input-shape"
        )
    return b(ops.FloorDiv, dim_value(b, atom.numerator, *sources), dim_value(b, atom.denominator, *sources))


def _offered(source: Value) -> list[Dim]:
    shape = source.tensor_type.shape or ()
    return [*shape, *(known_dims(source) or [])]


def reshape(b: Builder, x: Value, dims: Sequence[Dim], *sources: Value) -> Value:
    """`x` under another shape; sizes not known before run time are read off `x` and `sources`, a single one is -1."""
    if x.tensor_type.shape == tuple(dims):
        return x
    return b(ops.Reshape, x, reshape_target(b, x, dims, *sources))


def reshape_target(b: Builder, x: Value, dims: Sequence[Dim], *sources: Value) -> Value:
    """The vector that :func:`reshape` gives Reshape: constant where at most one size is open."""
    where = [i for i, d in enumerate(dims) if not isinstance(d, int)]
    if len(where) > 1:
        offered = [d for source in (x, *sources) for d in _offered(source)]
        where = [i for i in where if dims[i] not in offered]
    if not where or 0 in dims:
        return dim_vector(b, dims, x, *sources)
    return dim_vector(b, [-1 if i == where[-1] else d for i, d in enumerate(dims)], x, *sources)


def resized(b: Builder, x: Value, dims: Sequence[Dim], *sources: Value) -> Value:
    """`x` under `dims`, one of which may be -1."""
    shape = x.tensor_type.shape
    if -1 in dims and shape is not None:
        others = product(d for d in dims if d != -1)
        if others != 0:
            rest = product(shape) // others
            if isinstance(rest, int):
                dims = [rest if d == -1 else d for d in dims]
    if -1 not in dims:
        return reshape(b, x, dims, *sources)
    return b(ops.Reshape, x, dim_vector(b, dims, x, *sources))


def unsqueezed(b: Builder, x: Value, axes: Sequence[int]) -> Value:
    """`x` with new axes of size 1 that stand at `axes` of the result."""
    new = normalize_axes(axes, x.rank + len(axes))
    old = iter(x.shape)
    return reshape(b, x, [1 if i in new else next(old) for i in range(x.rank + len(new))])


def broadcast(b: Builder, x: Value, dims: Sequence[Dim], *sources: Value) -> Value:
    """`x` broadcast with the shape `dims`."""
    rank = max(x.rank, len(dims))
    own, asked = (1,) * (rank - x.rank) + x.shape, (1,) * (rank - len(dims)) + tuple(dims)
    result = [o if d == 1 else d for o, d in zip(own, asked, strict=True)]
    if tuple(result) == x.shape:
        return x
    return b(ops.BroadcastTo, x, dim_vector(b, result, x, *sources))


def as_int32(b: Builder, value: Value) -> Value:
    """An integer vector as int32: the chain that computes it is written anew as far as it is shape arithmetic."""
    if value.dtype is DType.INT32:
        return value
    if value.is_constant:
        return constant(int32(value.numpy()))
    node = value.producer
    if node is None:
        return b(ops.Convert, value, dtype=DType.INT32)
    if node.op is ops.Shape:
        return b(ops.Shape, node.operand(0), axes=node.attr("axes"), dtype=DType.INT32)
    if node.op is ops.Convert and node.operand(0).dtype is DType.INT32:
        return node.operand(0)
    if node.op is ops.Reshape and value.tensor_type.is_static and (gathered := _gathered_entries(b, node)) is not None:
        return gathered
    if (mine := _narrowed().get(node.op)) is not None:
        operands = [v if v is None or i >= mine else as_int32(b, v) for i, v in enumerate(node.operands)]
        results = b.many(node.op, *operands, **node.attributes)
        return results[value.index]
    return b(ops.Convert, value, dtype=DType.INT32)


_MANY = 1 << 30


@functools.cache
def _narrowed() -> dict[type[Op], int]:
    """Ops of shape arithmetic, with how many of their operands are numbers (the others are indices)."""
    moving: dict[type[Op], int] = {ops.Concatenate: _MANY, ops.Gather: 1, ops.Slice: 1, ops.Reshape: 1, ops.Split: 1}
    arithmetic = (ops.Add, ops.Sub, ops.Mul, ops.Div, ops.FloorDiv, ops.FloorMod, ops.Max, ops.Min, ops.Neg)
    return moving | dict.fromkeys(arithmetic, _MANY)


def _gathered_entries(b: Builder, node: Node) -> Value | None:
    """Entries of a vector picked one by one and put side by side again: one Gather does both."""
    inner = node.operand(0).producer
    if inner is None or inner.op is not ops.Gather or inner.operand(0).tensor_type.rank != 1:
        return None
    places = static_ints(inner.operand(1))
    if places is None or node.result.tensor_type.rank != 1:
        return None
    return b(ops.Gather, as_int32(b, inner.operand(0)), np.asarray(places, np.int32), axis=0)


def with_int32(b: Builder, node: Node, *indices: int) -> list[Value] | None:
    """The node with the computed vectors among operands `indices` in int32; None where they are already."""
    wide = [
        i for i in indices if (v := node.optional(i)) is not None and v.dtype is not DType.INT32 and not v.is_constant
    ]
    if not wide:
        return None
    operands = [as_int32(b, v) if i in wide and v is not None else v for i, v in enumerate(node.operands)]
    return b.many(node.op, *operands, **node.attributes)


def spread(b: Builder, vector: Value | None, axes: Sequence[int], rank: int, default: int) -> Value:
    """A vector with an entry for each of `axes` as one with an entry for each axis, `default` for the others."""
    if vector is None:
        return constant(np.full(rank, default, np.int64))
    if list(axes) == list(range(rank)):
        return as_int64(b, vector)
    known = static_ints(vector)
    if known is not None:
        full = np.full(rank, default, np.int64)
        full[list(axes)] = known
        return constant(full)
    if list(axes) == list(range(axes[0], axes[0] + len(axes))):
        before, after = [default] * axes[0], [default] * (rank - axes[0] - len(axes))
        return b(ops.Concatenate, *(v for v in (before, as_int64(b, vector), after) if v != []), axis=0)
    padded = b(ops.Concatenate, as_int64(b, vector), [default], axis=0)
    return b(ops.Gather, padded, [axes.index(i) if i in axes else len(axes) for i in range(rank)], axis=0)


def merge_whole(whole: Sequence[bool]) -> list[list[int]]:
    """Runs of axes: neighbours that are both taken whole stand together."""
    groups: list[list[int]] = []
    for axis, is_whole in enumerate(whole):
        if is_whole and groups and whole[groups[-1][-1]]:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def merged_shape(shape: Sequence[Dim], groups: Sequence[Sequence[int]]) -> list[Dim]:
    """The shape with the axes of each group merged."""
    result: list[Dim] = []
    for group in groups:
        size: Dim = 1
        for axis in group:
            size = size * shape[axis]
        result.append(size)
    return result
