"""Models for which there is too little memory: the conversion goes on, and says what the check would need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxtfl
from onnxtfl import platform_calls
from onnxtfl.conversion_check import NO_LOAD


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A matrix of 4 MB."""
    weights = numpy_helper.from_array(np.ones((1024, 1024), np.float32), "w")
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 1024]) for name in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    path = tmp_path / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_model_that_does_not_fit_is_written_without_a_check(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NO_LOAD, raising=False)
    monkeypatch.setattr(platform_calls, "memory_available", lambda: 1 << 20)
    done = onnxtfl.onnx_to_tflite(model, model.with_suffix(".tflite"))
    assert done.check is not None and done.check.status == "not checked"
    assert "needs about 6" in done.check.reason and "1.0 MB are available" in done.check.reason
    assert "needs about 6" in done.report.not_loaded and "not loaded" in done.table()
    assert model.with_suffix(".tflite").exists()


def test_nothing_is_said_where_the_model_fits(model: Path) -> None:
    done = onnxtfl.onnx_to_tflite(model, check="require")
    assert done.check is not None and done.check.ok and not done.report.not_loaded


@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space are Linux's")
def test_the_limit_of_the_address_space_counts() -> None:
    code = "from onnxtfl.platform_calls import memory_available as m; print(m())"
    limited = ["sh", "-c", 'ulimit -v 400000; exec "$0" -c "$1"', sys.executable, code]
    found = subprocess.run(limited, capture_output=True, text=True, check=True)
    assert int(found.stdout) <= 400000 * 1024


@pytest.mark.parametrize(
    ("groups", "folder", "limit", "used", "unused"),
    [
        ("0::/box\n", "box", "max", "current", "inactive_file"),
        ("4:memory:/box\n0::/\n", "memory/box", "limit_in_bytes", "usage_in_bytes", "total_inactive_file"),
    ],
)
def test_the_limit_of_a_control_group_counts(
    tmp_path: Path, groups: str, folder: str, limit: str, used: str, unused: str
) -> None:
    own = tmp_path / folder
    own.mkdir(parents=True)
    (own / f"memory.{used}").write_text("700\n")
    (own / "memory.stat").write_text(f"cache 1\n{unused} 100\n")
    (tmp_path / "cgroup").write_text(groups)
    for text, left in (("1000\n", 400), ("max\n", None)):
        (own / f"memory.{limit}").write_text(text)
        assert platform_calls._left_in_group(str(tmp_path), str(tmp_path / "cgroup")) == left
