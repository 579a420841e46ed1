"""The ops of the family resources: tables with constant contents."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import onnxtfl
from onnxtfl.errors import InvalidModelError
from onnxtfl.formats.bodies import body
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, constant
from onnxtfl.ir.interpret import run
from onnxtfl.ir.model import Model
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.types import tensor
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect
from onnxtfl.pipeline_run import explicit_states
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.rewriting.lift import lift
from onnxtfl.targets.onnx import OnnxTarget
from onnxtfl.targets.tflite import TfliteTarget
from tests.unit import tfl_states
from tests.unit.ml_models import check_same, features, ml_model

KEYS, QUERY = np.asarray([7, 5, 7]), np.asarray([[5, 7], [9, 5]])


def table(values: Array, default: Any, query: str = "int64") -> Graph:
    """A graph that looks up its input [2, 2] among `KEYS`."""
    graph = Graph()
    b = Builder(graph)
    keys = constant(KEYS.astype(query))
    default = constant(np.asarray(default, values.dtype))
    graph.outputs = [b(ops.Lookup, graph.add_input(tensor(query, 2, 2)), keys, b.value(values), default)]
    return graph


def test_of_equal_keys_the_first_one_counts_and_missing_ones_get_the_default() -> None:
    assert run(table(np.asarray([1, 2, 3]), -1), [QUERY])[0].tolist() == [[2, 1], [-1, 2]]


def test_values_may_be_rows() -> None:
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    found = run(table(rows, [8, 9]), [QUERY])[0]
    assert found.tolist() == [[[2, 3], [0, 1]], [[8, 9], [2, 3]]]


def test_onnx_has_it_as_label_encoder() -> None:
    graph = table(np.asarray([1, 2, 3]), -1)
    (node,) = graph.nodes
    form = OnnxTarget().accepted(node)
    assert form is not None and form.op == "LabelEncoder"
    assert form.attributes == {"keys_int64s": (7, 5), "values_int64s": (1, 2), "default_int64": -1}


@pytest.mark.parametrize("target", [OnnxTarget(), TfliteTarget()], ids=["onnx", "tflite"])
@pytest.mark.parametrize("query", ["int32", "int64"])
def test_what_is_written_means_the_same(target: Any, query: str) -> None:
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    wanted = run(table(rows, [8, 9], query), [QUERY.astype(query)])[0]
    graph = table(rows, [8, 9], query)
    legalize(graph, target)
    np.testing.assert_array_equal(run(graph, [QUERY.astype(query)])[0], wanted)


def test_a_label_encoder_is_read() -> None:
    graph = Graph()
    table = {"keys_int64s": (7, 5, 7), "values_int64s": (1, 2, 3)}
    x = graph.add_input(tensor("int64", 2, 2))
    types = [tensor("int64", 2, 2)]
    graph.outputs = Builder(graph).foreign("onnx", "LabelEncoder", [x], types, 4, "ai.onnx.ml", **table)
    lift(graph, body)
    assert run(graph, [QUERY])[0].tolist() == [[2, 1], [-1, 2]]


def test_hashtable_find_takes_the_default_for_missing_keys() -> None:
    model = Model(parse_graph(tfl_states.TABLE), "tflite")
    explicit_states(model)
    lift(model.main, body)
    assert run(model.main, [np.asarray([7, 1, 5])])[0].tolist() == ["seven", "?", "five"]


TEXTS = np.asarray([["a", "b"], ["?", "ü"]], object)


@pytest.mark.parametrize("x", [TEXTS, np.asarray([[2, 0], [9, 1]])], ids=["strings", "integers"])
def test_tables_between_strings_and_integers(x: Array) -> None:
    check_same("LabelEncoder", [x], version=1, classes_strings=["b", "ü", "a"], default_int64=-7, default_string="none")
    check_same("CategoryMapper", [x], version=1, cats_strings=["b", "ü", "a"], cats_int64s=[9, 1, 2])


def test_of_equal_keys_the_first_one_counts_as_in_onnx_runtime() -> None:
    check_same("LabelEncoder", [QUERY], version=2, keys_int64s=[7, 5, 7], values_int64s=[1, 2, 3])


DTYPES: dict[str, Any] = {"float": np.float32, "int64": np.int64, "string": object, "int32": np.int32,
                          "int16": np.int16, "double": np.float64}  # fmt: skip


def elements(kind: str, numbers: list[int]) -> Array:
    return np.asarray([f"ü{n}" for n in numbers] if kind == "string" else numbers, DTYPES[kind])


def encoder(keys: str, values: str) -> dict[str, Any]:
    """The attributes of a table between these types, as tensors."""
    return {
        "keys_tensor": onnx.numpy_helper.from_array(elements(keys, [1, 2, 1, 3])),
        "values_tensor": onnx.numpy_helper.from_array(elements(values, [10, 20, 99, 30])),
        "default_tensor": onnx.numpy_helper.from_array(elements(values, [7])),
    }


@pytest.mark.parametrize("values", DTYPES)
@pytest.mark.parametrize("keys", DTYPES)
def test_a_label_encoder_of_every_type(keys: str, values: str) -> None:
    query = elements(keys, [3, 9, 1, 2]).reshape(2, 2)
    model = ml_model("LabelEncoder", [query], version=4, **encoder(keys, values))
    (found,) = run(inspect(model, "lifted", Options()), [query])
    assert found.dtype == elements(values, [0]).dtype
    assert found.tolist() == elements(values, [30, 7, 10, 20]).reshape(2, 2).tolist()


def test_only_the_last_version_finds_nan() -> None:
    query = np.asarray([[np.nan, 0.0, 1.5], [-0.0, 2, np.inf]], np.float32)
    table = {"keys_floats": [-0.0, float("nan"), 1.5, float("nan")], "values_strings": ["zero", "nan", "b", "no"]}
    assert check_same("LabelEncoder", [query], version=2, **table)[0][0, 0] == "_Unused"
    assert check_same("LabelEncoder", [query], version=4, **table)[0][0, 0] == "nan"


@pytest.mark.parametrize("values", ["int16", "double"])
def test_the_default_of_types_without_an_attribute(values: str) -> None:
    table = {k: v for k, v in encoder("string", values).items() if k != "default_tensor"}
    check_same("LabelEncoder", [elements("string", [5, 1])], version=4, **table)


@pytest.mark.parametrize("changes", [{"values_floats": [1.0]}, {"keys_strings": ["a", "b"], "keys_floats": None}])
def test_tables_that_do_not_fit_are_refused(changes: dict[str, Any]) -> None:
    table = {"keys_floats": [1.0, 2.0], "values_floats": [1.0, 2.0], **changes}
    model = ml_model("LabelEncoder", [features()], version=2, **{k: v for k, v in table.items() if v})
    with pytest.raises(InvalidModelError, match=r"keys for \d values"):
        inspect(model, "lifted", Options())


def test_a_table_of_float_keys_converts() -> None:
    query = np.asarray([1.5, 3, -1, np.nan], np.float32)
    table = {"keys_floats": [1.5, float("nan"), 3.0], "values_int64s": [1, 2, 3]}
    conversion = onnxtfl.onnx_to_tflite(ml_model("LabelEncoder", [query], version=4, **table), check="require")
    assert conversion.check is not None and conversion.check.status == "passed"
