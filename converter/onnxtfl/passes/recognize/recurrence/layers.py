"""A recognized layer and the op that is written for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, product
from onnxtfl.ir.graph import Value, constant
from onnxtfl.ir.matching import made_by, without_reshapes
from onnxtfl.ir.op import Op
from onnxtfl.ir.reshape import reshape, transposed
from onnxtfl.passes.recognize.recurrence.cleanup import range_along
from onnxtfl.passes.recognize.recurrence.matching import GIVEN, INPUT, PART, RECURRENT, Bound, Pattern
from onnxtfl.passes.recognize.recurrence.polynomials import Piece, Poly, UnfitError, products
from onnxtfl.passes.recognize.recurrence.reading import pieces_of


@dataclass(frozen=True)
class Steps:
    """The parts [N, M] of `sequence` [T, N, M] (`time_first`) or [N, T, M] that the steps read.

    Parts may have other shapes with the same order of elements, such as [1, N, M].
    """

    sequence: Value
    count: Dim
    batch: Dim
    time_first: bool = True
    reverse: bool = False

    def ordered(self, b: Builder, x: Value, width: Dim) -> Value:
        """Return `x`, which has the axis order of `sequence` and `width` columns, as [T, N, width]."""
        if self.time_first:
            return reshape(b, x, (self.count, self.batch, width), self.sequence)
        return transposed(b, reshape(b, x, (self.batch, self.count, width), self.sequence), (1, 0, 2))

    def as_written(self, b: Builder, output: Value, result: Value) -> Value:
        """Return `output` [T, N, H] with the shape and axis order of `result`."""
        output = output if self.time_first else transposed(b, output, (1, 0, 2))
        return reshape(b, output, result.shape, output, result)


@dataclass(frozen=True)
class Layer:
    """A recognized layer: its pattern with bound operands, the `lengths` of its sequences, its number of cells."""

    pattern: Pattern
    bound: Bound
    lengths: Value | None
    cells: int

    @property
    def values(self) -> list[Value]:
        """The matrices and lengths that the layer reads."""
        polys = [v for v in self.bound.values() if isinstance(v, Poly)]
        pieces = [atom.piece for poly in polys for atom in products(poly) if atom.piece is not None]
        pieces += [v for v in self.bound.values() if isinstance(v, Piece)]
        return [*(p.value for p in pieces), *([] if self.lengths is None else [self.lengths])]

    def write(self, b: Builder, steps: Steps, initial: Sequence[Value | None]) -> list[Value]:
        """Write the op; return the output [T, N, H] and the last states [N, H]. UnfitError if there is no such op."""
        x, weights, bias = self._input(b, steps)
        given: dict[str, Value | None] = {
            "input": x,
            "weights": weights,
            "recurrent": _stacked(b, [self.bound.get((RECURRENT, i), self.bound[RECURRENT, 0]) for i in self._starts]),
            "bias": None if not bias.any() else constant(bias, x.dtype),
            "lengths": None if self.lengths is None else reshape(b, self.lengths, (steps.batch,)),
        }
        for name, value in zip(self.pattern.kind.states, initial, strict=True):
            given[name] = None if value is None else reshape(b, value, (steps.batch, self.cells), x)
        for name in ("peepholes", "recurrent_bias"):
            numbers = self._numbers(name)
            given[name] = None if numbers is None else constant(numbers, x.dtype)
        operands = Op.trimmed(given.get(o.name) for o in self.pattern.kind.operands)
        return b.many(self.pattern.kind, *operands, reverse=steps.reverse, **self.pattern.attributes)

    @property
    def _starts(self) -> list[int]:
        """The first row of each gate; the uncomputed gate of a coupled layer has the weights of the first gate."""
        return [gate * self.cells for gate in range(self.pattern.kind.gates)]

    def _input(self, b: Builder, steps: Steps) -> tuple[Value, Value, Array]:
        """Return the input [T, N, I], its weights, and the bias of all gates."""
        found = [self.bound.get((INPUT, start), self.bound[(INPUT, 0)]) for start in self._starts]
        parts = [_affine(poly, self.cells) for poly in found]
        numbers = np.concatenate([p.numbers for p in parts])
        if all(p.piece is not None for p in parts):
            pieces, x = [p.piece for p in parts if p.piece is not None], steps.sequence
        elif all(p.piece is None for p in parts):
            factors = product_factors(steps.sequence)
            if (
                factors.part is not None and self.lengths is not None
            ):  # lengths may exceed the number of steps in the part
                raise UnfitError
            x, matrix, bias = factors.rows(b), factors.matrix, factors.bias
            pieces = [matrix.part(p.start, p.start + self.cells) for p in parts]
            if bias is not None:
                numbers = numbers + np.concatenate([bias[p.start : p.start + self.cells] for p in parts])
        else:
            raise UnfitError
        width = pieces[0].right - pieces[0].left
        return steps.ordered(b, x, width), _stacked(b, pieces), numbers

    def _numbers(self, name: str) -> Array | None:
        """Return the vectors of all gates concatenated, 0 for an uncomputed gate; None if all are 0."""
        starts = self._starts[: 3 if name == "peepholes" else None]
        found = [self.bound.get((GIVEN, name, start), np.zeros(())) for start in starts]
        if not any(v.any() for v in found):
            return None
        return np.concatenate([np.broadcast_to(v, (self.cells,)) for v in found])


@dataclass(frozen=True)
class _Affine:
    """The input of a gate: columns from `start` of a part, or a part times `piece`; plus `numbers`."""

    start: int
    piece: Piece | None
    numbers: Array


def _affine(poly: Poly, cells: int) -> _Affine:
    terms = dict(poly.terms)
    numbers = np.broadcast_to(terms.pop((), np.zeros(())), (cells,))
    if len(terms) != 1:
        raise UnfitError
    ((monomial, factor),) = terms.items()
    if len(monomial) != 1 or factor.ndim or factor != 1:
        raise UnfitError
    (atom,) = monomial
    if atom.kind == "leaf" and atom.name == PART:
        return _Affine(atom.start, None, numbers)
    argument = atom.arguments[0].atom if atom.kind == "dot" else None
    if argument is None or argument.name != PART or argument.start or atom.piece is None:
        raise UnfitError
    if argument.detail != atom.piece.right - atom.piece.left:
        raise UnfitError
    return _Affine(0, atom.piece, numbers)


@dataclass(frozen=True)
class Factors:
    """left times `matrix` plus `bias`, sliced to the range `part` of the first axis.

    `shape`: the shape before slicing; the last axis has the rows of the matrix.
    """

    left: Value
    matrix: Piece
    bias: Array | None
    shape: tuple[Dim, ...]
    part: tuple[int, int] | None = None

    def rows(self, b: Builder) -> Value:
        """Return the rows of `left` that are multiplied."""
        if self.part is None:
            return self.left
        x = reshape(b, self.left, (*self.shape[:-1], self.matrix.right - self.matrix.left))
        starts, ends = ([n, *[end] * (x.rank - 1)] for n, end in zip(self.part, (0, ops.END), strict=True))
        return b(ops.Slice, x, starts, ends, [1] * x.rank)


def product_factors(value: Value) -> Factors:
    """Return the factors of the product that computes `value`, perhaps sliced; UnfitError if there is none."""
    value = without_reshapes(value)
    cut = made_by(value, ops.Slice)
    if cut is None:
        return _factors_of_product(value)
    part, whole = range_along(cut, 0), cut.operand(0)
    if part is None or not whole.is_static or whole.rank < 2:
        raise UnfitError
    found = _factors_of_product(whole)
    if found.matrix.rows != whole.shape[-1] or product(found.left.shape[:-1]) != product(whole.shape[:-1]):
        raise UnfitError
    return replace(found, shape=whole.shape, part=part)


def _factors_of_product(value: Value) -> Factors:
    shape, node = value.shape, without_reshapes(value).producer
    bias = None
    if node is not None and node.op is ops.Add and node.operand(1).is_constant:
        bias, node = node.operand(1), made_by(without_reshapes(node.operand(0)), ops.DotGeneral)
    if node is None or node.op not in (ops.DotGeneral, ops.DotGeneralBias):
        raise UnfitError
    pieces = pieces_of(node)
    bias = node.optional(2) if bias is None else bias
    if len(pieces) != 1 or (bias is not None and bias.data is None):
        raise UnfitError
    if bias is None:
        return Factors(node.operand(0), pieces[0], None, shape)
    numbers = bias.numpy().astype(np.float64)
    rows = pieces[0].rows
    if numbers.size not in (1, rows) or (numbers.size > 1 and bias.shape[-1:] != (rows,)):
        raise UnfitError
    return Factors(node.operand(0), pieces[0], np.broadcast_to(numbers.reshape(-1), (rows,)), shape)


def _stacked(b: Builder, pieces: Sequence[Piece]) -> Value:
    """Concatenate the rows of all `pieces` to one matrix."""
    first, rows = pieces[0], [r for p in pieces for r in (p.start, p.stop)]
    joined = all(p.key == first.key and p.transposed == first.transposed for p in pieces)
    whole = (rows[0], rows[-1], first.left, first.right) == (0, first.rows, 0, first.columns)
    if joined and whole and rows[1:-1:2] == rows[2::2]:
        return matrix_of(b, first)
    return b(ops.Concatenate, *(_rows(b, p) for p in pieces), axis=0)


def matrix_of(b: Builder, piece: Piece) -> Value:
    """Return the whole matrix of `piece` as [rows, columns]."""
    if piece.transposed:
        return transposed(b, reshape(b, piece.value, (piece.columns, piece.rows)), (1, 0))
    return reshape(b, piece.value, (piece.rows, piece.columns))


def _rows(b: Builder, piece: Piece) -> Value:
    starts, limits = [piece.start, piece.left], [piece.stop, piece.right]
    return b(ops.Slice, matrix_of(b, piece), starts, limits, [1, 1])
