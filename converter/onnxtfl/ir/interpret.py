"""The reference interpreter: runs a neutral graph in NumPy, node by node; slow and exact."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.half import current_simulation
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.parts import Stored, evaluate_in_parts
from onnxtfl.ir.quantization import dequantize
from onnxtfl.ir.quantized import moves_stored, quantization_of, touches_quantized

Observer = Callable[[Node], None]


def run(graph: Graph, inputs: Sequence[Array] | Mapping[str, Array]) -> list[Array]:
    """Run `graph` on `inputs` (in order or by name); return the outputs, with quantized ones as stored integers."""
    given = [inputs[v.name or ""] for v in graph.inputs] if isinstance(inputs, Mapping) else inputs
    values = dict(zip(graph.inputs, given, strict=True))
    return values_of(graph, values, graph.outputs)


def values_of(
    graph: Graph, values: dict[Value, Array], wanted: Sequence[Value], observe: Observer | None = None
) -> list[Array]:
    """Return the values `wanted` of a graph with the inputs and states in `values`, which is changed.

    A value is freed after its last use. `observe` is called before each node.
    """
    operands = (v for node in graph.nodes for v in node.present_operands)
    uses = Counter(v for v in (*operands, *wanted) if not v.is_constant)
    simulation = current_simulation()
    evaluate = evaluate_node if simulation is None else simulation.evaluate
    for node in graph.nodes:
        if observe is not None:
            observe(node)
        results = evaluate(node, [None if v is None else _lookup(values, v) for v in node.operands])
        values.update((v, array) for v, array in zip(node.results, results, strict=True) if uses[v])
        for value in filter(None, node.operands):
            if value in uses:
                uses[value] -= 1
                if not uses[value]:
                    del values[value]
    return [_lookup(values, v) for v in wanted]


def is_small(node: Node, most: int) -> bool:
    """Whether each result of `node` is known to have at most `most` elements, so that evaluation is cheap."""
    return all(r.is_static and math.prod(map(int, r.shape)) <= most for r in node.results)


def evaluate_node(node: Node, operands: Sequence[Array | None]) -> list[Array]:
    """Evaluate one node; quantized operands and results are stored integers.

    The result is quantize(evaluate(dequantize)). Ops that only move elements move stored integers; regions accept and
    return stored integers.
    """
    real = computes_on_reals(node)
    given = [_operand(array, v, real) for array, v in zip(operands, node.operands, strict=True)]
    grids = [quantization_of(v) if real else None for v in node.results]
    return evaluate_in_parts(node.op, attributes_of(node), node.op.padded(given), grids, made_elements(node))


def computes_on_reals(node: Node) -> bool:
    """Whether `node` computes on the real values of quantized tensors, and its results are quantized again."""
    return touches_quantized(node) and not node.regions and not moves_stored(node)


def made_elements(node: Node) -> int:
    """The number of elements of the results of `node`, as far as it is known."""
    return sum(math.prod(v.shape) for v in node.results if v.is_static)


def _operand(array: Array | None, value: Value | None, real: bool) -> Stored | None:
    """An operand of which real values, or the stored elements, are computed with."""
    grid = quantization_of(value) if real else None
    if array is None or value is None or grid is None:
        return None if array is None else Stored(array)
    if grid.block is not None:
        return Stored(dequantize(array, grid, value.dtype))
    return Stored(array, grid, value.dtype)


def _lookup(values: Mapping[Value, Array], value: Value) -> Array:
    return value.stored() if value.is_constant else values[value]
