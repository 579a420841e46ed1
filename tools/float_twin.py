"""The float original of a QDQ model: the same model without rounding, its weights dequantized."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper


def float_twin(source: Path, target: Path) -> None:
    """Write `source`, an ONNX model with QuantizeLinear and DequantizeLinear, without them."""
    model = onnx.load(source)
    graph = model.graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    same: dict[str, str] = {}
    kept = []
    for node in graph.node:
        operand = same.get(node.input[0], node.input[0]) if node.input else ""
        if node.op_type == "DequantizeLinear" and operand in constants:
            graph.initializer.append(numpy_helper.from_array(_dequantized(node, constants), node.output[0]))
        elif node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            same[node.output[0]] = operand
        else:
            node.input[:] = [same.get(name, name) for name in node.input]
            kept.append(node)
    outputs = {same[v.name]: v.name for v in graph.output if v.name in same}
    for node in kept:
        node.input[:] = [outputs.get(name, name) for name in node.input]
        node.output[:] = [outputs.get(name, name) for name in node.output]
    del graph.node[:], graph.value_info[:]
    graph.node.extend(kept)
    read = {name for node in kept for name in node.input}
    weights = [tensor for tensor in graph.initializer if tensor.name in read]
    del graph.initializer[:]
    graph.initializer.extend(weights)
    onnx.save(model, target)


def _dequantized(node: Any, constants: dict[str, Any]) -> Any:
    """The real values of a constant, per tensor or per axis."""
    stored, scale = (constants[name] for name in node.input[:2])
    zero = constants[node.input[2]] if len(node.input) > 2 and node.input[2] else np.zeros((), np.int32)
    axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
    shape = [-1 if i == axis % max(stored.ndim, 1) else 1 for i in range(stored.ndim)] if scale.size > 1 else []
    centered = stored.astype(np.float32) - zero.astype(np.float32).reshape(shape)
    return np.asarray(centered * scale.reshape(shape), np.float32)
