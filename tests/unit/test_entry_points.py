"""Several entry points in one .tflite (`signatures`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxtfl
from onnxtfl.errors import CheckFailedError, InvalidModelError, UsageError
from onnxtfl.formats import files
from tests.unit.tiny_models import tflite_model

pytest.importorskip("ai_edge_litert")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A model with an open size and a weight of 4 kB."""
    weight = numpy_helper.from_array(np.linspace(-1, 1, 1024, dtype=np.float32).reshape(32, 32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Relu", ["z"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 32]) for name in ("x", "y"))
    graph = helper.make_graph(nodes, "g", [x], [y], [weight])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


SIZES = {"first": {"x": (8, 32)}, "next": {"x": (1, 32)}, "any": {}}


def test_each_entry_point_has_its_sizes_and_the_weights_are_stored_once(source: Path, tmp_path: Path) -> None:
    done = onnxtfl.onnx_to_tflite(source, tmp_path / "m.tflite", signatures=SIZES, check="require")
    assert done.check is not None and done.check.ok
    assert done.report.size < 2 * 4096
    found = {s.key: s.graph.inputs[0].shape for s in files.read(tmp_path / "m.tflite").signatures}
    assert found["first"] == (8, 32) and found["next"] == (1, 32)
    assert not isinstance(found["any"][0], int)


def test_each_entry_point_runs_in_litert(source: Path, tmp_path: Path) -> None:
    from ai_edge_litert.interpreter import Interpreter

    onnxtfl.onnx_to_tflite(source, tmp_path / "m.tflite", signatures=SIZES)
    interpreter, x = Interpreter(str(tmp_path / "m.tflite")), np.ones((8, 32), np.float32)
    whole = interpreter.get_signature_runner("first")(x=x)["y"]
    assert np.allclose(interpreter.get_signature_runner("next")(x=x[:1])["y"], whole[:1], atol=1e-5)


def test_a_model_in_memory(source: Path) -> None:
    done = onnxtfl.onnx_to_tflite(onnx.load(source), signatures=SIZES)
    assert done.data is not None and len(done.data) < 2 * 4096


def test_there_and_back(source: Path, tmp_path: Path) -> None:
    onnxtfl.onnx_to_tflite(source, tmp_path / "m.tflite", signatures=SIZES)
    back = onnxtfl.signatures_to_onnx(tmp_path / "m.tflite", tmp_path / "back", check="require")
    assert list(back) == list(SIZES)
    assert [r.report.inputs[0].shape[0] for r in back.values()][:2] == [8, 1]


def test_entry_points_without_a_conversion_leave_no_folder(tmp_path: Path) -> None:
    model = tflite_model("NON_MAX_SUPPRESSION_V4", [("x", [2], None)], ("y", [2]))
    with pytest.raises(InvalidModelError):
        onnxtfl.signatures_to_onnx(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_wrong_entry_point_fails_the_check(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxtfl import pipeline

    def doubled(out: object, entries: dict[str, tuple[object, object]]) -> object:
        changed = onnx.load(source)
        changed.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((32, 32), np.float32), "w"))
        return original(out, {**entries, "next": (changed, entries["next"][1])})

    original = pipeline.onnx_to_tflite_entries
    monkeypatch.setattr(pipeline, "onnx_to_tflite_entries", doubled)
    with pytest.raises(CheckFailedError):
        onnxtfl.onnx_to_tflite(source, tmp_path / "m.tflite", signatures=SIZES)
    assert not (tmp_path / "m.tflite").exists()


@pytest.mark.parametrize(
    ("signatures", "message"),
    [({"a": {"z": (1, 32)}}, "no input 'z'"), ({"a": {"x": (1,)}}, "2 axes"), ({"": {"x": (1, 32)}}, "without a key")],
)
def test_entry_points_that_do_not_fit(
    source: Path, signatures: dict[str, dict[str, tuple[int, ...]]], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        onnxtfl.onnx_to_tflite(source, signatures=signatures)
