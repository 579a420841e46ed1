"""Custom ops, where the user allows them: the same op in the other format, to run with the user's kernel.

ONNX my.domain::Decode is TFLite's custom op "my.domain::Decode"; TFLite's custom op NAME is NAME of the domain
`tflite.custom` in ONNX.
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.custom_attributes import to_options
from onnxtfl.ir.graph import Node
from onnxtfl.rewriting.custom import CUSTOM_DOMAIN
from onnxtfl.rewriting.registry import Form, lower_onnx, lower_tfl


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
