"""Polynomials: a normal form of the steps of recurrent layers.

A float value [N, M] of a step (N sequences) is one `Poly` per range of columns that is computed differently.
Concatenated and separate gates, in any order, have the same polynomials::

    Split(Sigmoid(x + h R^T), 3)       ->   sigmoid(x[0:H] + h R[0:H]^T), sigmoid(x[H:2H] + h R[H:2H]^T), ...
    (1 - z) n + z h,  n + z (h - n)    ->   n - z n + z h

Equal polynomials are equal functions of real numbers; only products of constants are rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Value

Monomial = tuple["Atom", ...]


@dataclass(frozen=True, eq=False)
class Atom:
    """A factor of a monomial: columns of a leaf, a function of polynomials, or a product with a matrix.

    `kind`: "leaf" (`name`, columns from `start`), "apply" (op `name` with attributes `detail`, of `arguments`), or
    "dot" (`piece` of a matrix, transposed, times the argument). `key` identifies it; equal atoms are one object.
    """

    kind: str
    name: Any
    key: int
    start: int = 0
    detail: Any = None
    arguments: tuple[Poly, ...] = ()
    piece: Piece | None = None


@dataclass(frozen=True)
class Piece:
    """Rows `start` to `stop` and columns `left` to `right` of a matrix (of its transpose, if `transposed`).

    `value`: a tensor of any shape with `rows` times `columns` elements.
    """

    value: Value = field(compare=False)
    key: Hashable
    transposed: bool
    rows: int
    columns: int
    start: int
    stop: int
    left: int
    right: int

    @classmethod
    def whole(cls, value: Value, rows: int, columns: int, *, transposed: bool = False) -> Piece:
        """Return the piece that covers the whole matrix."""
        key = id(value) if value.data is None else value.data.key
        return cls(value, key, transposed, rows, columns, 0, rows, 0, columns)

    def part(self, start: int, stop: int) -> Piece:
        """Return a range of rows of this piece."""
        return replace(self, start=self.start + start, stop=self.start + stop)

    def across(self, left: int, right: int) -> Piece:
        """Return a range of columns of this piece."""
        return replace(self, left=self.left + left, right=self.left + right)

    @property
    def height(self) -> int:
        """The number of rows."""
        return self.stop - self.start

    @property
    def identity(self) -> Hashable:
        return self.key, self.transposed, self.columns, self.start, self.stop, self.left, self.right


class Poly:
    """A sum of products of atoms with coefficients: scalars, or one value per column."""

    __slots__ = ("key", "terms")

    def __init__(self, terms: Mapping[Monomial, Array]) -> None:
        kept = {m: _least(c) for m, c in terms.items()}
        self.terms: dict[Monomial, Array] = {m: c for m, c in kept.items() if c.ndim or c != 0}
        parts = (((tuple(a.key for a in m)), c.shape, c.tobytes()) for m, c in self.terms.items())
        self.key: Hashable = frozenset(parts)

    @property
    def constant(self) -> Array | None:
        """The value of a polynomial without atoms, else None."""
        if any(self.terms.keys()):
            return None
        return self.terms.get((), np.zeros(()))

    @property
    def atom(self) -> Atom | None:
        """The atom if the polynomial is a single atom, else None."""
        if len(self.terms) != 1:
            return None
        ((monomial, factor),) = self.terms.items()
        return monomial[0] if len(monomial) == 1 and not factor.ndim and factor == 1 else None


def _least(coefficient: Array) -> Array:
    """Return a scalar if all columns are equal."""
    if coefficient.ndim and (coefficient == coefficient.reshape(-1)[0]).all():
        return np.asarray(coefficient.reshape(-1)[0])
    return coefficient


ONE = np.ones(())
ZERO = Poly({})


def number(value: Array | float) -> Poly:
    """Return a constant polynomial: a scalar, or one value per column."""
    return Poly({(): np.asarray(value, np.float64)})


def plus(a: Poly, b: Poly, factor: float = 1.0) -> Poly:
    """Return a + factor * b."""
    terms = dict(a.terms)
    for monomial, coefficient in b.terms.items():
        scaled = coefficient if factor == 1.0 else coefficient * factor
        terms[monomial] = terms[monomial] + scaled if monomial in terms else scaled
    return Poly(terms)


MOST_TERMS = 64
"""The most terms of a product; steps of layers have fewer than ten."""


class UnfitError(Exception):
    """Raised for nodes that are not the step of a recurrent layer."""


def times(a: Poly, b: Poly) -> Poly:
    """Return a * b, expanded."""
    if len(a.terms) * len(b.terms) > MOST_TERMS:
        raise UnfitError
    terms: dict[Monomial, Array] = {}
    for m, c in a.terms.items():
        for n, d in b.terms.items():
            joined = tuple(sorted((*m, *n), key=lambda atom: atom.key))
            terms[joined] = terms[joined] + c * d if joined in terms else c * d
    return Poly(terms)


class Atoms:
    """The atoms of one comparison; equal atoms are the same object."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Atom] = {}
        self.patterns: dict[Hashable, Any] = {}
        """Cache of the layers' patterns over these atoms."""

    def _atom(self, identity: Hashable, kind: str, name: Any, **more: Any) -> Poly:
        atom = self._made.get(identity)
        if atom is None:
            atom = self._made[identity] = Atom(kind, name, len(self._made), **more)
        return Poly({(atom,): ONE})

    def leaf(self, name: Hashable, start: int, width: int | None) -> Poly:
        """Return columns `start` to `start + width` of the leaf `name`; None: the same for all columns."""
        return self._atom(("leaf", name, start, width), "leaf", name, start=start, detail=width)

    def apply(self, name: Any, detail: Hashable, arguments: Sequence[Poly]) -> Poly:
        """Return an elementwise function of polynomials."""
        identity = ("apply", name, detail, tuple(a.key for a in arguments))
        return self._atom(identity, "apply", name, detail=detail, arguments=tuple(arguments))

    def dot(self, argument: Poly, piece: Piece) -> Poly:
        """Return `argument` times the transposed `piece`."""
        if not argument.terms:
            return ZERO
        identity = ("dot", argument.key, piece.identity)
        return self._atom(identity, "dot", "dot", arguments=(argument,), piece=piece)

    def columns(self, poly: Poly, start: int, stop: int) -> Poly:
        """Return columns `start` to `stop` of `poly`."""
        return self._mapped(
            poly,
            lambda atom: self._columns(atom, start, stop),
            lambda c: c[start:stop] if c.ndim else c,
        )

    def _columns(self, atom: Atom, start: int, stop: int) -> Poly:
        if atom.kind == "leaf":
            every = atom.detail is None
            return Poly({(atom,): ONE}) if every else self.leaf(atom.name, atom.start + start, stop - start)
        if atom.piece is not None:
            return self.dot(atom.arguments[0], atom.piece.part(start, stop))
        return self.apply(atom.name, atom.detail, [self.columns(a, start, stop) for a in atom.arguments])

    def substitute(self, poly: Poly, leaf: Callable[[Atom], Poly | None]) -> Poly:
        """Replace leaves of `poly` by polynomials, where `leaf` returns one."""
        return self._mapped(poly, lambda atom: self._substituted(atom, leaf), lambda c: c)

    def _substituted(self, atom: Atom, leaf: Callable[[Atom], Poly | None]) -> Poly:
        if atom.kind == "leaf":
            other = leaf(atom)
            return Poly({(atom,): ONE}) if other is None else other
        arguments = [self.substitute(a, leaf) for a in atom.arguments]
        if atom.piece is not None:
            return self.dot(arguments[0], atom.piece)
        return self.apply(atom.name, atom.detail, arguments)

    def _mapped(self, poly: Poly, of_atom: Callable[[Atom], Poly], of_number: Callable[[Array], Array]) -> Poly:
        whole = ZERO
        for monomial, coefficient in poly.terms.items():
            product = number(of_number(coefficient))
            for atom in monomial:
                product = times(product, of_atom(atom))
            whole = plus(whole, product)
        return whole


def all_atoms(poly: Poly) -> list[Atom]:
    """Return all atoms in `poly`, also those in arguments of atoms."""
    found: dict[Atom, None] = {}
    work = [poly]
    while work:
        for atom in (a for m in work.pop().terms for a in m):
            if atom not in found:
                found[atom] = None
                work.extend(atom.arguments)
    return list(found)


def leaves(poly: Poly) -> Iterable[Atom]:
    """Return the leaves in `poly`."""
    return (atom for atom in all_atoms(poly) if atom.kind == "leaf")


def functions(poly: Poly) -> Iterable[Atom]:
    """Return the elementwise functions in `poly`."""
    return (atom for atom in all_atoms(poly) if atom.kind == "apply")


def products(poly: Poly) -> Iterable[Atom]:
    """Return the matrix products in `poly`."""
    return (atom for atom in all_atoms(poly) if atom.kind == "dot")
