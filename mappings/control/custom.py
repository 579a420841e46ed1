"""Custom ops, where the user allows them: the same op in the other format, to run with the user's kernel.

ONNX my.domain::Decode is TFLite's custom op "my.domain::Decode"; TFLite's custom op NAME is NAME of the domain
`tflite.custom` in ONNX. TFLite's STABLEHLO_CUSTOM_CALL of NAME is NAME of the domain `stablehlo.custom_call`.
"""

from __future__ import annotations

from typing import Any

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.custom_attributes import to_options
from onnxtfl.ir.graph import Node
from onnxtfl.rewriting.custom import CUSTOM_DOMAIN
from onnxtfl.rewriting.registry import Form, calls_custom, lower_onnx, lower_tfl


@lower_tfl(ops.Custom)
def _to_tflite(node: Node) -> Form:
    domain, name, options = node.attr("domain"), node.attr("called"), to_options(node.attr("attributes"))
    code = name if domain == CUSTOM_DOMAIN else f"{domain}::{name}"
    fields = {"custom_options": options} if options else {}
    return Form(f"custom:{code}", tuple(node.operands), fields, own_version=node.attr("version"))


@lower_onnx(ops.Custom)
def _to_onnx(node: Node, opset: int) -> Form:
    version, attributes = node.attr("version"), dict(node.attr("attributes"))
    return Form(node.attr("called"), tuple(node.operands), attributes, domain=node.attr("domain"), own_version=version)


@calls_custom("STABLEHLO_CUSTOM_CALL")
def _custom_call(node: Node) -> dict[str, Any]:
    """The target of the call; its payload and flags are attributes."""
    target = node.attr("call_target_name")
    if not target:
        raise ValueError("call_target_name is empty")
    if node.attr("called_computations"):
        raise UnsupportedError(f"the call of {target!r} has subgraphs", code="E-OP-005")
    fields = {name: node.attr(name) for name in ("backend_config", "api_version", "has_side_effect")}
    fields["custom_attributes"] = bytes(node.attr("custom_attributes") or b"")
    attributes = {name: int(v) if isinstance(v, bool) else v for name, v in fields.items() if v}
    return {"called": str(target), "domain": "stablehlo.custom_call", "version": 1, "attributes": attributes}
