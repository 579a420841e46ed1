"""Sizes that convolutions fix: a feature axis whose size is a symbol has the size that the kernel says, everywhere.

::

    %x: [N, C, 8, 8], %w: [4, 1, 3, 3]                    %x: [N, 4, 8, 8]
    %y = Conv(%x, %w) feature_group_count = 4      ->     %y = Conv(%x, %w) feature_group_count = 4

No other size would run. Kernels have to know it: LiteRT tells groups by the sizes of input and filter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, Symbol, SymDim, substitute, symbol, symbols
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.types import TensorType

Sizes = Mapping[Symbol, Dim]


def fix_features(graph: Graph) -> None:
    """Replace the symbols of feature axes by the sizes that kernels fix, in `graph` and its regions.

    Raises InvalidModelError where two kernels fix different ones.
    """
    sizes: dict[Symbol, Dim] = {}
    for name, size, node in _fixed(graph):
        if sizes.setdefault(name, size) != size:
            message = f"the size {symbol(name)} would have to be {sizes[name]} and {size}"
            raise InvalidModelError(message, node=node.name or node.result.name, op=node.op.name, code="E-FILE-009")
    if sizes:
        for value in {id(v): v for v in _values(graph)}.values():
            _fix(value, sizes)


def _fixed(graph: Graph) -> Iterator[tuple[Symbol, int, Node]]:
    """Each symbol that is the feature axis of a convolution, its size, and the convolution."""
    for node in graph.walk():
        if node.op not in (ops.Conv, ops.ConvTranspose) or node.operand(0).tensor_type.shape is None:
            continue
        features = node.operand(0).shape[node.attr("input_feature_dimension")]
        size = _features(node)
        if isinstance(features, SymDim) and size is not None:
            name = next(symbols(features), None)
            if name is not None and features == symbol(name):
                yield name, size, node


def _features(node: Node) -> int | None:
    """The number of input features that the kernel of a convolution fixes; None if it is not known."""
    depth = node.operand(1).shape[node.attr("kernel_input_feature_dimension")]
    groups = int(node.attr("feature_group_count")) if node.op is ops.Conv else 1
    return depth * groups if isinstance(depth, int) else None


def _values(graph: Graph) -> Iterator[Value]:
    """All inputs and results in `graph` and its regions."""
    yield from graph.inputs
    for node in graph.walk():
        yield from node.results
        for region in node.regions:
            yield from region.inputs


def _fix(value: Value, sizes: Sizes) -> None:
    """Replace symbols in the type and in the known elements of a value."""
    if isinstance(value.type, TensorType) and value.type.shape is not None and not value.type.is_static:
        value.type = value.type.with_shape(tuple(substitute(d, sizes) for d in value.type.shape))
    if value.known is not None:
        known: Array = np.empty(value.known.shape, object)
        known.reshape(-1)[:] = [substitute(d, sizes) for d in value.known.reshape(-1)]
        value.known = known
