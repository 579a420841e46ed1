"""Which nodes have quantized operands or results, and which keep the quantization of their operands.

A neutral op is quantize(evaluate(dequantize)): it computes on real values, and results of quantized types are rounded
(:func:`onnxtfl.ir.interpret.evaluate_node`). The quantization of a result is declared by the type of the node's result,
not inferred; only ops that move elements (``Op.moves``) keep that of their operands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.data import ArrayData
from onnxtfl.ir.declaration import Pick
from onnxtfl.ir.graph import Graph, Node, Value, attributes_of, constant
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import TensorType, Type


def touches_quantized(node: Node) -> bool:
    """Whether an operand or a result of `node` is quantized."""
    for values in (node.operands, node.results):  # called for each node and pattern; a generator would be half as fast
        for value in values:
            if value is not None and (type_ := value.type).__class__ is TensorType and type_.quantization is not None:
                return True
    return False


def scale_and_zero_point(quantization: Quantization, blocks: Sequence[int] | None = None) -> tuple[Value, Value]:
    """Scale and zero point as constants: scalars, vectors along an axis, or of the shape `blocks`."""
    along = () if quantization.per_tensor else (len(quantization.scales),)
    shape = along if blocks is None else blocks
    zeros = np.asarray(quantization.zero_points).astype(quantization.dtype.numpy).reshape(shape)
    scale = constant(np.asarray(quantization.scales, np.float32).reshape(shape))
    return scale, constant(ArrayData(zeros, quantization.dtype))


def has_quantized(graph: Graph) -> bool:
    """Whether there are quantized values in `graph`, regions excluded."""
    return _any_quantized((*graph.inputs, *graph.outputs)) or any(map(touches_quantized, graph.nodes))


def reads_quantized(node: Node) -> bool:
    """Whether an operand of `node` is quantized."""
    return _any_quantized(node.operands)


def quantization_of(value: Value | None) -> Quantization | None:
    """The quantization of a tensor; None for unquantized and absent ones, and for other types."""
    return value.type.quantization if value is not None and isinstance(value.type, TensorType) else None


def real_of_stored_zero(value: Value) -> float:
    """The real value of a stored 0. Raises UnsupportedError for parameters along an axis."""
    quantization = quantization_of(value)
    if quantization is None:
        return 0.0
    if not quantization.per_tensor:
        raise UnsupportedError("a stored 0 of several scales", type_=value.type, code="E-QUANT-001")
    return -quantization.scales[0] * quantization.zero_points[0]


def is_real(type_: Type | None) -> bool:
    """Whether this is a tensor of floats that is not quantized."""
    return isinstance(type_, TensorType) and type_.quantization is None and type_.dtype.is_float


def _any_quantized(values: Iterable[Value | None]) -> bool:
    return any(quantization_of(value) is not None for value in values)


def with_kept(node: Node, types: Sequence[Type]) -> list[Type]:
    """The inferred, unquantized `types` of the results with the quantization that `node` keeps of its operands."""
    if not reads_quantized(node) or node.op.expands or node.regions:
        return list(types)
    return [t.stored_as(_kept(node, t)) if isinstance(t, TensorType) else t for t in types]


def selected_operands(node: Node) -> slice | None:
    """Return the operands of which each element of the only result is an element (moves and maxima).

    Quantizing keeps their order, so that stored integers can be selected instead of real values.
    """
    if node.op.moves is not None:
        return node.op.moves
    return node.op.selects if len(node.results) == 1 else None


def picked_operands(node: Node) -> Pick | None:
    """How elements of the first result depend on operands: an element, a weighted mean of elements, or None."""
    return node.op.picks(attributes_of(node))


def moves_stored(node: Node) -> bool:
    """Whether `node` moves stored integers unchanged: its results have the quantization of the moved operands."""
    return not node.op.inserts and keeps_quantization(node)


def keeps_quantization(node: Node) -> bool:
    """Whether the results of `node` have the quantization of the operands that it moves."""
    types = [r.type for r in node.results]
    return all(
        isinstance(t, TensorType) and t.quantization is not None and t.quantization == _kept(node, t) for t in types
    )


def may_match(node: Node, quantized: bool) -> bool:
    """Whether a pattern may match `node`: it touches no quantized values, or the pattern matches `quantized` nodes.

    Then an op that moves elements must move stored integers unchanged.
    """
    return not touches_quantized(node) or (quantized and (node.op.moves is None or keeps_quantization(node)))


def may_declare(node: Node, type_: Type) -> bool:
    """Whether a result of the inferred `type_` may declare any quantization; else it must be as inferred."""
    if not isinstance(type_, TensorType) or not type_.dtype.is_float or node.regions:
        return False
    if node.op.expands:
        return type_.quantization is None
    moved = _moved(node)
    return len(moved) != 1 or (None not in moved and type_.quantization is None)


def _moved(node: Node) -> set[Quantization | None]:
    """The quantizations (None: unquantized) of the operands whose elements `node` moves."""
    return {v.type.quantization for v in node.moved_operands if isinstance(v.type, TensorType)}


def _kept(node: Node, type_: TensorType) -> Quantization | None:
    """The quantization kept for a result of `type_`; None if the moved operands have several or none, or unknown."""
    moved = _moved(node)
    quantization = moved.pop() if len(moved) == 1 else None
    if quantization is None or not type_.dtype.is_float:
        return None
    return node.op.kept(node, quantization, type_.shape)
