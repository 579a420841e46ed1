"""Unknown ops as the neutral op Custom, which is written as the same op in the other format."""

from __future__ import annotations

from typing import Any

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.custom_attributes import from_options
from onnxtfl.ir.graph import Graph, Node
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.rewriting.lift import Expand, op_name
from onnxtfl.rewriting.registry import rules_for

CUSTOM_DOMAIN = "tflite.custom"
"""The ONNX domain of TFLite's custom ops."""
_CUSTOM = "custom:"
_CONVERTED = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64)


def allowing_custom(expand: Expand) -> Expand:
    """Extend `expand`: an op without a definition becomes a graph of one Custom."""

    def expand_or_keep(node: Node) -> Graph | None:
        return expand(node) or _custom(node)

    return expand_or_keep


def _custom(node: Node) -> Graph | None:
    """Return a graph with a Custom for `node`; None for ops of ONNX's default domain and most TFLite builtins."""
    name = node.op.name_in_file
    call = rules_for(node.op).custom_calls.get(name) if node.op.dialect == "tfl" else None
    if node.op.dialect == "tfl" and not name.startswith(_CUSTOM) and call is None:
        return None
    if node.op.dialect == "onnx" and not node.op.domain:
        return None
    _check_types(node)
    graph = Graph()
    inputs = [graph.add_input(None if v is None else v.type) for v in node.operands]
    given = [None if v is None else x for v, x in zip(node.operands, inputs, strict=True)]
    types = tuple(result.type for result in node.results)
    identity = call(node) if call else _identity(node, name)
    graph.outputs = Builder(graph).many(ops.Custom, *given, types=types, **identity)
    return graph


def _identity(node: Node, name: str) -> dict[str, Any]:
    """Return name, domain, version and attributes in ONNX's terms."""
    if node.op.dialect == "onnx":
        attributes = {key: value for key, value in node.attributes.items() if key != "captures"}
        return {"called": name, "domain": node.op.domain, "version": node.op.version, "attributes": attributes}
    code = name.removeprefix(_CUSTOM)
    domain, separator, op = code.rpartition("::")
    own = (domain, op) if separator and domain and op else (CUSTOM_DOMAIN, code)
    attributes = from_options(bytes(node.attributes.get("custom_options") or b""))
    return {"called": own[1], "domain": own[0], "version": node.op.version, "attributes": attributes}


def _check_types(node: Node) -> None:
    """Raise UnsupportedError for results of unknown type, and for types that a pass would replace."""
    for i, value in enumerate((*node.operands, *node.results)):
        if value is None:
            continue
        if not isinstance(value.type, TensorType):
            what = f"result {i - len(node.operands)}" if i >= len(node.operands) else f"operand {i}"
            hint = "declare it in the model's value_info"
            raise UnsupportedError(f"the type of {what} of a custom op is unknown", hint=hint, code="E-SHAPE-001")
        if value.is_quantized or (node.op.dialect == "onnx" and value.dtype in _CONVERTED):
            raise UnsupportedError("a custom op on values of this type", type_=value.type)


def custom_ops(graph: Graph) -> list[str]:
    """Return the names of the custom ops of `graph`."""
    return list(dict.fromkeys(op_name(node) for node in graph.walk() if node.lowered_from is ops.Custom))
