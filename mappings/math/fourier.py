"""Fourier transforms and mel bands of sizes known only at run time: the matrices are computed by ops, in float32.

The arithmetic is that of the constants in `mappings/math/signal.py`.
"""

from __future__ import annotations

import math

import numpy as np

from onnxtfl.build.sizes import as_int32
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Value, constant
from onnxtfl.ir.reshape import positions, reshape, transposed
from onnxtfl.ir.types import DType


def fourier(taken: int, length: int, inverse: bool, onesided: bool) -> Array:
    """The matrix [taken, 2, results, parts] that transforms `taken` complex elements (inverse: times `length`).

    Zeros and ones are exact. `onesided`: the results (inverse: the operands) are half of the spectrum, and the
    results of the inverse are real.
    """
    results = length // 2 + 1 if onesided and not inverse else length
    check_elements(4 * taken * results, "the matrix of the transform")
    angles = 2 * np.pi * (np.outer(np.arange(taken), np.arange(results)) % length) / length
    cosine, sine = np.cos(angles), np.sin(angles) * (1 if inverse else -1)
    matrix = np.stack([np.stack([cosine, sine], -1), np.stack([-sine, cosine], -1)], 1).round(15)
    if not (inverse and onesided):
        return matrix
    twice = np.where((np.arange(taken) == 0) | (2 * np.arange(taken) == length), 1.0, 2.0)
    return matrix[..., :1] * twice[:, None, None, None]


def open_fourier(
    b: Builder, taken: Term, length: Term, inverse: bool, onesided: bool, parts: int
) -> tuple[Value, Term]:
    """The matrix [taken, parts, results, 1 or 2] that transforms `taken` elements of `parts`; its number of results.

    `taken`, `length`: int32 vectors of one entry. Rows that a transform of `length` does not read are zero. The
    inverse is not divided by the length.
    """
    half, real = length.apply(ops.FloorDiv, 2) + 1, inverse and onesided
    results = half if onesided and not inverse else length
    row, column = Term(b, positions(b, taken.value)).along(0, 2), Term(b, positions(b, results.value))
    turns = ((row * column) % length) * 4
    cosine, sine = _sine(turns + length, length), _sine(turns, length)
    weight = (row < (half if real else length)).to(DType.FLOAT32)
    if real:
        weight = weight * (2.0 - (row.equals(0) | (row * 2).equals(length)).to(DType.FLOAT32))
    cosine, sine = cosine * weight, sine * weight
    sine = sine if inverse else -sine
    rows = [[cosine, sine], [-sine, cosine]][:parts]
    return _stack(b, [_stack(b, row[: 1 if real else 2]) for row in rows], 1), results


def _sine(quarters: Term, length: Term) -> Term:
    """sin(2 pi quarters / (4 length)), exact where it is 0, 1 or -1."""
    whole = quarters % (length * 4)
    negative = whole > length * 2
    half = negative.choose(length * 4 - whole, whole)
    first = (half > length).choose(length * 2 - half, half)
    angle = first.to(DType.FLOAT32) * (math.pi / 2) / length.to(DType.FLOAT32)
    sine = angle.apply(ops.Sin)
    return negative.choose(-sine, sine)


def _stack(b: Builder, parts: list[Term] | list[Value], axis: int = 2) -> Value:
    """Matrices along a new axis `axis`."""
    values = [part.value if isinstance(part, Term) else part for part in parts]
    columns = [_with_unit_axis(b, value, axis) for value in values]
    return columns[0] if len(columns) == 1 else b(ops.Concatenate, *columns, axis=axis)


def _with_unit_axis(b: Builder, x: Value, axis: int) -> Value:
    """`x`, of unknown sizes, with a unit axis at `axis`."""
    shape = b(ops.Shape, x, dtype=DType.INT32)
    parts = [(0, axis), None, (axis, x.rank)]
    one = constant(np.ones(1, np.int32))
    pieces = [one if p is None else b(ops.Slice, shape, [p[0]], [p[1]], [1]) for p in parts if p is None or p[0] < p[1]]
    return b(ops.Reshape, x, b(ops.Concatenate, *pieces, axis=0))


