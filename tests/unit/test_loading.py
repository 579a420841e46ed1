"""Every result is loaded in its runtime before it is written, also without a check."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, parser

import onnxtfl
from onnxtfl.cli import commands, running
from onnxtfl.errors import UnsupportedError
from onnxtfl.runtimes import LITERT, RunError, RunOptions, Worker
from onnxtfl.runtimes.process import DEFAULT
from tests.unit.tiny_models import onnx_model, onnx_scale, saved, tflite_scale

for module in ("onnxruntime", "ai_edge_litert"):
    pytest.importorskip(module, reason=f"{module} is not installed")


@pytest.fixture(autouse=True)
def loading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONNXTFL_NO_LOAD", raising=False)


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What LiteRT loads is no model (no result is known that it refuses)."""
    real = Worker.verify

    def spoilt(self: Worker, model: Path, options: RunOptions = DEFAULT) -> None:
        model.write_bytes(b"\x1c\0\0\0TFL3" + bytes(40))
        real(self, model, options)

    monkeypatch.setattr(Worker, "verify", spoilt)


@pytest.mark.usefixtures("refusing")
def test_a_result_that_the_runtime_refuses_is_not_written(tmp_path: Path) -> None:
    target = tmp_path / "m.tflite"
    with pytest.raises(UnsupportedError, match=r"the result does not load: litert: .*"):
        onnxtfl.onnx_to_tflite(onnx_scale(), target, check=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("refusing")
def test_without_loading_it_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = saved(onnx_scale(), tmp_path / "m.onnx")
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
    with pytest.raises(UnsupportedError, match="under development; update the runtime"):
        onnxtfl.tflite_to_onnx(tflite_scale(), check=False)
    assert onnxtfl.tflite_to_onnx(tflite_scale(), check=False, opset=24).data


def test_a_worker_that_refuses_goes_on(tmp_path: Path) -> None:
    bad = saved(b"\x1c\0\0\0TFL3" + bytes(40), tmp_path / "bad.tflite")
    good = saved(tflite_scale(), tmp_path / "good.tflite")
    with LITERT.worker() as worker:
        with pytest.raises(RunError):
            worker.verify(bad)
        worker.verify(good)


def test_a_result_that_needs_too_much_memory(tmp_path: Path) -> None:
    sizes = np.asarray([2**20, 2**16])
    node = helper.make_node("Expand", ["x", "sizes"], ["y"])
    model = onnx_model([node], [("x", TensorProto.FLOAT, [1])], [("y", TensorProto.FLOAT, None)], {"sizes": sizes})
    with pytest.raises(UnsupportedError, match=f"the tensor 'y' alone needs {4 * 2**36} bytes; use smaller inputs"):
        onnxtfl.onnx_to_tflite(model, tmp_path / "m.tflite", check=False)


def test_inputs_of_unknown_rank_that_tflite_reads_as_scalars() -> None:
    """Shape and Gather of such an input: the message says to give its sizes, with which the model converts."""
    model = parser.parse_model(
        '<ir_version: 7, opset_import: ["" : 13]> g (float a, float c) => (float d) <int64[1] one = {1}>'
        "{ s = Shape (a)  n = Gather (s, one)  rest = Sub (one, one)  r = Sub (rest, one)  t = Concat <axis = 0> (n, r)"
        " d = Reshape (c, t) }"
    )
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.ClearField("shape")
    with pytest.raises(UnsupportedError, match="the rank of its inputs is unknown"):
        onnxtfl.onnx_to_tflite(model)
    assert onnxtfl.onnx_to_tflite(model, input_shapes={"a": (2, 3), "c": (6, 2)}, check="require").check
