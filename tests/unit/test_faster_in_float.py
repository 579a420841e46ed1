"""Quantized ops whose integer kernels are slower than XNNPACK's kernels for floats, between DEQUANTIZE and QUANTIZE."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxtfl
from tests.harness.litert import Array, run_onnx, run_tflite

SHAPE = (2, 6, 6)
RNG = np.random.default_rng(0)
X = [RNG.standard_normal(SHAPE).astype(np.float32) for _ in range(2)]
OPS: dict[str, tuple[int, dict[str, Any], float]] = {
    "MatMul": (2, {}, 0.04),
    "Softmax": (1, {"axis": -1}, 0.005),
    "Abs": (1, {}, 0.02),
    "HardSwish": (1, {}, 0.02),
    "Relu": (1, {}, 0.02),
}


def model(op: str, weights: Array | None = None) -> bytes:
    """`op` on one or two quantized inputs (the second one: constant `weights`), with a quantized result."""
    count, attributes, step = OPS[op]
    nodes, scale = [], {"s": 0.02, "t": step}
    for name in [f"x{i}" for i in range(count)]:
        nodes += [
            helper.make_node("QuantizeLinear", [name, "s", "z"], [f"{name}q"]),
            helper.make_node("DequantizeLinear", [f"{name}q", "s", "z"], [f"{name}r"]),
        ]
    nodes.append(helper.make_node(op, [f"x{i}r" for i in range(count)], ["r"], **attributes))
    nodes.append(helper.make_node("QuantizeLinear", ["r", "t", "z"], ["q"]))
    nodes.append(helper.make_node("DequantizeLinear", ["q", "t", "z"], ["y"]))
    initializers = [numpy_helper.from_array(np.asarray(v, np.float32), k) for k, v in scale.items()]
    initializers.append(numpy_helper.from_array(np.asarray(3, np.int8), "z"))
    inputs = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, SHAPE) for i in range(count)]
    if weights is not None:
        initializers.append(numpy_helper.from_array(weights, "x1q"))
        nodes, inputs = [n for n in nodes if n.output[0] != "x1q"], inputs[:1]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", inputs, [output], initializers)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def rounded(conversion: onnxtfl.Conversion) -> list[str]:
    quantization = conversion.report.quantization
    assert quantization is not None
    return [op.source_op for op in quantization.float_ops if op.faster]


@pytest.mark.parametrize("op", OPS)
def test_they_compute_in_float(op: str) -> None:
    """Rounded to the steps of the source, once: no op is one step off, and no result has a fixed scale first."""
    conversion = onnxtfl.onnx_to_tflite(model(op), check=False)
    assert len(rounded(conversion)) == 1 and conversion.report.ops_after["QUANTIZE"] == OPS[op][0] + 1
    assert "float, which is faster than in integers: 1 " in conversion.table(width=200)
    inputs = X[: OPS[op][0]]
    found = run_tflite(conversion.data or b"", inputs)[0][1]
    wanted = run_onnx(model(op), {f"x{i}": x for i, x in enumerate(inputs)}, optimized=False)["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("op", ["MatMul", "Softmax"])
def test_not_for_other_hardware(op: str) -> None:
    """TFLite Micro has no delegate."""
    assert rounded(onnxtfl.onnx_to_tflite(model(op), check=False, target="micro")) == []


def test_constant_matrices_have_an_integer_kernel() -> None:
    """A MatMul without a bias too is FULLY_CONNECTED, with the constant transposed."""
    weights = RNG.integers(-127, 128, (6, 6)).astype(np.int8)
    conversion = onnxtfl.onnx_to_tflite(model("MatMul", weights), check=False, min_runtime="litert-2.3")
    assert conversion.report.ops_after.get("FULLY_CONNECTED") == 1 and rounded(conversion) == []
    found = run_tflite(conversion.data or b"", X[:1])[0][1]
    wanted = run_onnx(model("MatMul", weights), {"x0": X[0]}, optimized=False)["y"]
    assert np.abs(found - wanted).max() <= 1.01 * OPS["MatMul"][2]


def test_activations_that_the_op_before_takes_in_stay() -> None:
    """Add, rounded to steps, then Relu in the same steps: one kernel."""
    n = helper.make_node
    steps = ["s", "z"]
    nodes = [n("QuantizeLinear", ["x", *steps], ["xq"]), n("DequantizeLinear", ["xq", *steps], ["xr"])]
    nodes += [n("Add", ["xr", "xr"], ["a"]), n("QuantizeLinear", ["a", *steps], ["aq"])]
    nodes += [n("DequantizeLinear", ["aq", *steps], ["ar"]), n("Relu", ["ar"], ["r"])]
    nodes += [n("QuantizeLinear", ["r", *steps], ["rq"]), n("DequantizeLinear", ["rq", *steps], ["y"])]
    values = {"s": np.float32(0.05), "z": np.int8(3)}
    constants = [numpy_helper.from_array(np.asarray(v), k) for k, v in values.items()]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", "y"))
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert onnxtfl.onnx_to_tflite(made).report.ops_after == {"QUANTIZE": 1, "ADD": 1, "DEQUANTIZE": 1}
