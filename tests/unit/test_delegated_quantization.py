"""Ops on quantized elements that XNNPACK does not take are written as ones that it does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser

import onnxtfl
from onnxtfl.placement import place
from tests.harness.litert import run_onnx, run_tflite


@pytest.mark.parametrize(("scale", "ops"), [(1.0, ["QUANTIZE"] * 2), (5.0, ["QUANTIZE", "DEQUANTIZE", "QUANTIZE"])])
def test_quantization_to_a_much_larger_scale(scale: float, ops: list[str], tmp_path: Path) -> None:
    """XNNPACK takes factors of 1/256 and more."""
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]> g (float[64] x) => (float[64] y)
      <float a = {{0.015625}}, float b = {{{scale}}}, int8 z = {{-128}}, int8 w = {{-100}}> {{
      q = QuantizeLinear (x, a, z) d = DequantizeLinear (q, a, z)
      r = QuantizeLinear (d, b, w) y = DequantizeLinear (r, b, w) }}""")
    path = tmp_path / "m.tflite"
    onnxtfl.onnx_to_tflite(model, path, check=False)
    assert [(op.op, op.where) for op in place(path, "cpu").ops] == [(op, "XNNPACK") for op in (*ops, "DEQUANTIZE")]
    x = np.linspace(0, 4, 64, dtype=np.float32)
    wanted = np.rint(np.rint(np.minimum(x * 64, 255)) / 64 / scale) * scale
    assert (run_tflite(path.read_bytes(), {"x": x})[0][1] == wanted).all() and wanted.max() > 0


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
@pytest.mark.parametrize("rows", ["3", "n"])
def test_a_constant_of_more_axes_adds_these_to_quantized_results(op: str, rows: str) -> None:
    """XNNPACK's result has the axes of the other operand only, if XNNPACK computes a later op as well."""
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> g (int8[2, {rows}, 4] x) => (int8[1, 2, {rows}, 4] y)
        <float s = {{0.02}}, int8 z = {{3}}, float t = {{0.05}}, int8 o = {{-9}}, int8[1, 1, 1, 1] c = {{40}}> {{
        a = DequantizeLinear (x, s, z)  b = DequantizeLinear (c, s, z)  d = {op} (a, b)
        e = QuantizeLinear (d, t, o)  f = DequantizeLinear (e, t, o)  y = QuantizeLinear (f, s, o) }}"""
    )
    data = onnxtfl.onnx_to_tflite(model, check=False).data
    x = np.arange(-12, 12, dtype=np.int8).reshape(2, 3, 4)
    expected = run_onnx(model.SerializeToString(), {"x": x})["y"]
    ((_, found),) = run_tflite(data, {"x": x})
    assert found.shape == expected.shape == (1, 2, 3, 4)
    assert np.abs(found.astype(int) - expected).max() <= 3


def test_a_pool_of_single_elements_is_its_operand(tmp_path: Path) -> None:
    """The rule for the delegate, which has no int16 pools, makes no node then."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
      g (float[2, 6, 1, 2] x) => (int16[2, 6, 1, 2] y)
      <float s = {0.001}, int16 z = {0}> {
      q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z)
      p = MaxPool <kernel_shape = [1, 1]> (d) y = QuantizeLinear (p, s, z) }""")
    path = tmp_path / "m.tflite"
    onnxtfl.onnx_to_tflite(model, path, check="require")
    assert [op.op for op in place(path, "cpu").ops] == ["QUANTIZE"]
