"""Triangles, diagonals, determinants and inverses of the matrices in the last two axes."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np
from onnxtfl.mappings.contraction import batched

from onnxtfl.rules import *

# --- diagonals --------------------------------------------------------------------------------------------------------


@lower_onnx(ops.Diagonal)
def _diagonal(node: Node, opset: int) -> Form | None:
    if node.operand(0).tensor_type.shape is None or node.operand(0).rank > 20:
        return None
    batch = "abcdefghijklmnopqrst"[: node.operand(0).rank - 2]
    return Form("Einsum", (node.operand(0),), {"equation": f"{batch}zz->{batch}z"})


@decompose(ops.Diagonal)
def _diagonal_apart(b: Builder, node: Node) -> Value:
    """Every (n + 1)-th of n * n elements."""
    x = node.operand(0)
    size, batch = x.shape[-1], x.shape[:-2]
    if not isinstance(size, int):
        raise UnsupportedError("the diagonal of matrices whose size is unknown", code="E-SHAPE-001")
    flat = reshape(b, x, (*batch, size * size))
    return sliced(b, flat, {len(batch): slice(None, None, size + 1)})


_MOST_WRITTEN_OUT = 1 << 14


@lift_onnx("EyeLike", since=(9, 22))
def _eye_like(b: Builder, node: Node) -> Value:
    """Ones on the diagonal `k` above the main one: a constant, or where column - row is k."""
    x, k, number = node.operand(0), node.attributes.get("k", 0), node.attributes.get("dtype")
    dtype = x.dtype if number is None else dtype_from(number)
    rows, columns = x.shape
    if isinstance(rows, int) and isinstance(columns, int) and rows * columns <= _MOST_WRITTEN_OUT:
        return constant(np.eye(rows, columns, k).astype(dtype.numpy))
    row, column = (counted(b, size, x) for size in (rows, columns))
    diagonal = Term(b, unsqueezed(b, row, [1])) + k
    return Term(b, column).equals(diagonal).to(dtype).value


LARGEST_BY_MINORS = 6
LARGEST_ELIMINATED = 32


@dataclass(frozen=True)
class _Elimination:
    """Matrices [..., n, n] made the identity, up to the order of rows, by adding multiples of rows.

    For each column `chosen`, 1.0 at the row that was its pivot and 0.0 elsewhere [..., n], `rows`, the number of that
    row [..., 1], and `pivots` [..., 1, 1]; `other`: what the same steps make of the identity.
    """

    chosen: list[Term]
    rows: list[Term]
    pivots: list[Term]
    other: Term


def _eliminated(b: Builder, x: Value, what: str) -> _Elimination:
    """The pivot is the largest element of the rows that are left; rows stay at their places."""
    n, rank = x.shape[-1], x.rank
    if x.shape[-2] != n or not isinstance(n, int) or not 0 < n <= LARGEST_ELIMINATED:
        limit = f"{LARGEST_ELIMINATED} x {LARGEST_ELIMINATED}"
        raise UnsupportedError(f"{what} of matrices that are not square, or over {limit}", type_=x.type)
    work = Term(b, x)
    found = _Elimination([], [], [], Term(b, constant(np.eye(n).astype(x.dtype.numpy))))
    other, free = found.other, Term(b, constant(np.ones(n, x.dtype.numpy)))
    for k in range(n):
        column = work.at(k, rank - 1)
        index = (column.abs() * free + free).apply(ops.ArgMax, axis=rank - 2, keepdims=True, dtype=DType.INT64)
        chosen = Term(b, constant(np.arange(n))).equals(index).to(x.dtype)
        entries, one = (Term(b, unsqueezed(b, term.value, [rank - 1])) for term in (column, chosen))
        pivot = (entries * one).reduce("sum", [rank - 2])
        factor = (entries - one) / pivot
        work, other = (m - factor * (one * m).reduce("sum", [rank - 2]) for m in (work, other))
        free = free * (1.0 - chosen)
        found.chosen.append(chosen)
        found.rows.append(index)
        found.pivots.append(pivot)
    return replace(found, other=other)


@lift_onnx("Inverse", since=(1,), domain=MICROSOFT)
def _inverse(b: Builder, node: Node) -> Value:
    """Row k of the result was the pivot of column k."""
    x = node.operand(0)
    found = _eliminated(b, x, "inverses")
    order = b(ops.Concatenate, *(unsqueezed(b, row.value, [x.rank - 2]) for row in found.chosen), axis=x.rank - 2)
    return batched(b, order, found.other.value)


@lift_onnx("Det", since=(11, 22))
def _det(b: Builder, node: Node) -> Value:
    """1 for matrices without elements, as in ONNX Runtime."""
    x = node.operand(0)
    n, rows = x.shape[-1], x.shape[-2]
    if isinstance(n, int) and isinstance(rows, int) and n != rows:
        raise ValueError(f"no determinant of a {rows} x {n} matrix")
    if n == 0:
        return broadcast(b, b.scalar(1.0, x), x.shape[:-2], x)
    return _by_minors(b, x, n) if isinstance(n, int) and n <= LARGEST_BY_MINORS else _by_pivots(b, x)


def _by_minors(b: Builder, x: Value, n: int) -> Value:
    """Each minor is computed once: n 2^n products."""

    @functools.cache
    def element(i: int, j: int) -> Term:
        return Term(b, x).at(i, x.rank - 2).at(j, x.rank - 2)

    @functools.cache
    def minor(row: int, columns: tuple[int, ...]) -> Term:
        if len(columns) == 1:
            return element(row, columns[0])
        total: Term | None = None
        for k, column in enumerate(columns):
            term = element(row, column) * minor(row + 1, (*columns[:k], *columns[k + 1 :]))
            total = term if total is None else total - term if k % 2 else total + term
        assert total is not None
        return total

    return minor(0, tuple(range(n))).value


def _by_pivots(b: Builder, x: Value) -> Value:
    """The product of the pivots; negative for an odd number of pairs of rows in the wrong order.

    A column without any pivot left has a pivot of 0: what follows is not finite, and the determinant is 0.
    """
    found, last = _eliminated(b, x, "determinants"), x.rank - 2
    product = found.pivots[0]
    for pivot in found.pivots[1:]:
        product = product.equals(0.0).choose(product, product * pivot)
    rows = Term(b, b(ops.Concatenate, *(row.value for row in found.rows), axis=last)).to(x.dtype)
    before = Term(b, unsqueezed(b, rows.value, [last + 1]))
    later = Term(b, unsqueezed(b, rows.value, [last]))
    above = Term(b, constant(np.triu(np.ones((len(found.rows),) * 2), 1).astype(x.dtype.numpy)))
    wrong = ((before > later).to(x.dtype) * above).reduce("sum", [last, last + 1])
    return b(ops.Squeeze, (product * (1.0 - (wrong % 2.0) * 2.0)).value, [last, last + 1])


# --- triangles and diagonals -----------------------------------------------------------------------------------------


row(ops.Trilu, onnx="Trilu", since=(14,), attributes="upper", integers=(1,))
row(ops.Trilu, onnx="Trilu", since=(1,), domain=MICROSOFT, attributes="upper", integers=(1,), lowers=False)


@decompose(ops.Trilu)
def _trilu_by_mask(b: Builder, node: Node) -> Value:
    """Select the elements for which column - row is at least, or at most, `k`."""
    x, k = node.operand(0), node.optional(1)
    if k is not None and 0 in k.shape:
        raise UnsupportedError("Trilu has a `k` without an element", node=node.name)
    rows, columns = x.shape[-2:]
    mask = _mask(b, rows, columns, x, "GE" if node.attr("upper") else "LE", k)
    return b(ops.Select, mask, x, b.scalar(0, x))


def _mask(b: Builder, rows: Dim, columns: Dim, source: Value, direction: str, k: Value | None = None) -> Value:
    """Where column - row compares with `k` (absent: 0): bools [rows, columns], constant if these are known."""
    known = [0] if k is None else static_ints(k)
    if isinstance(rows, int) and isinstance(columns, int) and known is not None:
        check_elements(rows * columns, "the mask")
        distance = np.arange(columns) - np.arange(rows)[:, None]
        return constant(ops.Compare.compute(distance, np.asarray(known[0]), comparison_direction=direction))
    row, column = (Term(b, unsqueezed(b, counted(b, d, source), [i])) for d, i in ((rows, 1), (columns, 0)))
    diagonal = 0 if k is None else Term(b, as_int64(b, reshape(b, k, ())))
    return (column - row).compared(direction, diagonal).value


_WHOLE = (DType.FLOAT32, DType.INT64, DType.INT32, DType.UINT32, DType.INT16, DType.INT8, DType.UINT8)


def _check_bytes(x: Value) -> None:
    """Raise UnsupportedError for elements of which LiteRT's kernels move more bytes or fewer (matrix_diag.cc)."""
    stored = x.tensor_type.storage
    if stored not in _WHOLE:
        message = f"LiteRT's kernel does not move whole elements of {stored.value}"
        raise UnsupportedError(message, type_=x.type, code="E-OP-001")


@lift_tfl("MATRIX_DIAG")
def _matrix_diag(b: Builder, node: Node) -> Value:
    """Square matrices with the last axis as their diagonals, a stored 0 elsewhere."""
    diagonal = node.operand(0)
    _check_bytes(diagonal)
    size = diagonal.shape[-1]
    mask = _mask(b, size, size, diagonal, "EQ")
    return b(ops.Select, mask, unsqueezed(b, diagonal, [-1]), b.scalar(real_of_stored_zero(diagonal), diagonal))


@lift_tfl("MATRIX_SET_DIAG")
def _matrix_set_diag(b: Builder, node: Node) -> Value:
    """Matrices with another diagonal."""
    x, diagonal = node.operand(0), node.operand(1)
    _check_bytes(x)
    rows, columns = x.shape[-2:]
    column = unsqueezed(b, diagonal, [-1])
    more = rows - diagonal.shape[-1]
    if more != 0:
        amounts = dim_vector(b, [*[0] * (2 * x.rank - 3), more, 0, 0], x, diagonal)
        column = b(ops.Pad, column, reshape(b, amounts, (x.rank, 2)))
    return b(ops.Select, _mask(b, rows, columns, x, "EQ"), column, x)