def transformed_at(b: Builder, x: Value, axis: Value, length: Value | None, inverse: bool, onesided: bool) -> Value:
    """The DFT of `x` [..., 1 or 2] along `axis`, where this, `length` or a size is known only at run time::

    x -> [outer, n, inner, parts] -> [outer inner, n parts] x matrix -> [outer, inner, results, 2] -> [..., 2]
    """
    parts, sizes = x.shape[-1], Term(b, b(ops.Shape, x, dtype=DType.INT32))
    assert isinstance(parts, int)
    place, where = Term(b, constant(np.arange(x.rank, dtype=np.int32))), Term(b, reshape(b, as_int32(b, axis), (1,)))
    where = (where < 0).choose(where + x.rank, where)
    taken = Term(b, b(ops.Gather, sizes.value, where.value, axis=0))
    outer = (place < where).choose(sizes, 1).reduce("prod", [0])
    inner = ((place > where) & (place < x.rank - 1)).choose(sizes, 1).reduce("prod", [0])
    count = (taken - 1) * 2 if inverse and onesided else taken
    if length is not None:
        count = Term(b, reshape(b, as_int32(b, length), (1,)))
    matrix, results = open_fourier(b, taken, count, inverse, onesided, parts)
    made = 1 if inverse and onesided else 2
    blocks = transposed(b, _shaped(b, x, outer, taken, inner, parts), (0, 2, 1, 3))
    rows, columns = _shaped(b, blocks, -1, taken * parts), _shaped(b, matrix, taken * parts, results * made)
    axes = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    product = Term(b, b(ops.DotGeneral, rows, Term(b, columns).to(x.dtype).value, **axes))
    if inverse:
        product = product / count.to(x.dtype)
    spread = transposed(b, _shaped(b, product.value, outer, inner, results, made), (0, 2, 1, 3))
    last = place.equals(x.rank - 1).choose(place * 0 + made, sizes)
    return b(ops.Reshape, spread, place.equals(where).choose(results, last).value)


def _shaped(b: Builder, x: Value, *sizes: Term | int) -> Value:
    """`x` reshaped to `sizes`: numbers, or int32 vectors of one entry."""
    vectors = [s.value if isinstance(s, Term) else constant(np.asarray([s], np.int32)) for s in sizes]
    return b(ops.Reshape, x, b(ops.Concatenate, *vectors, axis=0))


def open_mel_matrix(b: Builder, bins: Value, length: Value, rate: Value, lower: Value, upper: Value) -> Value:
    """The weights [length // 2 + 1, bins] with which a spectrum is gathered into mel bands; scalars of one entry."""
    count, size = (Term(b, reshape(b, as_int32(b, v), (1,))) for v in (bins, length))
    low, high = (_mel(Term(b, reshape(b, v, (1,))).to(DType.FLOAT32)) for v in (lower, upper))
    step = (high - low) / (count + 2).to(DType.FLOAT32)
    lines = (size + 1).to(DType.FLOAT32) / Term(b, reshape(b, rate, (1,))).to(DType.FLOAT32)
    index = Term(b, positions(b, count.value)).to(DType.FLOAT32)
    left, center, right = (_edges((index + float(i)) * step + low, lines) for i in range(3))
    half = size.apply(ops.FloorDiv, 2) + 1
    line = Term(b, positions(b, half.value)).to(DType.FLOAT32).along(0, 2)
    rising, falling = (line - left) / (center - left).max(1.0), (right - line) / (right - center).max(1.0)
    between = rising.min(falling).max(0.0)
    return line.equals(center).choose(between.constant(1.0), between).value


def _mel(hertz: Term) -> Term:
    return (hertz / 700.0 + 1.0).log() * (2595 / math.log(10))


def _edges(mels: Term, lines: Term) -> Term:
    """The lines of the spectrum at `mels`, rounded down."""
    hertz = ((mels * (math.log(10) / 2595)).exp() - 1.0) * 700.0
    return (hertz * lines).floor()
