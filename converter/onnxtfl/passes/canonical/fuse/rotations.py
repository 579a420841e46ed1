"""Rotary position embeddings, which turn each pair of columns (x1, x2) of a head by the angle of its position.

::

    %x1, %x2 = Split(%x)                                              %x1, %x2 = Split(%x)
    Concatenate(%x1 * %c - %x2 * %s, %x2 * %c + %x1 * %s)    ->       %x * [%c, %c] + Concatenate(%x2, %x1) * [-%s, %s]

    Concatenate(-%x2, %x1) * %sin                            ->       Concatenate(%x2, %x1) * (%sin * [-1.., 1..])

All layers share the tables on the right, which have no axis of heads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static, known_sizes
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import made_by, single_use, spreads
from onnxtfl.ir.shapes import static_ints
from onnxtfl.rewriting.patterns import Patterns

ROTATIONS = Patterns()


@ROTATIONS.on(ops.Concatenate)
def whole_rotation(b: Builder, node: Node) -> Value | None:
    """Multiply both columns of all pairs at once."""
    parts = _halves_joined(node)
    difference, total = (made_by(v, ops.Sub, ops.Add) for v in parts) if parts else (None, None)
    if difference is None or total is None or difference.op is not ops.Sub or total.op is not ops.Add:
        return None
    if not all(single_use(n.result, b.graph) for n in (difference, total)):
        return None
    axis = node.attr("axis") % node.result.rank
    for first, cos in _factors(difference.operand(0)):
        for second, sin in _factors(difference.operand(1)):
            x = _halved(first, second, axis)
            wanted = [{second, cos}, {first, sin}]
            if x is None or x.type != node.result.type or not all(_is_table(t, first, axis) for t in (cos, sin)):
                continue
            if [found for v in total.operands for found in _products(v)] in (wanted, wanted[::-1]):
                cosines = b(ops.Concatenate, cos, cos, axis=cos.rank - node.result.rank + axis)
                sines = b(ops.Concatenate, (-Term(b, sin)).value, sin, axis=sin.rank - node.result.rank + axis)
                turned = b(ops.Concatenate, second, first, axis=axis)
                return b(ops.Add, b(ops.Mul, x, cosines), b(ops.Mul, turned, sines))
    return None


@ROTATIONS.on(ops.Mul)
def sign_in_table(b: Builder, node: Node) -> Value | None:
    """Negate a half of a table in place of a half of the columns."""
    for turned, table in (node.operands, node.operands[::-1]):
        joined = made_by(turned, ops.Concatenate)
        parts = _halves_joined(joined) if joined is not None else ()
        if joined is None or not parts or table is None or not single_use(joined.result, b.graph):
            continue
        axis = joined.attr("axis") % joined.result.rank
        negated, plain = made_by(parts[0], ops.Neg), parts[1]
        if negated is None or not _is_table(table, joined.result, axis):
            continue
        if not single_use(negated.result, b.graph) or _halved(plain, negated.operand(0), axis) is None:
            continue
        signs = np.repeat([-1, 1], plain.size(axis)).reshape([-1] + [1] * (joined.result.rank - 1 - axis))
        signed = b(ops.Mul, table, signs.astype(table.dtype.numpy))
        return b(ops.Mul, b(ops.Concatenate, negated.operand(0), plain, axis=axis), signed)
    return None


def _halves_joined(node: Node) -> tuple[Value, ...]:
    """The two operands of a concatenation, if they have equal sizes; else ()."""
    parts = tuple(node.present_operands)
    axis = node.attr("axis")
    sizes = [v.shape[axis] for v in parts if v.tensor_type.shape is not None]
    is_halved = len(sizes) == 2 == len(parts) and is_static(sizes) and sizes[0] == sizes[1] and parts[0].dtype.is_float
    return parts if is_halved else ()


def _factors(product: Value) -> Sequence[tuple[Value, Value]]:
    """The two factors of a product, in both orders; none for other values."""
    node = made_by(product, ops.Mul)
    return () if node is None else [(node.operand(0), node.operand(1)), (node.operand(1), node.operand(0))]


def _products(value: Value | None) -> Sequence[set[Value]]:
    node = made_by(value, ops.Mul)
    return [] if node is None else [{node.operand(0), node.operand(1)}]


def _is_table(value: Value, columns: Value, axis: int) -> bool:
    """Whether `value` has all columns of `columns` along `axis`, and repeats along another axis."""
    shape, full = value.tensor_type.shape, columns.tensor_type.shape
    if shape is None or full is None or len(shape) > len(full) or value.dtype is not columns.dtype:
        return False
    own = axis - (len(full) - len(shape))
    return own >= 0 and shape[own] == full[axis] and spreads(value, columns)


def _halved(first: Value, second: Value, axis: int) -> Value | None:
    """The value of which `first` and `second` are the two halves along `axis`; None if there is none."""
    nodes = [made_by(v, ops.Split, ops.Slice) for v in (first, second)]
    if None in nodes or len({n.operand(0) for n in nodes if n}) != 1 or len({n.op for n in nodes if n}) != 1:
        return None
    x = nodes[0].operand(0) if nodes[0] else first
    sizes = first.shape[axis], second.shape[axis], x.shape[axis]
    if first.rank != x.rank or not is_static(sizes) or sizes != (sizes[0], sizes[0], 2 * known_sizes(sizes)[0]):
        return None
    if nodes[0] is nodes[1]:
        is_first = nodes[0] is not None and nodes[0].attr("axis") % x.rank == axis and first is nodes[0].results[0]
        return x if is_first else None
    starts = [_start(n, axis) for n in nodes if n is not None]
    return x if starts in ([0, sizes[0]], [0, -sizes[0]]) else None


def _start(node: Node, axis: int) -> int | None:
    """Where a slice of columns of all rows begins along `axis`; None for other slices."""
    starts, strides = static_ints(node.operand(1)), static_ints(node.optional(3))
    if node.op is not ops.Slice or starts is None or (node.optional(3) is not None and set(strides or ()) != {1}):
        return None
    before, after = (v.shape[:axis] + v.shape[axis + 1 :] for v in (node.operand(0), node.result))
    return starts[axis] if before == after else None
