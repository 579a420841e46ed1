"""Moves of tensors with dynamic sizes run in XNNPACK where their constants say all that it needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser

import onnxtfl
from onnxtfl.placement import place
from tests.harness.litert import run_onnx, run_tflite

MOVES = {
    "the rest of an axis": "a = Constant <value_ints = [1]> () b = Constant <value_ints = [4]> ()"
    " c = Constant <value_ints = [3]> () r = Slice (x, a, b, c)",
    "one of several": "i = Constant <value_int = 1> () r = Gather <axis = 2> (x, i)",
    "adjacent ones": "i = Constant <value_ints = [1, 2]> () r = Gather <axis = 2> (x, i)",
    "an operand that the other one repeats": "a = Constant <value_ints = [2]> () m = ReduceMean <axes = [3]> (x)"
    " n = Shape (x) k = Constant <value_ints = [2, 1, 3, 8]> () e = Expand (m, k) r = Mul (e, x)",
}


@pytest.mark.parametrize("moves", MOVES)
def test_moves_are_delegated(moves: str, tmp_path: Path) -> None:
    """Two ops around a move would be two partitions if it were not."""
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]> g (float[2, N, 3, 8] z) => (float y) {{
      x = Exp (z) {MOVES[moves]} y = Tanh (r) }}""")
    path = tmp_path / "m.tflite"
    onnxtfl.onnx_to_tflite(model, path, check=False)
    assert [op.op for op in place(path, "cpu").ops if op.where != "XNNPACK"] == []
    z = np.random.default_rng(0).standard_normal((2, 5, 3, 8)).astype(np.float32)
    wanted = run_onnx(model.SerializeToString(), {"z": z})["y"]
    np.testing.assert_allclose(run_tflite(path.read_bytes(), {"z": z})[0][1], wanted, rtol=1e-5, atol=1e-6)


def test_transposed_convolutions_are_convolutions(tmp_path: Path) -> None:
    """XNNPACK has none to a size that is computed."""
    numbers = ", ".join(str((7 * i % 13 - 6) / 8) for i in range(32))
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]> g (float[1, 4, N] z) => (float y)
      <float[4, 2, 4] w = {{{numbers}}}> {{
      x = Exp (z) r = ConvTranspose <strides = [2], pads = [1, 1]> (x, w) y = Tanh (r) }}""")
    path = tmp_path / "m.tflite"
    onnxtfl.onnx_to_tflite(model, path, check=False)
    assert place(path, "cpu").partitions == 1
    assert "TRANSPOSE_CONV" not in [op.op for op in place(path, "cpu").ops]
    z = np.random.default_rng(0).standard_normal((1, 4, 9)).astype(np.float32)
    wanted = run_onnx(model.SerializeToString(), {"z": z})["y"]
    np.testing.assert_allclose(run_tflite(path.read_bytes(), {"z": z})[0][1], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", ["8", "N"])
def test_boxes_are_selected_after_one_partition(count: str, tmp_path: Path) -> None:
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
      g (float[1, {count}, 4] x, float[1, 1, {count}] s) => (int64 y)
      <int64[1] m = {{3}}, float[1] t = {{0.5}}, float[1] l = {{0.1}}> {{
      b = Sigmoid (x) y = NonMaxSuppression <center_point_box = 1> (b, s, m, t, l) }}""")
    path = tmp_path / "m.tflite"
    onnxtfl.onnx_to_tflite(model, path, check=False)
    assert place(path, "cpu").partitions == 1
    rng = np.random.default_rng(0)
    given = {"x": rng.standard_normal((1, 8, 4), np.float32), "s": rng.random((1, 1, 8), np.float32)}
    wanted = run_onnx(model.SerializeToString(), given)["y"]
    assert (run_tflite(path.read_bytes(), given)[0][1] == wanted).all() and len(wanted) > 0


def test_the_delegate_is_asked_where_zeros_are_no_input(tmp_path: Path) -> None:
    """A length of 0 makes an empty tensor, which XNNPACK refuses when it runs."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> g (float[4] x, int64[1] n) => (float y)
      <int64[1] a = {0}> { r = Exp (x) s = Slice (r, a, n) y = Tanh (s) }""")
    path = tmp_path / "m.tflite"
    onnxtfl.onnx_to_tflite(model, path, check=False)
    found = place(path, "cpu")
    assert (found.by, found.note, found.partitions) == ("LiteRT", "", 2)
