"""Maps as outputs: the tensor of their values, sorted by key as in ONNX Runtime; as inputs, vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir.interpret import run
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect
from tests.unit.ml_models import features, ml_model

LABELS: list[dict[str, Any]] = [{"classlabels_int64s": [7, 2, 5]}, {"classlabels_strings": ["b", "ü", "a"]}]


@pytest.mark.parametrize("labels", LABELS, ids=["integers", "strings"])
def test_zip_map_is_its_tensor(labels: dict[str, Any]) -> None:
    x = features(4, 3)
    model = ml_model("ZipMap", [x], version=1, **labels)
    maps = onnxruntime.InferenceSession(model).run(None, {"x0": x})[0]
    (found,) = run(inspect(model, "lifted", Options()), [x])
    assert found.tolist() == [[row[key] for key in sorted(row)] for row in maps]


def test_labels_that_occur_twice_are_an_error() -> None:
    model = ml_model("ZipMap", [features(4, 2)], version=1, classlabels_int64s=[3, 3])
    with pytest.raises(InvalidModelError, match="occur twice"):
        inspect(model, "lifted", Options())


def test_values_are_not_copied_where_the_labels_are_sorted() -> None:
    graph = inspect(ml_model("ZipMap", [features(4, 2)], version=1, classlabels_int64s=[3, 9]), "lifted", Options())
    assert [node.op.name for node in graph.nodes] == []
    assert np.shape(run(graph, [features(4, 2)])[0]) == (4, 2)


def of_map(data: bytes, key: int, value: int) -> bytes:
    """A model of one op whose input is a map, which is made a vector, and cast."""
    model = onnx.load_from_string(data)
    (node,) = model.graph.node
    node.output[0] = "v"
    model.graph.node.append(helper.make_node("Cast", ["v"], ["y0"], to=FLOAT))
    element = helper.make_tensor_type_proto(value, [])
    model.graph.input[0].type.CopyFrom(helper.make_map_type_proto(key, element))
    return bytes(model.SerializeToString())


INT64, FLOAT, STRING = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT, onnx.TensorProto.STRING
MAPS: dict[str, tuple[bytes, int, int, dict[Any, Any], list[Any]]] = {
    "words": (
        ml_model("DictVectorizer", [features(1, 3)], version=1, string_vocabulary=["b", "a", "ü"]),
        STRING, FLOAT, {"a": 1.5, "ü": 2.5, "z": 9.0}, [0, 1.5, 2.5],
    ),
    "numbers": (
        ml_model("DictVectorizer", [features(1, 3)], version=1, int64_vocabulary=[7, 2]),
        INT64, FLOAT, {2: 1.5, 5: 3.5}, [0, 1.5],
    ),
    "all values": (
        ml_model("CastMap", [features(1, 3)], version=1, cast_to="TO_FLOAT", map_form="DENSE"),
        INT64, FLOAT, {9: 1.5, 5: 3.5}, [3.5, 1.5],
    ),
    "the first values": (
        ml_model("CastMap", [features(1, 3)], version=1, cast_to="TO_FLOAT", map_form="SPARSE", max_map=4),
        INT64, FLOAT, {3: 1.5, 1: 3.5, 8: 1.0}, [0, 3.5, 0, 1.5],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MAPS)
def test_a_map_as_input_is_the_vector_made_of_it(name: str) -> None:
    data, key, value, given, vector = MAPS[name]
    model = of_map(data, key, value)
    (wanted,) = onnxruntime.InferenceSession(model).run(None, {"x0": given})
    conversion = onnxtfl.onnx_to_tflite(model, check="require")
    assert [v.name for v in conversion.report.inputs] == ["v"]
    assert "the map 'x0' is read as the tensor 'v'" in " ".join(str(conversion.report).split())
    graph = inspect(model, "lifted", Options())
    assert run(graph, [np.asarray([vector], np.float32)])[0].tolist() == wanted.tolist()


def test_a_map_that_another_op_takes_is_refused() -> None:
    model = of_map(ml_model("Scaler", [features(1, 3)], version=1), STRING, FLOAT)
    with pytest.raises(UnsupportedError, match="is a map, read by Scaler"):
        inspect(model, "lifted", Options())


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (ml_model("DictVectorizer", [features(1, 3)], version=1), "without a vocabulary"),
        (ml_model("CastMap", [features(1, 3)], version=1, cast_to="TO_X"), "cast_to 'TO_X'"),
    ],
)
def test_what_makes_no_vector_is_an_error(model: bytes, message: str) -> None:
    with pytest.raises(InvalidModelError, match=message):
        inspect(of_map(model, INT64, FLOAT), "lifted", Options())


def test_the_vocabulary_of_maps_is_a_list() -> None:
    made = helper.make_node("DictVectorizer", ["x"], ["y"], name="n", domain="ai.onnx.ml", int64_vocabulary=3)
    value = onnx.TypeProto()
    value.tensor_type.elem_type = TensorProto.FLOAT
    x = helper.make_value_info("x", helper.make_map_type_proto(TensorProto.INT64, value))
    graph = helper.make_graph([made], "g", [x], [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 1)], ir_version=8)
    with pytest.raises(onnxtfl.InvalidModelError, match="another type than DictVectorizer declares"):
        onnxtfl.onnx_to_tflite(model, check=False)
