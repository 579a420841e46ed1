"""Triangles, diagonals, determinants and inverses of the matrices in the last two axes."""

from __future__ import annotations

import functools

from onnxtfl.mappings.math.contraction import batched

from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.build.rows import row
from onnxtfl.build.sizes import range_below, slice_axes
from onnxtfl.dataclass import dataclass
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim, at_most, differ, known_size
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.ops.loops import scan_attributes
from onnxtfl.ir.quantized import real_of_stored_zero
from onnxtfl.ir.reshape import as_int64, broadcast, dim_vector, reshape, unsqueezed
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.rewriting.registry import Form, decompose, lift_onnx, lift_tfl, lower_onnx

# --- diagonals --------------------------------------------------------------------------------------------------------


@lower_onnx(ops.Diagonal)
def _diagonal(node: Node, opset: int) -> Form | None:
    if node.operand(0).tensor_type.shape is None or node.operand(0).rank > 20:
        return None
    batch = "abcdefghijklmnopqrst"[: node.operand(0).rank - 2]
    return Form("Einsum", (node.operand(0),), {"equation": f"{batch}zz->{batch}z"})


@decompose(ops.Diagonal)
def _diagonal_apart(b: Builder, node: Node) -> Value:
    """Slice every (n + 1)-th of n * n elements."""
    x = node.operand(0)
    size, batch = x.shape[-1], x.shape[:-2]
    size = known_size(size, "the size of matrices whose diagonal is taken")
    flat = reshape(b, x, (*batch, size * size))
    return slice_axes(b, flat, {len(batch): slice(None, None, size + 1)})


LARGEST_BY_MINORS = 6
LARGEST_ELIMINATED = 32


@dataclass(frozen=True)
class _Elimination:
    """Gauss-Jordan elimination of matrices [..., n, n] to the identity, up to the order of rows.

    `chosen`: 1.0 at the pivot row of each column, else 0.0 [..., n, n]; `rows`: the index of that row [..., n];
    `product`: of the pivots [...]; `other`: the result of the same steps on the identity.
    """

    chosen: Value
    rows: Value
    product: Term
    other: Term


@dataclass(frozen=True)
class _State:
    """The state between columns; `free`: 1.0 for each row that was not a pivot yet [..., n]."""

    work: Term
    other: Term
    free: Term
    product: Term

    @property
    def values(self) -> list[Value]:
        return [self.work.value, self.other.value, self.free.value, self.product.value]


def _after_column(b: Builder, state: _State, column: Term, places: Value) -> tuple[_State, Term, Term]:
    """Return the state after `column` [..., n], its pivot row as a mask [..., n] and as an index [..., 1].

    The pivot is the largest magnitude among the free rows; rows are not moved. For a singular matrix a pivot is 0:
    later values are not finite, and the product is 0.
    """
    rank = state.work.value.rank
    sizes = (state.free > 0.0).choose(column.abs(), -1.0)
    index = sizes.apply(ops.ArgMax, axis=rank - 2, keepdims=True, dtype=DType.INT64)
    chosen = Term(b, places).equals(index).to(column.dtype)
    entries, one = (Term(b, unsqueezed(b, term.value, [rank - 1])) for term in (column, chosen))
    pivot = (entries * one).reduce("sum", [rank - 2])
    factor = (entries - one) / pivot
    work, other = (m - factor * (one * m).reduce("sum", [rank - 2]) for m in (state.work, state.other))
    size = Term(b, b(ops.Squeeze, pivot.value, [rank - 2, rank - 1]))
    product = state.product.equals(0.0).choose(state.product, state.product * size)
    return _State(work, other, state.free * (1.0 - chosen), product), chosen, index


def _eliminated(b: Builder, x: Value, what: str) -> _Elimination:
    """Eliminate all columns, in a loop if there are many. UnsupportedError if the matrices are not square."""
    n, rank = x.shape[-1], x.rank
    if differ(x.shape[-2], n) or n == 0:
        raise UnsupportedError(f"{what} of matrices that are not square, or empty", type_=x.type)
    places = range_below(b, n, x)
    unit = Term(b, places).equals(Term(b, unsqueezed(b, places, [1]))).to(x.dtype).value
    batch = x.shape[:-2]
    ones = [broadcast(b, b.scalar(1.0, x), sizes, x) for sizes in ((*batch, n), batch)]
    state = _State(Term(b, x), Term(b, broadcast(b, unit, x.shape, x)), *(Term(b, one) for one in ones))
    if not at_most(n, LARGEST_ELIMINATED):
        return _eliminated_in_rounds(b, state, places)
    chosen, rows = [], []
    for k in range(n):
        state, one, row = _after_column(b, state, state.work.at(k, rank - 1), places)
        chosen.append(unsqueezed(b, one.value, [rank - 2]))
        rows.append(row.value)
    order, numbers = (b(ops.Concatenate, *parts, axis=rank - 2) for parts in (chosen, rows))
    return _Elimination(order, numbers, state.product, state.other)


