"""ONNX models of one node, and whether their conversion agrees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

import onnxtfl
from tests.unit.tiny_models import onnx_model


def converted_node(op, inputs, result, constants=None, opset=17, domain="", check="require", **attributes):
    """One node over inputs (name, dtype, shape) and constants, converted and compared in both runtimes."""
    names = [*(name for name, *_ in inputs), *(constants or {})]
    node = helper.make_node(op, names, ["y"], domain=domain, **attributes)
    model = onnx_model([node], inputs, [("y", *result)], constants)
    del model.opset_import[:]
    model.opset_import.extend([helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)])
    return onnxtfl.onnx_to_tflite(model, check=check)


def agrees_on(result, model, x) -> bool:
    """Whether the result of a conversion agrees with ONNX Runtime on one more input ``x``, in both sets of kernels."""
    from tests.harness.litert import run_onnx, run_tflite

    wanted = run_onnx(model.SerializeToString(), {"x": x})["y"]
    found = [dict(run_tflite(result, {"x": x}, kernels=kernels))["y"] for kernels in ("default", "builtin")]
    return all(array.shape == wanted.shape and np.allclose(array, wanted, atol=1e-5) for array in found)


def onnx_file(
    nodes: Sequence[NodeProto], shape: Sequence[int | str] | None, constants: dict[str, Any], opset: int = 21
) -> bytes:
    """A model of an input x and the last node's output."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    y = helper.make_empty_tensor_value_info(nodes[-1].output[0])
    graph = helper.make_graph(nodes, "g", [x], [y], stored)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 4)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return bytes(model.SerializeToString())


def named_node(op: str, inputs: str, **attributes: Any) -> NodeProto:
    """A node of the name "n"."""
    return helper.make_node(op, inputs.split(), ["y"], name="n", **attributes)
