"""Elements at constant places, and constant choices, run in XNNPACK where they are a few runs along an axis."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import onnxtfl
from onnxtfl.placement import place
from tests.harness.litert import run_onnx, run_tflite

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
WINDOWS = np.stack(np.meshgrid([0, 1, 2, 2, 3, 4], [1, 2, 4], indexing="ij"), -1)
"""Positions in images as torch.export writes them for adaptive pools."""
RUNS = {
    "windows": ("GatherND (t, w)", {"w": WINDOWS.astype(np.int64)}),
    "places": ("Gather <axis = 1> (t, w)", {"w": np.asarray([3, 0, 1, 1], np.int64)}),
    "flags": ("Where (w, z, t)", {"w": np.asarray([0, 0, 1, 0, 0], bool)[:, None, None], "z": np.float32([0.0])}),
    "flags of axes": (
        "Where (w, t, z)",
        {
            "w": np.asarray([[1] * 6, [0] * 6, [0, 1] + [0] * 4, [0] * 6, [0] * 6], bool)[..., None],
            "z": np.float32([7]),
        },
    ),
}


def _placed(text: str, constants: dict[str, np.ndarray], path: Path, x: np.ndarray) -> list[str]:
    """The ops that XNNPACK does not compute, after a comparison of both runtimes."""
    model = parser.parse_model(text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v, name) for name, v in constants.items())
    data = onnxtfl.onnx_to_tflite(model).data
    assert data is not None
    path.write_bytes(data)
    expected = run_onnx(model.SerializeToString(), {"x": x})["y"]
    np.testing.assert_array_equal(run_tflite(data, {"x": x})[0][1], expected)
    return [op.op for op in place(path, "cpu").ops if op.where != "XNNPACK"]


@pytest.mark.parametrize("op", RUNS)
def test_few_runs_are_slices(op: str, tmp_path: Path) -> None:
    call, constants = RUNS[op]
    x = np.random.default_rng(0).standard_normal((5, 6, 8)).astype(np.float32)
    x[0, 0, :3] = np.nan, np.inf, -np.inf
    text = f"{HEAD} g (float[5, 6, 8] x) => (float y) {{ t = Abs (x) u = {call} y = Neg (u) }}"
    assert _placed(text, constants, tmp_path / "m.tflite", x) == []


def test_many_runs_stay(tmp_path: Path) -> None:
    text = f"{HEAD} g (float[5, 6, 8] x) => (float y) {{ t = Abs (x) u = Gather <axis = 0> (t, w) y = Neg (u) }}"
    places = {"w": np.asarray([4, 3, 2, 1, 0] * 2, np.int64)}
    assert _placed(text, places, tmp_path / "m.tflite", np.ones((5, 6, 8), np.float32)) == ["GATHER"]


@pytest.mark.parametrize("mode", ["edge", "reflect"])
def test_ends_of_axes_are_repeated_beside_axes_of_dynamic_sizes(mode: str, tmp_path: Path) -> None:
    text = f'{HEAD} g (float[n, 3, 5, 6] x) => (float y) {{ t = Abs (x) u = Pad <mode = "{mode}"> (t, w) y = Neg (u) }}'
    amounts = {"w": np.asarray([0, 0, 0, 1, 0, 0, 2, 1], np.int64)}
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 6)).astype(np.float32)
    assert _placed(text, amounts, tmp_path / "m.tflite", x) == []
