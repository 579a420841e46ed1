"""Ops on quantized elements that XNNPACK does not take are written as ones that it does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser

import onnxtfl
from onnxtfl.placement import place
from tests.harness.litert import run_tflite


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
