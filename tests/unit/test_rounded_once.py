"""A product reads what its operand's kernel computes: no requantization in between, if that saturates nothing."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxtfl
from tests.harness.litert import run_onnx, run_tflite

RNG = np.random.default_rng(0)


def gated(scale: float, top: float) -> bytes:
    """x * Sigmoid(x) on tensors of 8 bits: `x` in steps of `scale` up to 127 of them, the gate up to `top`."""
    parameters = {"x": (scale, 0), "g": (top / 255, -128), "y": (scale, 0)}
    nodes = [helper.make_node("Sigmoid", ["xr"], ["g"]), helper.make_node("Mul", ["xr", "gr"], ["y"])]
    order = []
    for name, before in (("x", None), ("g", nodes[0]), ("y", nodes[1])):
        order += [] if before is None else [before]
        order.append(helper.make_node("QuantizeLinear", [name, f"{name}s", f"{name}z"], [f"{name}q"]))
        order.append(helper.make_node("DequantizeLinear", [f"{name}q", f"{name}s", f"{name}z"], [f"{name}r"]))
    initializers = [numpy_helper.from_array(np.float32(s), f"{n}s") for n, (s, _) in parameters.items()]
    initializers += [numpy_helper.from_array(np.int8(z), f"{n}z") for n, (_, z) in parameters.items()]
    sides = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 50, 40]) for n in ("x", "yr")]
    graph = helper.make_graph(order, "g", sides[:1], sides[1:], initializers)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def sigmoid(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))


@pytest.mark.parametrize(
    ("scale", "top", "count"),
    [
        (0.04, sigmoid(127 * 0.04), 2),  # calibrated: the largest input is the largest gate
        (0.1, 1.0, 2),
        (0.04, 0.9, 3),  # the source saturates gates above 0.9
        (0.04, 4.0, 3),  # and rounds these to wider steps
    ],
)
def test_gates(scale: float, top: float, count: int) -> None:
    data = gated(scale, top)
    conversion = onnxtfl.onnx_to_tflite(data)
    assert conversion.report.ops_after["QUANTIZE"] + conversion.report.ops_after["MUL"] == count
    assert conversion.check is not None and conversion.check.ok
    x = (RNG.standard_normal((1, 50, 40)) * 60 * scale).astype(np.float32)
    found = run_tflite(conversion.data or b"", [x])[0][1]
    steps = np.abs(found - run_onnx(data, {"x": x}, optimized=False)["yr"]) / scale
    assert steps.max() < 1.01 * (count - 1)
