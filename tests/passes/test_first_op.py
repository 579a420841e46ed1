"""An op of a builtin kernel that reads inputs only runs first, so that the delegate's ops are one group."""

from __future__ import annotations

from pathlib import Path

import onnxtfl
from onnxtfl.placement import place
from tests.harness.rounds import parsed

MODEL = """g (float[2, 4] x, int32[2] ids) => (float[2, 4] y) <float[3, 1] table = {1, 2, 3}> {
  s = Sigmoid (x)  e = Gather (table, ids)  y = Add (s, e) }"""


def test_the_delegate_has_one_group_of_ops(tmp_path: Path) -> None:
    onnxtfl.onnx_to_tflite(parsed(MODEL), tmp_path / "m.tflite")
    placed = place(tmp_path / "m.tflite", "cpu")
    assert [op.op for op in placed.ops if op.reason] == ["FLOOR_MOD", "GATHER"]
    assert placed.ops[0].op == "FLOOR_MOD" and placed.partitions == 1
