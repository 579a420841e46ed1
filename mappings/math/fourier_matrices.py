"""Matrices of Fourier transforms: constants if the sizes are static, else computed by ops."""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.build.sizes import as_int32, slice_axes
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import known_size
from onnxtfl.ir.formula import Term, real_type
from onnxtfl.ir.graph import Value, constant
from onnxtfl.ir.ops.convolution import channels_last_attributes, window_attributes
from onnxtfl.ir.reshape import dim_value, iota, reshape, unsqueezed
from onnxtfl.ir.shapes import normalize_axis, static_ints
from onnxtfl.ir.spatial import Window
from onnxtfl.ir.types import DType


def number(b: Builder, value: Value) -> Term:
    """Return an integer operand as int32 [1]."""
    return Term(b, reshape(b, as_int32(b, value), (1,)))


def size_along(b: Builder, x: Value, axis: int) -> Term:
    """Return the size of `x` along `axis` as int32 [1]."""
    return Term(b, as_int32(b, dim_value(b, x.shape[axis], x)))


def fourier(taken: Term, length: Term, inverse: bool, onesided: bool, parts: int) -> Term:
    """Return the matrix [taken, parts, results, 1 or 2] that transforms `taken` elements (inverse: times `length`).

    `taken`, `length`: int32 [1]. Rows beyond `length` are zero; zeros and ones are exact. `onesided`: the results
    (inverse: the operands) are half of the spectrum, and the results of the inverse are real. float64 if static.
    """
    half, real = length // 2 + 1, inverse and onesided
    results = half if onesided and not inverse else length
    row, column = places(taken).along(0, 2), places(results)
    turns = ((row * column) % length) * 4
    cosine, sine = _sine(turns + length, length), _sine(turns, length)
    weight = (row < (half if real else length)).to(cosine.dtype)
    if real:
        weight = weight * (2.0 - (row.equals(0) | (row * 2).equals(length)).to(cosine.dtype))
    cosine, sine = cosine * weight, sine * weight
    sine = sine if inverse else -sine
    rows = [[cosine, sine], [-sine, cosine]][:parts]
    return _stack([_stack(row[: 1 if real else 2], 2) for row in rows], 1)


def convolved_along(b: Builder, signal: Value, kernel: Value, step: int) -> Value:
    """The frames, one every `step` elements, of a signal [n, size, parts] times a kernel [length, parts, results]."""
    window = Window((known_size(kernel.shape[0]),), (step,), (1,), (0, 0))
    return b(ops.Conv, signal, kernel, None, **channels_last_attributes(1, 1, 2, (0,)), **window_attributes(window))


def places(count: Term) -> Term:
    """Return 0, 1, ... below `count`, int32 [1]."""
    return Term(count.b, iota(count.b, count.value))


def _sine(quarters: Term, length: Term) -> Term:
    """Return sin(2 pi quarters / (4 length)), exactly where it is 0, 1 or -1."""
    whole = quarters % (length * 4)
    negative = whole > length * 2
    half = negative.choose(length * 4 - whole, whole)
    first = (half > length).choose(length * 2 - half, half)
    real = real_type(first)
    sine = (first.to(real) * (math.pi / 2) / length.to(real)).apply(ops.Sin)
    return negative.choose(-sine, sine)


def _stack(parts: list[Term], axis: int) -> Term:
    """Stack terms along a new axis `axis`."""
    columns = [Term(part.b, unsqueezed(part.b, part.value, [axis])) for part in parts]
    return columns[0].apply(ops.Concatenate, *columns[1:], axis=axis) if len(columns) > 1 else columns[0]


def transformed(b: Builder, x: Value, axis: int, length: Term | None, inverse: bool, onesided: bool) -> Value:
    """Return the DFT of `x` [..., 1 or 2] along `axis` as a contraction; `length` None: the size of the axis."""
    taken = size_along(b, x, axis)
    if length is None:
        length = (taken - 1) * 2 if inverse and onesided else taken
    read = length // 2 + 1 if inverse and onesided else length
    x, taken = first_elements(b, x, axis, taken.min(read), taken)
    matrix = fourier(taken, length, inverse, onesided, x.size(x.rank - 1)).to(x.dtype)
    order = list(range(x.rank))
    order.insert(axis, order.pop(x.rank - 2))
    spread = tuple(order) if axis != x.rank - 2 else ()
    result = Term(b, x).dot(matrix, (axis, x.rank - 1), (0, 1), output_permutation=spread)
    factor = 1.0 / Term(b, reshape(b, length.value, ())).to(real_type(length))
    return (result * factor.to(x.dtype) if inverse else result).value


def first_elements(b: Builder, x: Value, axis: int, count: Term, size: Term) -> tuple[Value, Term]:
    """Return the first `count` elements along `axis` and their number if known, else all `size` elements."""
    known = static_ints(count.value)
    return (x, size) if known is None else (slice_axes(b, x, {axis: slice(0, known[0])}), count)


def transformed_at(b: Builder, x: Value, axis: Value, length: Term | None, inverse: bool, onesided: bool) -> Value:
    """Return the DFT of `x` [..., 1 or 2] along an axis that may be dynamic::

    x -> [outer, n, inner, parts] -> [outer, results, inner, 1 or 2] -> [..., 1 or 2]
    """
    known = static_ints(axis)
    if known is not None:
        return transformed(b, x, normalize_axis(known[0], x.rank), length, inverse, onesided)
    sizes, where = Term(b, b(ops.Shape, x, dtype=DType.INT32)), number(b, axis)
    place = Term(b, constant(np.arange(x.rank, dtype=np.int32)))
    where = (where < 0).choose(where + x.rank, where)
    taken = sizes.apply(ops.Gather, where, axis=0)
    outer = (place < where).choose(sizes, 1).reduce("prod", [0])
    inner = ((place > where) & (place < x.rank - 1)).choose(sizes, 1).reduce("prod", [0])
    blocks = outer.apply(ops.Concatenate, taken, inner, np.asarray(x.shape[-1:], np.int32), axis=0)
    middle = transformed(b, b(ops.Reshape, x, blocks.value), 1, length, inverse, onesided)
    results, made = size_along(b, middle, 1), middle.size(3)
    last = place.equals(x.rank - 1).choose(place * 0 + made, sizes)
    return b(ops.Reshape, middle, place.equals(where).choose(results, last).value)


def spectrum_of_planes(b: Builder, x: Value, lengths: Value) -> tuple[Term, Term]:
    """Return real and imaginary spectrum over the last two axes of `x`: axis by axis, the last one onesided.

    A short signal is padded with zeros. `lengths`: integers [2].
    """
    columns, rows = (number(b, b(ops.Gather, lengths, [i], axis=0)) for i in (0, 1))
    real = unsqueezed(b, x, [x.rank])
    half = transformed(b, real, x.rank - 1, rows, inverse=False, onesided=True)
    full = Term(b, transformed(b, half, x.rank - 2, columns, inverse=False, onesided=False))
    return full.at(0, x.rank), full.at(1, x.rank)
