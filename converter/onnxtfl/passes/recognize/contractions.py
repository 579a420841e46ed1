"""Contractions over more axes than a MatMul has, which are one Einsum in ONNX.

::

    Reshape(DotGeneral(%x: btd, %w: nd)) n as h, k       ->  Contraction(%x: btd, %w: hkd)         result bthk
    DotGeneral(Reshape(%x: bthk) h, k as n, %w: dn)      ->  Contraction(%x: bthk, %w: dhk)        result btd
    Reduce(Contraction(%x: btd, %w: hkd)) sum over k     ->  Contraction(%x: btd, sum of %w over k)
    Slice(Reshape(%x: bnn) b, n * n) every n + 1         ->  Diagonal(%x)
    DotGeneral(Reshape(%x: nk) n1k, %w: 1km)             ->  Reshape(DotGeneral(%x, Reshape(%w) km)) n1m

Applied only if it saves more than one op, and constant matrices are under `LARGEST`: ONNX Runtime packs the matrix of a
MatMul once, that of an Einsum in every run.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Shape, known_size, product, size_or
from onnxtfl.ir.factors import Factors
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import made_by, single_use
from onnxtfl.ir.ops.contraction import DotRoles
from onnxtfl.ir.ops.reductions import reduced_axes
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.types import shape_of
from onnxtfl.rewriting.patterns import Patterns

CONTRACTIONS = Patterns()
LARGEST = 1 << 18
"""The number of elements that a constant matrix has to stay below."""


def _dot(value: Value | None) -> Node | None:
    """Return the producer of `value` if it is a contraction."""
    return made_by(value, ops.DotGeneral, ops.Contraction)


def _small_matrix(node: Node) -> bool:
    matrix = node.operand(1)
    return matrix.data is not None and matrix.data.size < LARGEST and node.result.dtype.is_float


def _factors(before: Shape, after: Shape | None) -> Factors | None:
    """Return the common factors of two shapes; None if there are none, or unit axes make them ambiguous."""
    found = Factors.of(before, after) if after is not None else None
    return None if found is None or () in (*found.before, *found.after) else found


def _places(parts: Sequence[Sequence[int]], axes: Sequence[int]) -> tuple[int, ...]:
    """Return the indices of the parts of `axes`."""
    return tuple(place for axis in axes for place in parts[axis])


def _split(count: int, splits: Mapping[int, int]) -> list[list[int]]:
    """Return the indices of `count` axes after axis i is split into splits[i] parts."""
    places = itertools.count()
    return [[next(places) for _ in range(splits.get(axis, 1))] for axis in range(count)]


@CONTRACTIONS.on(ops.DotGeneral)
def rows_of_one_matrix(b: Builder, node: Node) -> Value | None:
    """A batch of single rows times one matrix is a product of matrices, such as a step of a recurrent layer has."""
    rows, matrix, roles = made_by(node.operand(0), ops.Reshape), node.operand(1), DotRoles.of(node)
    if rows is None or matrix.data is None or node.attr("output_permutation") or not roles.is_batch_matmul:
        return None
    x, shape, last = rows.operand(0), rows.result.shape, rows.result.rank - 1
    is_plain = roles.lhs_contract == (last,) and roles.rhs_contract == (matrix.rank - 2,)
    if not is_plain or last != 2 or x.rank != 2 or matrix.shape[0] != 1 or shape != (x.shape[0], 1, x.shape[1]):
        return None
    product = b(
        ops.DotGeneral,
        x,
        reshape(b, matrix, matrix.shape[1:]),
        lhs_contracting_dimensions=(1,),
        rhs_contracting_dimensions=(0,),
    )
    return reshape(b, product, node.result.shape, x)


@CONTRACTIONS.on(ops.Reshape)
def split_columns(b: Builder, node: Node) -> Value | None:
    """Split the column axis of the matrix like the reshape, if that saves another op after it."""
    dot = _dot(node.operand(0))
    if dot is None or not _small_matrix(dot) or not single_use(dot.result, b.graph) or dot.attr("output_permutation"):
        return None
    after = shape_of(node.result.type)
    roles, matrix = DotRoles.of(dot), dot.operand(1)
    fine = _factors(dot.result.shape, after) if not roles.lhs_batch else None
    if fine is None or len(roles.rhs_free) != 1 or matrix.data is None or not _saves_users(node):
        return None
    column = dot.result.rank - 1
    if len(fine.before[column]) == 1 or any(len(parts) > 1 for parts in fine.before[:column]):
        return None
    (axis,) = roles.rhs_free
    parts = [known_size(d) for d in fine.sizes[column:]]
    shape = matrix.data.shape
    split = constant(matrix.data.reshape((*shape[:axis], *parts, *shape[axis + 1 :])))
    contract = _places(_split(len(shape), {axis: len(parts)}), roles.rhs_contract)
    result = b(ops.Contraction, dot.operand(0), split, **{**dot.attributes, "rhs_contracting_dimensions": contract})
    return reshape(b, result, node.result.shape, dot.operand(0))


def _saves_users(node: Node) -> bool:
    """Whether only transposes, reductions and contractions read the reshaped tensor."""
    users = node.result.users()
    return bool(users) and all(u.op in (ops.Transpose, ops.Reduce, ops.DotGeneral, ops.Contraction) for u in users)


@CONTRACTIONS.on(ops.DotGeneral, ops.Contraction)
def unmerged_operand(b: Builder, node: Node) -> Value | None:
    """Contract the axes that a reshape merged separately; split a constant matrix likewise."""
    merge = made_by(node.operand(0), ops.Reshape)
    before = merge.operand(0).tensor_type.shape if merge is not None else None
    if merge is None or before is None or not single_use(merge.result, b.graph) or node.attr("output_permutation"):
        return None
    fine = _factors(before, merge.result.shape)
    roles, rhs = DotRoles.of(node), node.operand(1)
    if fine is None or fine.sizes != before or any(len(fine.after[a]) > 1 for a in roles.lhs_batch):
        return None
    summed = any(len(fine.after[a]) > 1 for a in roles.lhs_contract)
    if rhs.is_constant and not _small_matrix(node):
        return None
    if not _saves_another(merge.operand(0), summed and rhs.is_constant, summed):
        return None
    if summed:
        rhs = _unmerged_matrix(rhs, roles, fine)
    contracted = zip(roles.lhs_contract, roles.rhs_contract, strict=True)
    split = _split(node.operand(1).rank, {other: len(fine.after[mine]) for mine, other in contracted})
    attributes = {
        "lhs_batching_dimensions": _places(fine.after, roles.lhs_batch),
        "rhs_batching_dimensions": _places(split, roles.rhs_batch),
        "lhs_contracting_dimensions": _places(fine.after, roles.lhs_contract),
        "rhs_contracting_dimensions": _places(split, roles.rhs_contract),
    }
    result = b(ops.Contraction, merge.operand(0), rhs, **attributes)
    return reshape(b, result, node.result.shape, merge.operand(0))


def _saves_another(source: Value, constant_sum: bool, summed: bool) -> bool:
    """Whether an op besides the reshape is saved: the transpose or contraction before it."""
    if summed:
        return constant_sum and made_by(source, ops.Transpose) is not None
    dot = made_by(source, ops.Contraction)
    return dot is not None and len(DotRoles.of(dot).rhs_free) > 1


def _unmerged_matrix(matrix: Value, roles: DotRoles, fine: Factors) -> Value:
    assert matrix.data is not None
    sizes: list[list[int]] = [[d] for d in matrix.data.shape]
    for mine, other in zip(roles.lhs_contract, roles.rhs_contract, strict=True):
        sizes[other] = [known_size(fine.sizes[k]) for k in _places(fine.after, [mine])]
    return constant(matrix.data.reshape([d for part in sizes for d in part]))


@CONTRACTIONS.on(ops.Reduce)
def summed_columns(b: Builder, node: Node) -> Value | None:
    """Sum over an axis of the matrix instead of the same axis of the result."""
    dot, axes = made_by(node.operand(0), ops.Contraction), reduced_axes(node)
    if dot is None or axes is None or node.attr("kind") != "sum" or node.attr("keepdims"):
        return None
    matrix, roles = dot.operand(1), DotRoles.of(dot)
    first = dot.result.rank - len(roles.rhs_free)
    if not _small_matrix(dot) or not single_use(dot.result, b.graph) or dot.attr("output_permutation"):
        return None
    if roles.rhs_batch or any(a < first for a in axes):
        return None
    summed = [roles.rhs_free[a - first] for a in axes]
    less = b(ops.Reduce, matrix, summed, kind="sum", keepdims=False)
    contract = tuple(a - sum(s < a for s in summed) for a in roles.rhs_contract)
    return b(ops.Contraction, dot.operand(0), less, **{**dot.attributes, "rhs_contracting_dimensions": contract})


@CONTRACTIONS.on(ops.Slice)
def diagonal(b: Builder, node: Node) -> Value | None:
    """Replace a slice of every (n + 1)-th of n * n elements by Diagonal."""
    flat = made_by(node.operand(0), ops.Reshape)
    source = flat.operand(0).tensor_type.shape if flat is not None else None
    bounds = [static_ints(v) for v in node.operands[1:4]]
    if flat is None or source is None or len(source) < 2 or None in bounds or source[-1] != source[-2]:
        return None
    starts, strides, size = bounds[0] or [], bounds[2] or [], size_or(source[-1], 0)
    if size < 2 or flat.result.shape != (*source[:-2], product(source[-2:])):
        return None
    whole = node.result.shape == (*source[:-2], size) and not any(starts) and strides[:-1] == [1] * (len(strides) - 1)
    return b(ops.Diagonal, flat.operand(0)) if whole and strides[-1] == size + 1 else None
