"""The text of random ONNX graphs, and what their nodes read."""

from __future__ import annotations

import onnx
from onnx import helper, numpy_helper


def reads(node: onnx.NodeProto) -> list[str]:
    """The values that a node reads, also those that its regions take from outside."""
    found = [name for name in node.input if name]
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            found += _captured(attribute.g)
    return list(dict.fromkeys(found))


def _captured(region: onnx.GraphProto) -> list[str]:
    own = {value.name for value in region.input} | {name for node in region.node for name in node.output}
    return [name for node in region.node for name in reads(node) if name not in own]


def text_of(model: onnx.ModelProto) -> str:
    """The text of a model."""
    names = [v.name for v in model.graph.output]
    return "\n".join([ancestors(model, *names), f"-> {', '.join(names)}"])


def ancestors(model: onnx.ModelProto, *outputs: str) -> str:
    """The text of the nodes that ``outputs`` depend on."""
    wanted, kept = set(outputs), []
    for node in reversed(model.graph.node):
        if wanted & set(node.output):
            wanted |= set(reads(node))
            kept.append(node)
    lines = [onnx.printer.to_text(node) for node in reversed(kept)]
    lines += [_weight(t) for t in model.graph.initializer if t.name in wanted]
    opset = model.opset_import[0].version
    shown = [_declaration(v) for v in model.graph.input if v.name in wanted]
    return "\n".join([f"opset {opset}", *shown, *lines])


def _declaration(value: onnx.ValueInfoProto) -> str:
    tensor = value.type.tensor_type
    sizes = ", ".join(str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim)
    return f"{helper.tensor_dtype_to_np_dtype(tensor.elem_type)}[{sizes}] {value.name}"


def _weight(tensor: onnx.TensorProto) -> str:
    array = numpy_helper.to_array(tensor)
    return f"{tensor.name} = {array.dtype}{list(array.shape)} {array.tolist() if array.size <= 8 else ''}"
