"""Runs a neutral graph in NumPy, node by node: the executable meaning, slow and exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import attributes_of


def run(graph: Graph, inputs: Sequence[Array] | Mapping[str, Array]) -> list[Array]:
    """The outputs of `graph` for `inputs`, in order or by name. Quantized tensors are given as real numbers."""
    given = [inputs[v.name or ""] for v in graph.inputs] if isinstance(inputs, Mapping) else inputs
    values: dict[Value, Array] = dict(zip(graph.inputs, given, strict=True))
    for node in graph.nodes:
        results = evaluate_node(node, [None if v is None else _lookup(values, v) for v in node.operands])
        values.update(zip(node.results, results, strict=True))
    return [_lookup(values, v) for v in graph.outputs]


def evaluate_node(node: Node, operands: Sequence[Array | None]) -> list[Array]:
    """The results of one node, in the element types that it declares."""
    with np.errstate(all="ignore"):
        result = node.op.evaluate(attributes_of(node), *operands)
    results = result if isinstance(result, tuple) else (result,)
    return [np.asarray(r) for r in results]


def _lookup(values: Mapping[Value, Array], value: Value) -> Array:
    return value.numpy() if value.is_constant else values[value]
