"""Unification of a step with the steps of the known layers."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.op import Op
from onnxtfl.ir.ops.recurrence import Recurrent
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.passes.recognize.recurrence.polynomials import (
    Atom,
    Atoms,
    Monomial,
    Piece,
    Poly,
    all_atoms,
    functions,
    leaves,
    products,
)
from onnxtfl.passes.recognize.recurrence.reading import Columns, Reader

Bound = Mapping[Hashable, Any]
"""The operands bound so far: a `Poly` for columns of the input, a `Piece` for a matrix, arrays for vectors."""

INPUT, RECURRENT, GIVEN = "input", "recurrent", "given"
PART = ("part",)
"""The name of the leaf for the part of the sequence that a step reads."""


def state(role: int) -> tuple[str, int]:
    """Return the name of the leaf for state `role` before a step."""
    return ("state", role)


@dataclass(frozen=True)
class Pattern:
    """The step of a kind of layer with optional operands `given` and attributes."""

    kind: type[Recurrent]
    given: tuple[str, ...]
    attributes: Mapping[str, Any]

    def states(self, atoms: Atoms, cells: int) -> list[Poly]:
        """Return the new states of a layer with `cells` cells as polynomials of the input, the old states and operands.

        The only matrix is that of the recurrent weights.
        """
        key = (self.kind, self.given, tuple(sorted(self.attributes.items())), cells)
        found: list[Poly] | None = atoms.patterns.get(key)
        if found is None:
            found = atoms.patterns[key] = self._states(atoms, cells)
        return found

    def _states(self, atoms: Atoms, cells: int) -> list[Poly]:
        graph = Graph("step")
        b = Builder(graph)
        gates = self.kind.gates
        shapes: dict[str, tuple[int, ...]] = {"peepholes": (3 * cells,), "recurrent_bias": (gates * cells,)}
        x = graph.add_input(TensorType(DType.FLOAT32, (_BATCH, gates * cells)))
        states = [graph.add_input(TensorType(DType.FLOAT32, (_BATCH, cells))) for _ in self.kind.results[1:]]
        given = {name: graph.add_input(TensorType(DType.FLOAT32, shapes[name])) for name in self.given}
        matrix = graph.add_input(TensorType(DType.FLOAT32, (gates * cells, cells)))
        leaf: dict[Value, Columns] = {x: [(gates * cells, atoms.leaf((INPUT,), 0, gates * cells))]}
        leaf |= {v: [(cells, atoms.leaf(state(i), 0, cells))] for i, v in enumerate(states)}
        for name, value in given.items():
            leaf[value] = [(value.shape[0], atoms.leaf((GIVEN, name), 0, value.shape[0]))]
        reader = Reader(atoms, _BATCH, leaf.get)
        terms = {name: Term(b, v) for name, v in {**given, RECURRENT: matrix}.items()}
        attributes = {**self.kind.defaults, **self.attributes}
        new = self.kind.step(Term(b, x), [Term(b, s) for s in states], terms, attributes)
        return [reader.poly(t.value) for t in new]


_BATCH = 2


def patterns(hidden: Poly, states: int, gates: int) -> Iterator[Pattern]:
    """Yield the layers with `states` states whose new hidden state may be `hidden`, common ones first.

    `gates`: the number of gates if a part of the sequence has one column per gate and cell.
    """
    if len(all_atoms(hidden)) > MOST_ATOMS or not _multiplies_state(hidden):
        return
    kinds: Sequence[type[Recurrent]] = (ops.Lstm,) if states == 2 else (ops.Gru, ops.Rnn)
    arguments = [product.arguments[0].atom for product in products(hidden)]
    if not any(atom is not None and atom.name == PART for atom in arguments):
        kinds = [kind for kind in kinds if kind.gates == gates]
    used = list(dict.fromkeys(functions(hidden)))
    names = frozenset(atom.name for atom in used)
    for kind in kinds:
        count = len(kind.defaults["activations"])
        chosen = [a for a in itertools.product(_activations(used), repeat=count) if _covers(a, names)]
        if kind is ops.Lstm:
            chosen = [a for a in chosen if (a[2][0] == "none") == (len(hidden.terms) > 1)]
        usual = [a for a in chosen if tuple(name for name, _, _ in a) == kind.defaults["activations"]]
        chosen = [*usual, *(a for a in chosen if a not in usual)]
        for activations, clips, more in itertools.product(chosen, _clips_of(kind, used), _MORE[kind]):
            functions_ = dict(zip(("activations", "alphas", "betas"), zip(*activations, strict=True), strict=True))
            yield Pattern(kind, more[0], {**functions_, **clips, **more[1]})


MOST_ATOMS = 32
"""The most atoms of a step; an LSTM with peepholes has 20."""


def _multiplies_state(hidden: Poly) -> bool:
    """Whether `hidden` contains a matrix product of the old state."""
    return any(leaf.name == state(0) for product in products(hidden) for leaf in leaves(product.arguments[0]))


_MORE: Mapping[type[Recurrent], Sequence[tuple[tuple[str, ...], Mapping[str, Any]]]] = {
    ops.Rnn: [((), {})],
    ops.Gru: [
        ((), {"linear_before_reset": False}),
        (("recurrent_bias",), {"linear_before_reset": True}),
        ((), {"linear_before_reset": True}),
    ],
    ops.Lstm: [(given, {"coupled": coupled}) for coupled in (False, True) for given in ((), ("peepholes",))],
}
"""The optional operands and attributes that change the step, by kind."""

Activation = tuple[str, float, float]
_OF_OPS: Mapping[type[Op], tuple[str, ...]] = {
    ops.Sigmoid: ("sigmoid",),
    ops.Tanh: ("tanh",),
    ops.Relu: ("relu",),
    ops.Softplus: ("softplus",),
    ops.Div: ("softsign",),
    ops.Sign: ("sign",),
    ops.Elu: ("elu", "alpha"),
    ops.LeakyRelu: ("leaky_relu", "alpha"),
    ops.ThresholdedRelu: ("thresholded_relu", "alpha"),
    ops.HardSigmoid: ("hard_sigmoid", "slope", "offset"),
    ops.Relu6: ("relu6",),
    ops.ReluN1To1: ("relu_n1_to_1",),
}
"""Activations by op, with the names of the attributes for alpha and beta."""


def _activations(used: Sequence[Atom]) -> list[Activation]:
    """Return candidates for the activations of a step."""
    found: dict[Activation, None] = {}
    for atom in used:
        if atom.name in _OF_OPS:
            attributes = dict(atom.detail[0])
            name, *parameters = _OF_OPS[atom.name]
            alpha, beta = [*(float(attributes[p]) for p in parameters), 0.0, 0.0][:2]
            found[name, alpha, beta] = None
    return [*found, ("none", 0.0, 0.0)]


def _covers(activations: Sequence[Activation], names: frozenset[type[Op]]) -> bool:
    """Whether all functions of a step are among `activations`."""
    wanted = {name for name, _, _ in activations}
    return all(of[0] in wanted for op, of in _OF_OPS.items() if op in names)


def _clips_of(kind: type[Recurrent], used: Sequence[Atom]) -> Iterator[Mapping[str, float]]:
    """Return candidates for the clips of a layer: of the activations' arguments, of its cell."""
    bounds = _clips(used)
    for of_cell, clip in itertools.product(bounds if kind is ops.Lstm else [0.0], bounds):
        yield {"clip": clip, **({"cell_clip": of_cell} if of_cell else {})}


