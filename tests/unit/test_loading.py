"""Every result is loaded in its runtime before it is written, also without a check."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.cli import commands, running
from onnxtfl.errors import UnsupportedError
from onnxtfl.runtimes import LITERT, RunError, Worker
from tests.unit.tiny_models import onnx_model, onnx_scale, saved, tflite_scale

for module in ("onnxruntime", "ai_edge_litert"):
    pytest.importorskip(module, reason=f"{module} is not installed")


@pytest.fixture(autouse=True)
def loading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONNXTFL_NO_LOAD", raising=False)


def far_strides() -> onnx.ModelProto:
    """A convolution whose strides LiteRT's builtin kernel refuses."""
    kernel = np.ones((1, 1, 1, 1), np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[40000, 1])
    shapes = [("x", TensorProto.FLOAT, [1, 1, 40001, 1])], [("y", TensorProto.FLOAT, [1, 1, 2, 1])]
    return onnx_model([node], *shapes, {"w": kernel})


def test_a_result_that_the_runtime_refuses_is_not_written(tmp_path: Path) -> None:
    target = tmp_path / "m.tflite"
    with pytest.raises(UnsupportedError, match=r"the result does not load: litert: .*INT16_MAX"):
        onnxtfl.onnx_to_tflite(far_strides(), target, check=False)
    assert not list(tmp_path.iterdir())


def test_without_loading_it_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = saved(far_strides(), tmp_path / "m.onnx")
    assert running.exit_code(commands.onnx2tfl, [str(source), "--no-check"]) == 1
    assert "--no-load writes it nevertheless" in capsys.readouterr().err
    assert running.exit_code(commands.onnx2tfl, [str(source), "--no-check", "--no-load"]) == 0
    assert (tmp_path / "m.tflite").exists()


def test_good_results_load(tmp_path: Path) -> None:
    open_sizes = onnx_scale(shape=["n", 3])
    assert onnxtfl.onnx_to_tflite(open_sizes, check=False).check is None
    assert onnxtfl.tflite_to_onnx(tflite_scale(), check=False).check is None


def test_an_opset_that_is_newer_than_the_runtime_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RunError("unsupported", "onnxruntime: opset 24 is under development")

    monkeypatch.setattr(Worker, "verify", refuse)
    with pytest.raises(UnsupportedError, match="under development"):
        onnxtfl.tflite_to_onnx(tflite_scale(), check=False)
    assert onnxtfl.tflite_to_onnx(tflite_scale(), check=False, opset=24).data


def test_a_worker_that_refuses_goes_on(tmp_path: Path) -> None:
    bad = saved(b"\x1c\0\0\0TFL3" + bytes(40), tmp_path / "bad.tflite")
    good = saved(tflite_scale(), tmp_path / "good.tflite")
    with LITERT.worker() as worker:
        with pytest.raises(RunError):
            worker.verify(bad)
        worker.verify(good)
