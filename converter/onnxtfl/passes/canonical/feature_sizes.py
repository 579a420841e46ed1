"""Feature sizes from kernels: a symbolic feature axis of a convolution gets the size of its kernel, everywhere.

The same holds for the size of a bias, and for the features of a BatchNormInference.

::

    %x: [N, C, 8, 8], %w: [4, 1, 3, 3]                    %x: [N, 4, 8, 8]
    %y = Conv(%x, %w) feature_group_count = 4      ->     %y = Conv(%x, %w) feature_group_count = 4

Any other size would fail. Kernels need the size: LiteRT derives the groups from the sizes of input and filter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import check
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Common, Dim, FloorDiv, Symbol, substitute, symbol
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.types import TensorType

Sizes = Mapping[Symbol | Common, Dim]


def fix_features(graph: Graph) -> None:
    """Replace the symbols of feature axes by the sizes that kernels fix, in `graph` and its regions.

    Raises InvalidModelError if two kernels imply different sizes, or the operands of another op no longer fit.
    """
    sizes: dict[Symbol | Common, Dim] = {}
    for name, size, node in _fixed(graph):
        if sizes.setdefault(name, size) != size:
            message = f"the size {symbol(name)} would have to be {sizes[name]} and {size}"
            raise InvalidModelError(message, node=node.name or node.result.name, op=node.op.name, code="E-FILE-009")
    if sizes:
        substitute_sizes(graph, sizes)


def substitute_sizes(graph: Graph, sizes: Sizes) -> None:
    """Replace these symbols in `graph` and its regions; InvalidModelError if the operands of an op no longer fit."""
    fixed = [value for value in {id(v): v for v in _values(graph)}.values() if _fix(value, sizes)]
    for node in dict.fromkeys(user for value in fixed for user in value.users()):
        check(node)


def _fixed(graph: Graph) -> Iterator[tuple[Symbol | Common, int, Node]]:
    """Yield the symbols (or broadcast sizes) in feature and bias sizes of convolutions, with value and node."""
    exact = {d for node in graph.walk() if node.op is ops.DepthToSpace for d in node.result.tensor_type.shape or ()}
    for node in graph.walk():
        for dim, size in _equal_sizes(node):
            found = solved(dim, size, exact) if isinstance(size, int) else None
            if found is not None:
                yield *found, node


def _equal_sizes(node: Node) -> tuple[tuple[Dim, Dim], ...]:
    """Pairs of a feature or bias size of `node` and the size that it must have."""
    if node.op not in (ops.Conv, ops.ConvTranspose, ops.BatchNormInference):
        return ()
    x = node.operand(0)
    if x.tensor_type.shape is None:
        return ()
    if node.op is ops.BatchNormInference:
        features = x.shape[node.attr("feature_index")]
        return tuple((features, _size_of(vector)) for vector in node.operands[1:])
    results = node.result.shape[node.attr("output_feature_dimension")]
    features = x.shape[node.attr("input_feature_dimension")]
    return (features, _features(node)), (_size_of(node.optional(2)), results)


def _size_of(vector: Value | None) -> Dim:
    shape = None if vector is None else vector.tensor_type.shape
    return shape[0] if shape else 0


def solved(dim: Dim, size: int, exact: Collection[Dim]) -> tuple[Symbol | Common, int] | None:
    """Solve ``dim`` = ``size`` for its only symbol, if ``dim`` is linear; quotients in ``exact`` have no remainder.

    None for all other dims.
    """
    if isinstance(dim, int):
        return None
    rest = size - sum(factor for monomial, factor in dim.terms if not monomial)
    terms = [(monomial, factor) for monomial, factor in dim.terms if monomial]
    if len(terms) != 1 or len(terms[0][0]) != 1 or rest < 0 or rest % terms[0][1]:
        return None
    (((atom, power),), factor) = terms[0]
    if power != 1:
        return None
    if not isinstance(atom, FloorDiv):
        return atom, rest // factor
    if dim not in exact or not isinstance(atom.denominator, int):
        return None
    return solved(atom.numerator, rest // factor * atom.denominator, exact)


def _features(node: Node) -> Dim:
    """The number of input features that the kernel of a convolution fixes."""
    depth: Dim = node.operand(1).shape[node.attr("kernel_input_feature_dimension")]
    groups = int(node.attr("feature_group_count")) if node.op is ops.Conv else 1
    return depth * groups


def _values(graph: Graph) -> Iterator[Value]:
    """All inputs and results in `graph` and its regions."""
    yield from graph.inputs
    for node in graph.walk():
        yield from node.results
        for region in node.regions:
            yield from region.inputs


def _fix(value: Value, sizes: Sizes) -> bool:
    """Replace symbols in the type and the known elements of a value; return whether the type changed."""
    before = value.type
    if isinstance(before, TensorType) and before.shape is not None and not before.is_static:
        value.type = before.with_shape(tuple(substitute(d, sizes) for d in before.shape))
    if value.known is not None:
        known: Array = np.empty(value.known.shape, object)
        known.reshape(-1)[:] = [substitute(d, sizes) for d in value.known.reshape(-1)]
        value.known = known
    return value.type != before
