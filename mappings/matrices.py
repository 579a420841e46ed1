"""Triangles, diagonals and determinants of the matrices in the last two axes."""

from __future__ import annotations

import functools

import numpy as np

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
    """Every (n + 1)-th of n * n numbers."""
    x = node.operand(0)
    size, batch = int(x.shape[-1]), x.shape[:-2]
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
    row, column = (_counted(b, size, x) for size in (rows, columns))
    diagonal = Term(b, unsqueezed(b, row, [1])) + k
    return Term(b, column).equals(diagonal).to(dtype).value


LARGEST_DETERMINANT = 6


@lift_onnx("Det", since=(11, 22))
def _det(b: Builder, node: Node) -> Value:
    """By minors, each made once: n 2^n products."""
    x = node.operand(0)
    n = x.shape[-1]
    if not isinstance(n, int) or n > LARGEST_DETERMINANT:
        raise UnsupportedError(f"determinants of matrices over {LARGEST_DETERMINANT} x {LARGEST_DETERMINANT}")

    @functools.cache
    def element(i: int, j: int) -> Term:
        row = b(ops.Gather, x, np.asarray(i), axis=x.rank - 2)
        return Term(b, b(ops.Gather, row, np.asarray(j), axis=x.rank - 2))

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


# --- triangles and diagonals -----------------------------------------------------------------------------------------


@lift_onnx("Trilu", since=(14,))
def _trilu(b: Builder, node: Node) -> Value:
    return b(ops.Trilu, node.operand(0), node.optional(1), upper=bool(node.attr("upper", 1)))


@lower_onnx(ops.Trilu)
def _to_onnx_trilu(node: Node, opset: int) -> Form | None:
    if opset < 14:
        return None
    k = node.optional(1)
    wide = np.asarray(k.numpy(), np.int64).reshape(()) if k is not None and k.is_constant else k
    return Form("Trilu", (node.operand(0), *(() if wide is None else (wide,))), {"upper": int(node.attr("upper"))})


@decompose(ops.Trilu)
def _trilu_by_mask(b: Builder, node: Node) -> Value:
    """Select, where column minus row is on the right side of `k`."""
    x, k = node.operand(0), node.optional(1)
    rows, columns = x.shape[-2:]
    known = [0] if k is None else static_ints(k)
    if isinstance(rows, int) and isinstance(columns, int) and known is not None:
        distance = np.arange(columns)[None, :] - np.arange(rows)[:, None]
        keep = constant(distance >= known[0] if node.attr("upper") else distance <= known[0])
    else:
        down, right = (_counted(b, d, x) for d in (rows, columns))
        diagonal = b.scalar(0, DType.INT64) if k is None else as_int64(b, reshape(b, k, ()))
        distance_ = b(ops.Sub, unsqueezed(b, right, [0]), unsqueezed(b, down, [1]))
        keep = b(ops.Compare, distance_, diagonal, comparison_direction="GE" if node.attr("upper") else "LE")
    return b(ops.Select, keep, x, b.scalar(0, x))


def _counted(b: Builder, size: Dim, source: Value) -> Value:
    """0, 1, ... up to a size."""
    if isinstance(size, int):
        return constant(np.arange(size))
    limit = b(ops.Reshape, dim_value(b, size, source), np.zeros(0, np.int64))
    return b(ops.Range, b.scalar(0, limit), limit, b.scalar(1, limit))


def _on_diagonal(b: Builder, rows: Dim, columns: Dim, source: Value) -> Value:
    if isinstance(rows, int) and isinstance(columns, int):
        return constant(np.eye(rows, columns, dtype=bool))
    down, right = (_counted(b, d, source) for d in (rows, columns))
    return b(ops.Compare, unsqueezed(b, right, [0]), unsqueezed(b, down, [1]), comparison_direction="EQ")


@lift_tfl("MATRIX_DIAG")
def _matrix_diag(b: Builder, node: Node) -> Value:
    """The last axis laid on the diagonals of square matrices."""
    diagonal = node.operand(0)
    size = diagonal.shape[-1]
    return b(ops.Select, _on_diagonal(b, size, size, diagonal), unsqueezed(b, diagonal, [-1]), b.scalar(0, diagonal))


@lift_tfl("MATRIX_SET_DIAG")
def _matrix_set_diag(b: Builder, node: Node) -> Value:
    """Matrices with another diagonal."""
    x, diagonal = node.operand(0), node.operand(1)
    rows, columns = x.shape[-2:]
    laid = unsqueezed(b, diagonal, [-1])
    if isinstance(rows, int) and isinstance(columns, int) and rows > columns:
        laid = b(ops.Pad, laid, np.asarray([[0, 0]] * (x.rank - 2) + [[0, rows - columns], [0, 0]]))
    return b(ops.Select, _on_diagonal(b, rows, columns, x), laid, x)
