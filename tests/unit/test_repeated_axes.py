"""Expand and Tile of floats run in XNNPACK, and ops that broadcast by themselves need neither."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import parser

import onnxtfl
from onnxtfl.placement import place
from tests.harness.litert import run_onnx, run_tflite

REPEATS = {
    "expand": "e = Constant <value_ints = [1, 6, 4, 8]> () r = Expand (s, e)",
    "expand over rank 5": (
        "a = Constant <value_ints = [2, 3, 1, 4, 8]> () e = Constant <value_ints = [2, 3, 5, 4, 8]> ()"
        "n = Reshape (x, a) w = Expand (n, e) f = Constant <value_ints = [6, 20, 8]> () r = Reshape (w, f)"
    ),
    "tile": "e = Constant <value_ints = [1, 6, 1, 1]> () r = Tile (s, e)",
}


def _converted(body: str, path: Path) -> tuple[Mapping[str, int], np.ndarray, np.ndarray]:
    """The number of each op, and the results of both runtimes."""
    head = '<ir_version: 8, opset_import: ["" : 17]>'
    model = parser.parse_model(f"{head} g (float[1, 6, 4, 8] x) => (float y) {{ {body} }}")
    x = np.random.default_rng(0).standard_normal((1, 6, 4, 8)).astype(np.float32)
    x[0, 0, 0, :4] = -0.0, np.inf, -np.inf, np.nan
    data = onnxtfl.onnx_to_tflite(model).data
    assert data is not None
    path.write_bytes(data)
    placed = place(path, "cpu").ops
    assert [op for op in placed if op.where != "XNNPACK"] == []
    counts = {name: sum(op.op == name for op in placed) for name in {op.op for op in placed}}
    return counts, run_tflite(data, {"x": x})[0][1], run_onnx(model.SerializeToString(), {"x": x})["y"]


@pytest.mark.parametrize("body", REPEATS.values(), ids=REPEATS)
def test_repeated_axes_run_in_xnnpack(body: str, tmp_path: Path) -> None:
    slices = "b = Constant <value_ints = [0]> () o = Constant <value_ints = [1]> () s = Slice (x, b, o, o)"
    _, found, expected = _converted(f"{slices} {body} h = Neg (r) y = Concat <axis = -1> (r, h)", tmp_path / "m.tflite")
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[..., :8]), np.signbit(expected[..., :8]))


def test_arithmetic_on_expanded_and_transposed_operands_broadcasts(tmp_path: Path) -> None:
    """Relative positions of attention, as PyTorch models have them (BotNet)."""
    body = """
      a = Constant <value_ints = [6, 4, 8, 1]> () e = Constant <value_ints = [6, 4, 8, 8]> ()
      p = Reshape (x, a) q = Expand (p, e) u = Transpose <perm = [0, 1, 3, 2]> (q)
      r = Neg (x) s = Reshape (r, a) t = Expand (s, e) y = Mul (u, t)"""
    counts, found, expected = _converted(body, tmp_path / "m.tflite")
    np.testing.assert_allclose(found, expected)
    assert counts["MUL"] == 1 and "BROADCAST_TO" not in counts
