"""What `per_layer` finds, and by what tensors are matched."""

import io
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxtfl
from onnxtfl.formats import files
from onnxtfl.formats.tflite.writer import write as write_tflite
from onnxtfl.ir.graph import Value
from onnxtfl.tracing.values import by_value
from tests.unit.test_record import cnn
from tests.unit.tiny_models import onnx_model


def broken() -> onnx.ModelProto:
    """The network with another bias."""
    model = cnn()
    bias = next(t for t in model.graph.initializer if t.name == "b")
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias)[::-1] * np.float32(3), "b"))
    return model


def renamed(data: bytes) -> bytes:
    """A .tflite file as a converter writes it that keeps no names."""
    model = files.read(data)
    for k, node in enumerate(model.main.nodes):
        for result in node.results:
            result.name = f"tensor_{k}"
    model.metadata.properties.clear()
    out = io.BytesIO()
    write_tflite(model, out)
    return out.getvalue()


def tflite(model: onnx.ModelProto, **options: object) -> bytes:
    return onnxtfl.onnx_to_tflite(model, check=False, **options).data or b""  # type: ignore[arg-type]


def test_where_the_models_agree_no_op_differs() -> None:
    report = onnxtfl.check(cnn(), tflite(cnn()), per_layer=True)
    assert report.ok and report.first_difference is None
    assert report.notes[-1] == "no op differs"
    assert {layer.a for layer in report.layers} >= {"relu", "pool", "y"}
    assert all(layer.own is not None and layer.own < 1e-5 for layer in report.layers)


def test_by_the_record_in_the_file() -> None:
    report = onnxtfl.check(cnn(), tflite(broken()), per_layer=True)
    first = report.first_difference
    assert first is not None and (first.op, first.a, first.b, first.error_in) == ("CONV_2D", "conv", "relu", 0.0)
    assert first.node == first.node_a == "node_conv" and first.nodes == ("node_conv", "node_relu")
    assert any("the record in the metadata of the second model" in note for note in report.notes)


def test_by_the_record_of_the_conversion_back() -> None:
    there = tflite(cnn())
    back = onnx.load_from_string(onnxtfl.tflite_to_onnx(there, check=False).data)
    report = onnxtfl.check(back, there, per_layer=True)
    assert report.ok and any("the record in the metadata of the first model" in note for note in report.notes)


def test_by_the_record_beside_the_file(tmp_path: Path) -> None:
    done = onnxtfl.onnx_to_tflite(cnn(), tmp_path / "m.tflite", record=False, check=False)
    assert done.record is not None
    onnx.save(broken(), tmp_path / "m.onnx")
    (tmp_path / "m.tflite.record.json").write_text(done.record.to_json())
    report = onnxtfl.check(tmp_path / "m.onnx", tmp_path / "m.tflite", per_layer=True)
    assert report.first_difference is not None and report.first_difference.op == "CONV_2D"
    assert any("the record beside the second model" in note for note in report.notes)


def test_by_names() -> None:
    report = onnxtfl.check(cnn(), broken(), per_layer=True)
    first = report.first_difference
    assert first is not None and (first.node, first.op, first.a, first.b) == ("node_conv", "Conv", "conv", "conv")


def test_by_value() -> None:
    data = renamed(tflite(cnn()))
    agreeing = onnxtfl.check(cnn(), data, per_layer=True)
    assert agreeing.ok and {layer.a for layer in agreeing.layers} >= {"relu", "pool"}
    first = onnxtfl.check(broken(), data, per_layer=True).first_difference
    assert first is not None and (first.node, first.op) == ("node_conv", "CONV_2D")


def test_a_record_of_another_model_is_not_used() -> None:
    node = onnx.helper.make_node("Exp", ["x"], ["y"])
    other = onnx_model([node], [("x", 1, (1, 3, 8, 8))], [("y", 1, (1, 3, 8, 8))])
    mixed = files.read(renamed(tflite(cnn())))
    mixed.metadata.properties |= files.read(tflite(other)).metadata.properties
    out = io.BytesIO()
    write_tflite(mixed, out)
    report = onnxtfl.check(cnn(), out.getvalue(), per_layer=True)
    assert report.ok and not any("record" in note for note in report.notes)


def test_the_error_that_goes_in_is_that_of_the_op_before() -> None:
    """Both convolutions are right; the second one reads what a broken op computes."""
    weights = {
        name: np.random.default_rng(k).standard_normal((4, 4, 1, 1)).astype(np.float32) for k, name in enumerate("vw")
    }
    nodes = [onnx.helper.make_node("Conv", [a, w], [b], name=b) for a, w, b in (("x", "v", "h"), ("h", "w", "y"))]
    model = onnx_model(nodes, [("x", 1, (1, 4, 5, 5))], [("y", 1, (1, 4, 5, 5))], weights)
    wrong = onnx_model(
        nodes, [("x", 1, (1, 4, 5, 5))], [("y", 1, (1, 4, 5, 5))], weights | {"v": weights["v"][::-1].copy()}
    )
    report = onnxtfl.check(model, wrong, per_layer=True)
    assert report.first_difference is not None and report.first_difference.node == "h"
    last = report.layers[-1]
    assert last.b == "y" and last.error > 0.1 and last.own is not None and last.own < 1e-6


@pytest.mark.parametrize("per_layer", [False, True])
def test_json_has_the_first_difference(per_layer: bool) -> None:
    found = onnxtfl.check(cnn(), broken(), per_layer=per_layer).to_json("a", "b")["first_difference"]
    assert found is None if not per_layer else {"a", "b", "node", "op", "error", "error_in"} <= set(found)


class _Numbers:
    """A model of tensors with four real values each, as far as `by_value` reads one; `fetched`: how many were run."""

    def __init__(self, rows: list[list[float]]) -> None:
        self.rows, self.fetched = [np.asarray(row, np.float32) for row in rows], 0
        self.changing = frozenset(range(len(rows)))
        self.values = [Value(None) for _ in rows]

    def nbytes(self, number: int) -> int:
        return self.rows[number].nbytes

    def fetch(self, wanted: list[int]) -> dict[int, np.ndarray]:
        self.fetched += len(wanted)
        return {i: self.rows[i] for i in wanted}


def test_by_value_takes_the_first_that_is_alike() -> None:
    a = _Numbers([[0, 0, 0, 0], [1, 2, 3, 4], [4, 3, 2, 1], [1, 2, 3, 9]])
    found = by_value(a, _Numbers([[1, 2, 3, 9], [1, 2, 3, 4], [5, 6, 7, 8]]), [], time.perf_counter() + 60)
    assert [(match.a, match.b) for match in found] == [(3, 0), (1, 1)]


def test_by_value_ends_in_time() -> None:
    a, b = _Numbers([[1, 2, 3, 4]]), _Numbers([[1, 2, 3, 4]])
    assert by_value(a, b, [], time.perf_counter() - 1) == [] and a.fetched == b.fetched == 0