def _clips(used: Sequence[Atom]) -> list[float]:
    """Return the clips in a step; 0 for none."""
    bounds = {0.0: None}
    for atom in used:
        if atom.name is ops.Clamp and len(atom.arguments) == 3:
            high = atom.arguments[2].constant
            if high is not None and not high.ndim and high > 0:
                bounds[float(high)] = None
    return list(bounds)


# --- unification ------------------------------------------------------------------------------------------------------


def unified(pairs: Sequence[tuple[Poly, Poly]], bound: Bound) -> Iterator[Bound]:
    """Yield each binding of the operands for which the polynomials of a pattern equal the others.

    `pairs`: polynomials of the pattern and the others. Sums and products match in any order.
    """
    if not pairs:
        yield bound
        return
    for first in _unified_poly(*pairs[0], bound):
        yield from unified(pairs[1:], first)


def _unified_poly(wanted: Poly, given: Poly, bound: Bound) -> Iterator[Bound]:
    """Yield the bindings that match the terms of `wanted` with terms of `given`; the other terms are the input."""
    if wanted.key == given.key:
        yield bound
        return
    inputs = [m for m in wanted.terms if any(a.name == (INPUT,) for a in m)]
    alone = [m for m in wanted.terms if m and all(_is_given(a) for a in m)]
    others = [m for m in wanted.terms if m not in inputs and m not in alone]
    if len(inputs) > 1 or (alone and not inputs) or len(others) > len(given.terms):
        return
    if inputs and (len(inputs[0]) != 1 or wanted.terms[inputs[0]] != 1):
        return
    for m in alone:
        none = _with(bound, _of_columns(m[0]), np.zeros(()))
        if none is None:
            return
        bound = none
    for rest, more in _unified_terms(wanted, others, dict(given.terms), bound):
        if not inputs:
            if not rest:
                yield more
        elif not _reads_state(Poly(rest)) and (new := _with(more, (INPUT, inputs[0][0].start), Poly(rest))) is not None:
            yield new


