"""Convert a QDQ model to float: remove QuantizeLinear and DequantizeLinear, and dequantize the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper


def float_twin(source: Path, target: Path) -> None:
    """Write the float version of the QDQ model `source` to `target`."""
    model = onnx.load(source)
    graph = model.graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    source_of: dict[str, str] = {}
    nodes = []
    for node in graph.node:
        operand = source_of.get(node.input[0], node.input[0]) if node.input else ""
        if node.op_type == "DequantizeLinear" and operand in constants:
            graph.initializer.append(numpy_helper.from_array(_dequantized(node, constants), node.output[0]))
        elif node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            source_of[node.output[0]] = operand
        else:
            node.input[:] = [source_of.get(name, name) for name in node.input]
            nodes.append(node)
    outputs = {source_of[v.name]: v.name for v in graph.output if v.name in source_of}
    for node in nodes:
        node.input[:] = [outputs.get(name, name) for name in node.input]
        node.output[:] = [outputs.get(name, name) for name in node.output]
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)
    used = {name for node in nodes for name in node.input}
    weights = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(weights)
    onnx.save(model, target)


def _dequantized(node: Any, constants: dict[str, Any]) -> Any:
    """The dequantized constant, float32; scales are per tensor or per axis."""
    stored, scale = (constants[name] for name in node.input[:2])
    zero = constants[node.input[2]] if len(node.input) > 2 and node.input[2] else np.zeros((), np.int32)
    axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
    shape = [-1 if i == axis % max(stored.ndim, 1) else 1 for i in range(stored.ndim)] if scale.size > 1 else []
    centered = stored.astype(np.float32) - zero.astype(np.float32).reshape(shape)
    return np.asarray(centered * scale.reshape(shape), np.float32)
