"""Sizes that are computed from those of an input are read from the input, so that they do not wait for the ops between.

::

    %h = Dot(%x: [N, T, 64], %w)                    %s = Concatenate(Shape(%x) {axes = [0, 1]}, [64])
    %s = Shape(%h)                           ->     %h = Dot(%x, %w)
    %p = Pad(%h) [[0, 0], [0, T - 1], [0, 0]]       %p = Pad(%h) [[0, 0], [0, T - 1], [0, 0]]
    %t = Shape(%p) {axes = [1]}                     %t = Add(Mul(Shape(%x) {axes = [1]}, 2), -1)

The sizes that tensors have in common are then one op, and a delegate has its ops in fewer groups: ops that read
inputs only run before it. Sizes whose computation divides stay.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Atom, Dim, FloorDiv, Monomial, SymDim, is_nonnegative, symbol
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.reshape import concatenated
from onnxtfl.ir.types import DType, shape_of

Sizes = dict[Dim, tuple[Value, int]]
"""An input and the axis of it that has a dynamic size."""


def read_sizes_of_inputs(graph: Graph) -> None:
    """Replace each Shape of a computed tensor by sizes of inputs from which it is computed, if these have all sizes."""
    known: dict[Value, Sizes] = {value: _own(value) for value in graph.inputs}
    for node in list(graph.nodes):
        found: Sizes = {}
        for value in node.operands:
            for size, place in known.get(value, {}).items() if value is not None else ():
                found.setdefault(size, place)
        known.update(dict.fromkeys(node.results, found))
        if node.op is ops.Shape and node.operand(0) not in graph.inputs:
            _replace(graph, node, found)


def _own(value: Value) -> Sizes:
    shape = shape_of(value.type)
    return {size: (value, axis) for axis, size in enumerate(shape or ()) if not isinstance(size, int)}


def _replace(graph: Graph, node: Node, known: Sizes) -> None:
    shape, axes = node.operand(0).tensor_type.shape, node.attr("axes")
    sizes = (shape or ()) if axes is None else [node.operand(0).shape[a] for a in axes]
    if sizes and all(map(functools.partial(_is_computed_from, known), sizes)):
        b = Builder(graph, node, maker="sizes of inputs")
        graph.replace(node, [_vector(b, sizes, known, node.attr("dtype"))])


def _is_computed_from(known: Sizes, size: Dim) -> bool:
    """Whether a size is known, that of an input, or made of such by products and sums."""
    if isinstance(size, int) or size in known:
        return True
    return all(_symbol(atom) in known for monomial, _ in size.terms for atom, _ in monomial)


def _symbol(atom: Atom) -> Dim:
    """The size that is this symbol; 0 for a quotient, which no input has."""
    return 0 if isinstance(atom, FloorDiv) else symbol(atom)


def _vector(b: Builder, sizes: Sequence[Dim], known: Sizes, dtype: DType) -> Value:
    """The sizes as a vector; neighbors in it that are sizes of one input, or constants, are one part."""
    parts = list[Value]()
    for source, group in groupby(sizes, lambda size: known[size][0] if size in known else isinstance(size, int)):
        run = list(group)
        if isinstance(source, Value):
            parts += _read(b, source, [known[size][1] for size in run], dtype)
        elif source:
            parts.append(constant(np.asarray(run, dtype.numpy)))
        else:
            parts += [_computed(b, size, known, dtype) for size in run if isinstance(size, SymDim)]
    return concatenated(b, parts, 0)


def _read(b: Builder, source: Value, axes: Sequence[int], dtype: DType) -> list[Value]:
    """The sizes of `source` at `axes`; one op if these are distinct."""
    each = [axes] if len(set(axes)) == len(axes) else [[axis] for axis in axes]
    return [b(ops.Shape, source, axes=tuple(some), dtype=dtype) for some in each]


def _computed(b: Builder, size: SymDim, known: Sizes, dtype: DType) -> Value:
    """The polynomial as a vector of one element; 0 where it is negative, as sizes of slices are."""

    def term(monomial: Monomial, factor: int) -> Value:
        places = [known[_symbol(atom)] for atom, power in monomial for _ in range(power)]
        factors = [_read(b, source, [axis], dtype)[0] for source, axis in places]
        if factor != 1 or not factors:
            factors.append(constant(np.asarray([factor], dtype.numpy)))
        return functools.reduce(functools.partial(b, ops.Mul), factors)

    total = functools.reduce(functools.partial(b, ops.Add), (term(*each) for each in size.terms))
    return total if is_nonnegative(size) else b(ops.Max, total, constant(np.zeros(1, dtype.numpy)))