def _unified_terms(
    wanted: Poly, left: Sequence[Monomial], given: dict[Monomial, Array], bound: Bound
) -> Iterator[tuple[dict[Monomial, Array], Bound]]:
    """Yield the bindings that match the terms `left` of `wanted`, each with the unmatched terms of `given`."""
    if not left:
        yield given, bound
        return
    monomial, factor = left[0], wanted.terms[left[0]]
    numbers, atoms = [a for a in monomial if _is_given(a)], [a for a in monomial if not _is_given(a)]
    for other, coefficient in given.items():
        if len(other) != len(atoms) or len(numbers) > 1:
            continue
        now: Bound | None = bound
        if numbers:
            now = _with(bound, _of_columns(numbers[0]), coefficient / factor)
        elif coefficient.shape != factor.shape or (coefficient != factor).any():
            continue
        if now is None:
            continue
        rest = {m: c for m, c in given.items() if m is not other}
        for more in _unified_factors(atoms, other, now):
            yield from _unified_terms(wanted, left[1:], rest, more)


def _unified_factors(wanted: Sequence[Atom], given: Sequence[Atom], bound: Bound) -> Iterator[Bound]:
    if not wanted:
        yield bound
        return
    for i, other in enumerate(given):
        for more in _unified_atom(wanted[0], other, bound):
            yield from _unified_factors(wanted[1:], [*given[:i], *given[i + 1 :]], more)


def _unified_atom(wanted: Atom, given: Atom, bound: Bound) -> Iterator[Bound]:
    if wanted is given:
        yield bound
        return
    if wanted.kind != given.kind or wanted.kind == "leaf" or len(wanted.arguments) != len(given.arguments):
        return
    if (wanted.name, wanted.detail) != (given.name, given.detail):
        return
    with_piece: Bound | None = bound
    if wanted.piece is not None and given.piece is not None:
        if wanted.piece.height != given.piece.height:
            return
        with_piece = _with(bound, (RECURRENT, wanted.piece.start), given.piece)
    if with_piece is not None:
        yield from unified(list(zip(wanted.arguments, given.arguments, strict=True)), with_piece)


def _reads_state(poly: Poly) -> bool:
    return any(atom.name[0] == state(0)[0] for atom in leaves(poly))


def _is_given(atom: Atom) -> bool:
    return atom.kind == "leaf" and atom.name[0] == GIVEN


def _of_columns(atom: Atom) -> Hashable:
    return (*atom.name, atom.start)


def _with(bound: Bound, key: Hashable, value: Any) -> Bound | None:
    """Return `bound` with `value` for `key`; None if another value is bound."""
    if key not in bound:
        return {**bound, key: value}
    before = bound[key]
    if isinstance(value, Poly):
        return bound if before.key == value.key else None
    if isinstance(value, Piece):
        return bound if before.identity == value.identity else None
    return bound if bool(np.all(np.equal(before, value))) else None
