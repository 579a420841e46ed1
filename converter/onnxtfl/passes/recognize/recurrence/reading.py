"""Conversion of values of a graph to polynomials of the leaves of a step."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, at_most, product
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import without_reshapes
from onnxtfl.ir.op import Elementwise, attributes_of
from onnxtfl.ir.ops.contraction import DotRoles
from onnxtfl.ir.quantized import touches_quantized
from onnxtfl.ir.shapes import normalize_axis, static_ints
from onnxtfl.passes.recognize.recurrence.polynomials import (
    ZERO,
    Atoms,
    Piece,
    Poly,
    UnfitError,
    number,
    plus,
    times,
)

Columns = list[tuple[int, Poly]]
"""A value [N, M] as ranges of columns: the width and the polynomial of each."""

MOST_ROWS = 1 << 10
"""The largest batch for which constants are compared across rows."""
DEEPEST = 100
"""The maximum depth of the recursion over producers."""


class Reader:
    """Converts values of one step, each [N, M] for N = `batch` sequences up to reshapes, to polynomials.

    `leaf` returns the columns of a value that is a leaf, None for others. `position`: the index of the step, if known.
    """

    def __init__(
        self, atoms: Atoms, batch: Dim, leaf: Callable[[Value], Columns | None], position: int | None = None
    ) -> None:
        self.atoms, self.batch, self._leaf, self.position = atoms, batch, leaf, position
        self.outside: dict[Value, Value] = {}
        """Inputs of a region and their values outside of it."""
        self._read: dict[Value, Columns] = {}
        self._depth = 0

    def poly(self, value: Value) -> Poly:
        """Return the polynomial of all columns of `value`; UnfitError if there are several."""
        columns = self.columns(value)
        if len(columns) != 1:
            raise UnfitError
        return columns[0][1]

    def columns(self, value: Value) -> Columns:
        """Return the columns of `value`; UnfitError if it is too deep."""
        found = self._read.get(value)
        if found is None:
            self._depth += 1
            if self._depth > DEEPEST:
                raise UnfitError
            found = self._read[value] = self._found(value)
            self._depth -= 1
        return found

    def _found(self, value: Value) -> Columns:
        found = self._leaf(value)
        if found is not None:
            return found
        if value.data is not None:
            return self._operand(value, value)
        node = value.producer
        if node is None or touches_quantized(node):
            return self.named(value)
        read = _READERS.get(node.op)
        if read is None and issubclass(node.op, Elementwise) and len(node.results) == 1 and value.dtype.is_float:
            read = Reader.applied
        with contextlib.suppress(UnfitError):
            if read is not None:
                return read(self, node, value)
        return self.named(value)

    def named(self, value: Value, name: Hashable = None) -> Columns:
        """Return `value` as a leaf."""
        width = self.width(value)
        return [(width, self.atoms.leaf(("value", self._base(value)) if name is None else name, 0, width))]

    def _base(self, value: Value) -> Value:
        """Return `value` before reshapes, outside of a region."""
        base = without_reshapes(value)
        return without_reshapes(self.outside[base]) if base in self.outside else base

    def width(self, value: Value) -> int:
        """Return the number of columns of `value`, not 0; UnfitError unless its leading axes have `batch` elements."""
        shape = value.tensor_type.shape
        if shape is None:
            raise UnfitError
        for i in range(len(shape) + 1):
            rest = product(shape[i:])
            if product(shape[:i]) == self.batch and isinstance(rest, int) and rest > 0:
                return rest
        raise UnfitError

    def _columns_from(self, value: Value, axis: int, columns: Columns) -> int:
        """Return the columns per index of `axis` of `value`; UnfitError if its parts are not ranges of columns."""
        axis = normalize_axis(axis, value.rank)
        if product(value.shape[axis:]) != _total(columns):
            raise UnfitError
        return _static(product(value.shape[axis + 1 :]))

    def reshaped(self, node: Node, value: Value) -> Columns:
        columns = self.columns(node.operand(0))
        if self.width(value) != _total(columns):
            raise UnfitError
        return columns

    def split(self, node: Node, value: Value) -> Columns:
        x, axis = node.operand(0), node.attr("axis")
        columns = self.columns(x)
        each = self._columns_from(x, axis, columns)
        sizes = [r.shape[axis] for r in node.results]
        start = sum(sizes[: value.index]) * each
        return self.cut(columns, start, start + sizes[value.index] * each)

    def sliced(self, node: Node, value: Value) -> Columns:
        x, (starts, limits, strides) = node.operand(0), (static_ints(node.operand(i)) for i in (1, 2, 3))
        if starts is None or limits is None or strides is None:
            raise UnfitError
        changed = [i for i, (a, b) in enumerate(zip(x.shape, value.shape, strict=True)) if a != b]
        if len(changed) != 1 or any(s != 1 for s in strides):
            raise UnfitError
        (axis,) = changed
        columns = self.columns(x)
        each = self._columns_from(x, axis, columns)
        start = starts[axis] + (x.shape[axis] if starts[axis] < 0 else 0)
        return self.cut(columns, start * each, (start + value.shape[axis]) * each)

    def joined(self, node: Node, value: Value) -> Columns:
        parts = [self.columns(v) for v in node.present_operands]
        columns = [each for part in parts for each in part]
        self._columns_from(value, node.attr("axis"), columns)
        return columns

    def dot(self, node: Node, value: Value) -> Columns:
        pieces = self._pieces(node)
        columns = self._sum_of_products(self.columns(node.operand(0)), pieces)
        bias = node.optional(2)
        if self.width(value) != _total(columns):
            raise UnfitError
        if bias is None:
            return columns
        return self._combined([columns, self._operand(bias, value)], plus)

    def _pieces(self, node: Node) -> list[Piece]:
        """Return the matrix [outputs, inputs] that multiplies each row of the left operand."""
        pieces = pieces_of(node)
        return [replace(p, value=self.outside.get(p.value, p.value)) for p in pieces]

    def _sum_of_products(self, columns: Columns, pieces: Sequence[Piece]) -> Columns:
        found = []
        for piece in pieces:
            if piece.right - piece.left != _total(columns):
                raise UnfitError
            total, start = ZERO, 0
            for width, poly in columns:
                constant = poly.constant
                if constant is not None and constant.any():
                    raise UnfitError
                total = plus(total, self.atoms.dot(poly, piece.across(start, start + width)))
                start += width
            found.append((piece.height, total))
        return found

    def selected(self, node: Node, value: Value) -> Columns:
        mask, on_true, on_false = (node.operand(i) for i in range(3))
        valid = self._mask(mask)
        given = [self._operand(v, value) for v in (on_true, on_false)]
        return self._combined(given, lambda a, b: self.atoms.apply(ops.Select, None, [valid, a, b]))

    def _mask(self, mask: Value) -> Poly:
        """Return the mask step index < lengths; UnfitError for other conditions."""
        node = without_reshapes(mask).producer
        if node is None or node.op is not ops.Compare or node.attr("comparison_direction") != "LT":
            raise UnfitError
        position, lengths = node.operand(0), self._base(node.operand(1))
        if product(mask.shape) != self.batch or product(lengths.shape) != self.batch or mask.shape[-1:] != (1,):
            raise UnfitError
        if not self._is_position(position):
            raise UnfitError
        return self.atoms.leaf(("lengths", lengths), 0, None)

    def _is_position(self, value: Value) -> bool:
        known = static_ints(value)
        if known is not None:
            return self.position is not None and list(known) == [self.position]
        while value.producer is not None and value.producer.op in (ops.Convert, ops.Reshape):
            value = value.producer.operand(0)
        found = self._leaf(value)
        atom = None if found is None else found[0][1].atom
        return atom is not None and atom.name == ("position",)

    def applied(self, node: Node, value: Value) -> Columns:
        given = [self._operand(v, value) if v is not None else [(0, ZERO)] for v in node.operands]
        present = tuple(v is not None for v in node.operands)
        widths = [g for g, there in zip(given, present, strict=True) if there]
        details = (tuple(sorted((k, str(v)) for k, v in attributes_of(node).items())), present)
        return self._combined(widths, lambda *polys: self.atoms.apply(node.op, details, polys))

    def sum(self, node: Node, value: Value) -> Columns:
        factor = -1.0 if node.op is ops.Sub else 1.0
        return self._binary(node, lambda a, b: plus(a, b, factor))

    def product(self, node: Node, value: Value) -> Columns:
        return self._binary(node, times)

    def negated(self, node: Node, value: Value) -> Columns:
        return [(width, plus(ZERO, poly, -1.0)) for width, poly in self.columns(node.operand(0))]

    def _binary(self, node: Node, function: Callable[[Poly, Poly], Poly]) -> Columns:
        value = node.result
        if not value.dtype.is_float:
            raise UnfitError
        return self._combined([self._operand(node.operand(i), value) for i in (0, 1)], function)

    def _operand(self, operand: Value, result: Value) -> Columns:
        """Return the columns of an operand broadcast to `result`."""
        width = self.width(result)
        if operand.data is not None:
            return [(width, number(self._constant(operand, result, width)))]
        columns = self.columns(operand)
        if _total(columns) != width:
            raise UnfitError
        return columns

    def _constant(self, operand: Value, result: Value, width: int) -> Array:
        """Return a scalar or one value per column; UnfitError if rows differ, or if there are none."""
        if operand.is_quantized or operand.data is None:
            raise UnfitError
        if operand.data.size == 1:
            return np.asarray(operand.numpy(), np.float64).reshape(())
        if at_most(self.batch, MOST_ROWS) and result.is_static:
            rows = np.broadcast_to(operand.numpy(), result.shape).reshape(-1, width)
            if not len(rows) or (rows != rows[:1]).any():
                raise UnfitError
            return np.asarray(rows[0], np.float64)
        if operand.data.size != width or operand.shape[-1:] != (width,) or result.shape[-1:] != (width,):
            raise UnfitError
        return np.asarray(operand.numpy(), np.float64).reshape(-1)

    def cut(self, columns: Columns, start: int, stop: int) -> Columns:
        """Return columns `start` to `stop`."""
        found, before = [], 0
        for width, poly in columns:
            first, last = max(start - before, 0), min(stop - before, width)
            if first < last:
                whole = first == 0 and last == width
                found.append((last - first, poly if whole else self.atoms.columns(poly, first, last)))
            before += width
        return found

    def _combined(self, given: Sequence[Columns], function: Callable[..., Poly]) -> Columns:
        """Apply `function` to each range of columns in which no operand changes its polynomial."""
        ends = sorted({end for columns in given for end in _ends(columns)})
        pairs = zip([0, *ends], ends, strict=False)
        if any(_total(columns) != ends[-1] for columns in given):
            raise UnfitError
        return [(b - a, function(*(self.cut(c, a, b)[0][1] for c in given))) for a, b in pairs]


def pieces_of(node: Node) -> list[Piece]:
    """Return the matrix [outputs, inputs] that multiplies each row of the left operand; UnfitError if there is none."""
    lhs, rhs = node.operand(0), node.operand(1)
    attributes = attributes_of(node)
    roles = DotRoles(attributes, lhs.rank, rhs.rank)
    count = len(roles.lhs_contract)
    trailing = list(range(lhs.rank - count, lhs.rank))
    if roles.lhs_batch or attributes["output_permutation"] or list(roles.lhs_contract) != trailing:
        raise UnfitError
    if not rhs.is_static:
        raise UnfitError
    inputs = _static(product(rhs.shape[i] for i in roles.rhs_contract))
    outputs = _static(product(rhs.shape)) // max(inputs, 1)
    if list(roles.rhs_contract) == list(range(rhs.rank - count, rhs.rank)):
        return _rows_of(rhs) if rhs.rank == 2 else [Piece.whole(rhs, outputs, inputs)]
    if list(roles.rhs_contract) != list(range(count)):
        raise UnfitError
    return [Piece.whole(rhs, outputs, inputs, transposed=True)]


def _rows_of(matrix: Value) -> list[Piece]:
    """Return `matrix` as the rows of other matrices that it is split or concatenated from."""
    node = matrix.producer
    if node is not None and node.op is ops.Concatenate and normalize_axis(node.attr("axis"), 2) == 0:
        return [piece for v in node.present_operands for piece in _rows_of(v)]
    if node is None or node.op is not ops.Split or normalize_axis(node.attr("axis"), 2) != 0:
        return [Piece.whole(matrix, *matrix.shape)]
    ends = list(itertools.accumulate(r.shape[0] for r in node.results))
    return [
        Piece.whole(node.operand(0), *node.operand(0).shape).part(
            ends[matrix.index] - matrix.shape[0], ends[matrix.index]
        )
    ]


def _static(size: Dim) -> int:
    if not isinstance(size, int):
        raise UnfitError
    return size


def _total(columns: Columns) -> int:
    return sum(width for width, _ in columns)


def _ends(columns: Columns) -> list[int]:
    ends, end = [], 0
    for width, _ in columns:
        end += width
        ends.append(end)
    return ends


_READERS: dict[Any, Callable[[Reader, Node, Value], Columns]] = {
    ops.Reshape: Reader.reshaped,
    ops.Copy: Reader.reshaped,
    ops.Split: Reader.split,
    ops.Slice: Reader.sliced,
    ops.Concatenate: Reader.joined,
    ops.DotGeneral: Reader.dot,
    ops.DotGeneralBias: Reader.dot,
    ops.Select: Reader.selected,
    ops.Add: Reader.sum,
    ops.Sub: Reader.sum,
    ops.Mul: Reader.product,
    ops.Neg: Reader.negated,
}