def _eliminated_in_rounds(b: Builder, state: _State, places: Value) -> _Elimination:
    """Eliminate in a loop over the columns."""
    body, rank = Graph("column"), state.work.value.rank
    inner = Builder(body)
    before = [Term(inner, body.add_input(value.type)) for value in state.values]
    place = body.add_input(TensorType(places.dtype, ()))
    inside = body.add_input(places.type)
    column = Term(inner, inner(ops.Gather, before[0].value, place, axis=rank - 1))
    after, chosen, row = _after_column(inner, _State(*before), column, inside)
    body.outputs = [*after.values, chosen.value, inner(ops.Squeeze, row.value, [rank - 2])]
    flags = scan_attributes(len(state.values), (0,), (rank - 2,) * 2)
    _, other, _, product, order, rows = b.many(ops.Scan, None, *state.values, places, places, body=body, **flags)
    return _Elimination(order, rows, Term(b, product), Term(b, other))


@lift_onnx("Inverse", since=(1,), domain=MICROSOFT)
def _inverse(b: Builder, node: Node) -> Value:
    """Return the inverse: its row k is the pivot row of column k."""
    x = node.operand(0)
    found = _eliminated(b, x, "inverses")
    return batched(b, found.chosen, found.other.value)


@lift_onnx("Det", since=(11, 22))
def _det(b: Builder, node: Node) -> Value:
    """Return determinants; 1 for empty matrices, as in ONNX Runtime."""
    x = node.operand(0)
    n, rows = x.shape[-1], x.shape[-2]
    if differ(n, rows):
        raise ValueError(f"the determinant of a {rows} x {n} matrix")
    if n == 0:
        return broadcast(b, b.scalar(1.0, x), x.shape[:-2], x)
    return _by_minors(b, x, n) if at_most(n, LARGEST_BY_MINORS) else _by_pivots(b, x)


def _by_minors(b: Builder, x: Value, n: int) -> Value:
    """Expand by minors, each of which is computed once: n * 2**n products."""

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
    """Return the product of the pivots times the sign of the row permutation."""
    found, last = _eliminated(b, x, "determinants"), x.rank - 2
    rows = Term(b, found.rows).to(x.dtype)
    before = Term(b, unsqueezed(b, rows.value, [last + 1]))
    later = Term(b, unsqueezed(b, rows.value, [last]))
    above = Term(b, b(ops.Convert, _mask(b, x.shape[-1], x.shape[-1], x, "GT"), dtype=x.dtype))
    wrong = ((before > later).to(x.dtype) * above).reduce("sum", [last, last + 1])
    odd = Term(b, b(ops.Squeeze, wrong.value, [last, last + 1])) % 2.0
    return (found.product * (1.0 - odd * 2.0)).value


# --- triangles and diagonals -----------------------------------------------------------------------------------------


row(ops.Trilu, onnx="Trilu", since=(14,), attributes="upper", integers=(1,))
row(ops.Trilu, onnx="Trilu", since=(1,), domain=MICROSOFT, attributes="upper", integers=(1,), lowers=False)


@decompose(ops.Trilu)
def _trilu_by_mask(b: Builder, node: Node) -> Value:
    """Select the elements with column - row >= k (upper) or <= k (lower)."""
    x, k = node.operand(0), node.optional(1)
    if k is not None and 0 in k.shape:
        raise UnsupportedError("the operand `k` of Trilu is empty", node=node.name)
    rows, columns = x.shape[-2:]
    mask = _mask(b, rows, columns, x, "GE" if node.attr("upper") else "LE", k)
    return b(ops.Select, mask, x, b.scalar(0, x))


def _mask(b: Builder, rows: Dim, columns: Dim, source: Value, direction: str, k: Value | None = None) -> Value:
    """Compare column - row with `k` (absent: 0): bools [rows, columns]."""
    row, column = (Term(b, unsqueezed(b, range_below(b, d, source), [i])) for d, i in ((rows, 1), (columns, 0)))
    diagonal = 0 if k is None else Term(b, as_int64(b, reshape(b, k, ())))
    return (column - row).compared(direction, diagonal).value


_WHOLE = (DType.FLOAT32, DType.INT64, DType.INT32, DType.UINT32, DType.INT16, DType.INT8, DType.UINT8)


def _check_bytes(x: Value) -> None:
    """Raise UnsupportedError for dtypes of which LiteRT's kernels assume another size (matrix_diag.cc)."""
    stored = x.tensor_type.storage
    if stored not in _WHOLE:
        message = f"LiteRT's kernel does not move whole elements of {stored.value}"
        raise UnsupportedError(message, type_=x.type, code="E-OP-001")


@lift_tfl("MATRIX_DIAG")
def _matrix_diag(b: Builder, node: Node) -> Value:
    """Return square matrices with the last axis as diagonal; other elements are a stored 0."""
    diagonal = node.operand(0)
    _check_bytes(diagonal)
    size = diagonal.shape[-1]
    mask = _mask(b, size, size, diagonal, "EQ")
    return b(ops.Select, mask, unsqueezed(b, diagonal, [-1]), b.scalar(real_of_stored_zero(diagonal), diagonal))


@lift_tfl("MATRIX_SET_DIAG")
def _matrix_set_diag(b: Builder, node: Node) -> Value:
    """Replace the diagonals of matrices."""
    x, diagonal = node.operand(0), node.operand(1)
    _check_bytes(x)
    rows, columns = x.shape[-2:]
    column = unsqueezed(b, diagonal, [-1])
    more = rows - diagonal.shape[-1]
    if more != 0:
        amounts = dim_vector(b, [*[0] * (2 * x.rank - 3), more, 0, 0], x, diagonal)
        column = b(ops.Pad, column, reshape(b, amounts, (x.rank, 2)))
    return b(ops.Select, _mask(b, rows, columns, x, "EQ"), column, x)
