"""Which nodes touch quantized tensors, and which keep their quantization.

A neutral op means quantize(evaluate(dequantize)): it computes with real numbers, and each result of a quantized type
is stored under that (:func:`onnxtfl.ir.interpret.evaluate_node`). How a result is quantized is a fact of its own, which
the node's result type declares and no inference finds; only what an op moves (``Op.moves``) keeps its quantization.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.graph import Node
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import TensorType, Type


def touches_quantized(node: Node) -> bool:
    """Whether an operand or a result of `node` is quantized."""
    return reads_quantized(node) or any(v.is_quantized for v in node.results)


def reads_quantized(node: Node) -> bool:
    """Whether an operand of `node` is quantized."""
    return any(v is not None and v.is_quantized for v in node.operands)


def with_kept(node: Node, types: Sequence[Type]) -> list[Type]:
    """The inferred `types` of the results, real numbers, with the quantization that `node` keeps of its operands."""
    if not reads_quantized(node) or node.op.expands or node.regions:
        return list(types)
    return [t.stored_as(_kept(node, t)) if isinstance(t, TensorType) else t for t in types]


def moves_stored(node: Node) -> bool:
    """Whether `node` moves stored integers as they are: its results have the quantization of what it moves."""
    types = [r.type for r in node.results]
    return all(
        isinstance(t, TensorType) and t.quantization is not None and t.quantization == _kept(node, t) for t in types
    )


def may_match(node: Node, quantized: bool) -> bool:
    """Whether a pattern may match `node`: one of real numbers only, unless it asks for `quantized` ones too.

    What is asked for moves stored integers as they are, if it is of the ops that move elements.
    """
    return not touches_quantized(node) or (quantized and (node.op.moves is None or moves_stored(node)))


def may_declare(node: Node, type_: Type) -> bool:
    """Whether a result of the inferred `type_` may be quantized in any way; else it is as inferred."""
    if not isinstance(type_, TensorType) or not type_.dtype.is_float or node.regions:
        return False
    if node.op.expands:
        return type_.quantization is None
    moved = _moved(node)
    return len(moved) != 1 or (None not in moved and type_.quantization is None)


def _moved(node: Node) -> set[Quantization | None]:
    """The quantizations, or none, of the operands whose elements `node` moves."""
    moved = node.operands[node.op.moves] if node.op.moves is not None else []
    return {v.type.quantization for v in moved if v is not None and isinstance(v.type, TensorType)}


def _kept(node: Node, type_: TensorType) -> Quantization | None:
    """The quantization of a result of `type_`; None where what is moved has several or none, or it cannot be said."""
    moved = _moved(node)
    quantization = moved.pop() if len(moved) == 1 else None
    if quantization is None or not type_.dtype.is_float:
        return None
    return node.op.kept(node, quantization, type_.shape)
